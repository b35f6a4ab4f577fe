"""The release gate: three answers on three pairs, a hand computation, policies with mistakes, and the shell script of the docs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.makers import raises
from tests.places import ROOT
from tests.userrl.comparison.test_compare import evaluated
from tests.warehouse.makers import play
from userrl.comparison.document import comparison_sentences
from userrl.comparison.gate.answer import GateAnswer, apply_gate
from userrl.comparison.gate.policy import read_policy
from userrl.comparison.report import comparison_report
from userrl.reports.sides import find_sides
from warehouse import TurnLog, open_warehouse

NOT_WORSE = {"rules": [{"rule": "not worse by more than .02"}]}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A baseline that solves 120 of 200 tasks, and three candidates: the same, one that loses 40, one that swaps 15."""
    home = tmp_path_factory.mktemp("gate")
    base = [[1.0]] * 120 + [[0.0]] * 80
    candidates = {
        "base": base,
        "same": base,
        "worse": [[0.0]] * 40 + base[40:],
        "unclear": [[0.0]] * 15 + base[15:120] + [[1.0]] * 15 + base[135:],
    }
    for name, scores in candidates.items():
        evaluated(home / "warehouse", name, {"m": scores}, recipe=name, recipe_hash=name)
    four = [[[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]]
    for name, tasks in zip(("four-a", "four-b"), four, strict=True):
        evaluated(home / "warehouse", name, {"m": tasks}, recipe=name, recipe_hash=name)
    for seed in range(8):
        for recipe, last in (("steady", 0.8), ("falls", 0.8 if seed else 0.0)):
            best = [[1.0]] * 16 + [[0.0]] * 4
            policies = {"RL": best, "RL last step": best if last else [[0.0]] * 20}
            evaluated(home / "warehouse", f"{recipe}-{seed}", policies, recipe=recipe, recipe_hash=recipe, seed=seed)
    return home


def gated(home: Path, a: str, b: str, policy: object) -> GateAnswer:
    with open_warehouse(home / "warehouse") as warehouse:
        sides, _ = find_sides(warehouse, [a, b])
        return apply_gate(warehouse, comparison_report(warehouse, sides), read_policy(policy))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def over_seeds(home: Path) -> Iterator[Callable[..., GateAnswer]]:
    """Apply a policy to the candidate `falls`, one of whose 8 seeds collapses. It is compared with `steady`."""
    with open_warehouse(home / "warehouse") as warehouse:
        report = comparison_report(
            warehouse, find_sides(warehouse, [f"recipe={recipe},seed=*" for recipe in ("steady", "falls")])[0]
        )
        yield lambda **policy: apply_gate(warehouse, report, read_policy({"checkpoint": "last", **policy}))


@pytest.mark.parametrize(
    ("candidate", "answer", "status"), [("same", "PASS", 0), ("worse", "FAIL", 3), ("unclear", "INCONCLUSIVE", 4)]
)
def test_three_pairs_have_three_answers(home: Path, candidate: str, answer: str, status: int) -> None:
    gate = gated(home, "base", candidate, NOT_WORSE)
    assert (gate.answer, gate.exit_status, len(gate.results)) == (answer, status, 1)
    needed = gate.results[0].decision.needed
    assert (needed is not None) == (answer == "INCONCLUSIVE")
    if needed is not None:
        assert needed.tasks is not None
        assert f"About {needed.tasks:,} tasks instead of 200" in gate.results[0].sentence


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A baseline that solves all of 60 tasks, also over four seeds, and candidates that did not play or score all of them."""
    home = tmp_path_factory.mktemp("parts")
    whole: list[list[float | None]] = [[1.0]] * 60
    for name, scores in {
        "base": whole,
        "killed": whole[:40],
        "unscored": [*whole[:40], *[[None]] * 20],
        "attempts": [*whole[:40], *[[1.0, None]] * 20],
        "bad": [[0.0]] * 40,
        "more": [*whole, *whole],
    }.items():
        evaluated(home / "warehouse", name, {"m": scores}, recipe=name, recipe_hash=name)
    for seed in range(4):
        for recipe, scores in (("whole", whole), ("part", whole[:40] if seed == 2 else whole)):
            fields = {"recipe": recipe, "recipe_hash": recipe, "seed": seed}
            evaluated(home / "warehouse", f"{recipe}-{seed}", {"RL": scores}, **fields)
    return home


@pytest.mark.parametrize(
    ("candidate", "answer", "missing", "left_out"),
    [
        ("killed", "INCONCLUSIVE", 20, 20),
        ("unscored", "INCONCLUSIVE", 20, 20),
        ("attempts", "INCONCLUSIVE", 20, 0),
        ("bad", "FAIL", 20, 20),
        ("more", "PASS", 0, 60),
    ],
)
@pytest.mark.parametrize("population", ["all tasks", "travel"])
def test_a_candidate_does_not_pass_on_a_part_of_the_baselines_tasks(
    parts: Path, candidate: str, answer: str, missing: int, left_out: int, population: str
) -> None:
    gate = gated(parts, "base", candidate, {"rules": [{"rule": "not worse by more than .1", "population": population}]})
    (result,) = gate.results
    assert (gate.answer, result.missing, result.left_out) == (answer, missing, left_out)
    assert ("B has no score, or not all scores, of 20 tasks of A" in result.sentence) == (missing > 0)
    assert ("so the rule does not pass" in result.sentence) == (answer == "INCONCLUSIVE")
    assert (f"{left_out} tasks that only one side has are left out" in result.sentence) == (left_out > 0)


@pytest.mark.parametrize("metric", ["score", "pass^1"])
def test_a_rule_about_last_steps_that_were_not_evaluated_is_not_tested(tmp_path: Path, metric: str) -> None:
    for name in ("a", "b"):
        evaluated(tmp_path / "warehouse", name, {"RL": [[1.0]] * 60}, recipe=name, recipe_hash=name)
        with TurnLog.open(tmp_path / "warehouse", name) as log:
            play(log, [1.0], phase="validate", step=2)  # the evaluated checkpoint is of step 1
    policy = {"checkpoint": "last", "rules": [{"rule": "not worse by more than .1", "metric": metric}]}
    gate = gated(tmp_path, "a", "b", policy)
    assert (gate.answer, gate.results[0].sentence) == (
        "INCONCLUSIVE",
        "not tested: the sides share fewer than two tasks.",
    )
    assert "The last step was not evaluated, so it counts in no mean and no share of collapses: b." in gate.notes


def test_a_recipe_does_not_pass_where_one_seed_lacks_tasks(parts: Path) -> None:
    policy = {"rules": [{"rule": "not worse by more than .1"}]}
    gate = gated(parts, "recipe=whole,seed=*", "recipe=part,seed=*", policy)
    assert (gate.answer, gate.results[0].missing) == ("INCONCLUSIVE", 20)
    assert "of 20 tasks of A (each seed counts), so the rule does not pass" in gate.results[0].sentence
    assert gated(parts, "recipe=part,seed=*", "recipe=whole,seed=*", policy).answer == "PASS"


def test_a_comparison_by_hand(home: Path) -> None:
    # Means by task: A 0, .5, 1, .5; B .5, 1, 1, 1. Differences: .5, .5, 0, .5. Mean 1.5 / 4 = .375.
    gate = gated(home, "four-a", "four-b", {"rules": [{"rule": "better"}, {"rule": "better", "metric": "pass^2"}]})
    score, both = (result.decision for result in gate.results)
    assert score.interval.estimate == pytest.approx(0.375)
    # pass^2 by task: A 0, 0, 1, 0; B 0, 1, 1, 1. Differences: 0, 1, 0, 1. Mean 2 / 4 = .5.
    assert both.interval.estimate == pytest.approx(0.5)
    # With weights w from Dirichlet(1, 1, 1, 1, 1): P(w1 + w3 - w0 <= 0), as w0 < w1 + w3 has chance 1 - (1/2)^2.
    assert both.p_kept == pytest.approx(0.25, abs=1e-6)


def test_a_rule_over_seeds_is_about_runs_that_held(over_seeds: Callable[..., GateAnswer]) -> None:
    gate = over_seeds(rules=[{"rule": "collapsed share at most .1"}, NOT_WORSE["rules"][0]])
    share, score = (result.decision for result in gate.results)
    assert (share.interval.estimate, score.interval.estimate, score.interval.units) == (0.125, 0.0, 7)
    assert score.interval.method == "t over seeds, paired"
    sentence = gate.results[1].sentence
    assert "7 seeds whose runs held on both sides; collapsed and not counted: 0 of 8 of A, 1 of 8 of B" in sentence
    assert [result.answer for result in gate.results] == ["INCONCLUSIVE", "PASS"]
    assert gate.answer == "INCONCLUSIVE"


def test_a_policy_that_limits_collapses_tests_their_share_too(over_seeds: Callable[..., GateAnswer]) -> None:
    held = over_seeds(**NOT_WORSE)
    assert held.answer == "PASS"
    assert any("add collapsed: {at_most: .1} to the policy" in note for note in held.notes)
    limited = over_seeds(collapsed={"at_most": 0.1}, **NOT_WORSE)
    assert (limited.answer, len(limited.results), limited.notes) == ("INCONCLUSIVE", 2, ())
    assert limited.results[1].rule.rule == "collapsed share at most 0.1"
    (alone,) = over_seeds(collapsed={"at_most": 0.5}).results
    # P(at most 1 of 8 at a share of .5) = 9 / 256 = .035
    assert (alone.answer, alone.decision.p_kept) == ("PASS", pytest.approx(9 / 256))


def test_a_cost_over_seeds_is_about_runs_that_held(over_seeds: Callable[..., GateAnswer]) -> None:
    gate = over_seeds(**cost("turns", cap=9))
    (turns,) = gate.results
    assert (turns.answer, turns.decision.interval.units) == ("PASS", 7)
    assert "Seeds are the unit of recipes, so cluster and cap are not used." in gate.notes


def test_an_undecided_rule_counts_as_the_policy_says(home: Path) -> None:
    rule = NOT_WORSE["rules"][0]
    assert gated(home, "base", "unclear", {"undecided": "fail", "rules": [rule]}).answer == "FAIL"
    passed = gated(home, "base", "unclear", {"rules": [{**rule, "undecided": "pass"}]})
    assert passed.answer == "PASS"
    assert passed.results[0].decision.answer == "INCONCLUSIVE"
    assert "counts an undecided rule as PASS" in passed.results[0].sentence


def test_an_unknown_price_is_not_a_price_of_nothing(home: Path) -> None:
    rules = [{"rule": "cost at most 1.2 x"}, {"rule": "cost at most 1.2 x", "metric": "tokens", "cap": 20}]
    dollars, tokens = gated(home, "base", "same", {"rules": rules}).results
    assert (dollars.answer, tokens.answer) == ("INCONCLUSIVE", "PASS")
    assert "the dollars of 400 of 400 tasks are not known" in dollars.sentence


def cost(metric: str, **more: object) -> dict[str, object]:
    return {"rules": [{"rule": "cost at most 1.2 x", "metric": metric, **more}]}


def test_a_cost_has_the_bound_of_its_conversations(home: Path, tmp_path: Path) -> None:
    # One turn a task, horizon 8: an absent task may have 1.2 * 0 - 8, so p is (1 - .2 / 8.2)^200.
    (turns,) = gated(home, "base", "same", cost("turns")).results
    assert (turns.answer, turns.cap, turns.decision.p_kept) == ("PASS", 8, pytest.approx((8 / 8.2) ** 200, rel=1e-6))
    assert "B needs 1.00 x the turns of A in total" in turns.sentence
    assert "a conversation of B has at most 8 turns" in turns.sentence
    (tokens,) = gated(home, "base", "same", cost("tokens")).results
    assert (tokens.answer, tokens.decision.needed) == ("INCONCLUSIVE", None)
    assert "largest possible number of tokens in a conversation is not known" in tokens.sentence
    assert "as cap: NUMBER" in tokens.sentence
    for metric, cap, problem in (
        ("tokens", 4, "has 5 tokens, more than the cap of 4"),
        ("turns", 7, "may have 8 turns"),
    ):
        with raises("gate.bad_policy", problem):
            gated(home, "base", "same", cost(metric, cap=cap))
    with raises("gate.bad_policy", "a cap belongs to a cost rule"):
        read_policy({"rules": [{"rule": "better", "cap": 3}]})
    algorithm = {"max_tokens": 10, "max_response_tokens": 64}
    model = {"path": None, "max_context": 48}
    for name in ("x", "y"):
        fields = {"recipe": name, "recipe_hash": name, "recipe_json": {"algorithm": algorithm, "model": model}}
        evaluated(tmp_path / "warehouse", name, {"m": [[1.0]] * 40}, **fields)
    (limited,) = gated(tmp_path, "x", "y", cost("tokens")).results
    assert limited.cap == 48  # less than 64 after the opening, and than 8 turns of 10
    # 5 tokens a task: 6 - 5 = 1, and down to -48. ln .05 / ln(48 / 49) = 145.3
    assert "About 146 tasks instead of 40" in limited.sentence


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An agent and its copy on 30 families of five variants, whose ids and contents name the family."""
    home = tmp_path_factory.mktemp("families")
    for run in ("one", "two"):
        with TurnLog.open(home / "warehouse", run, run_fields={"recipe": run, "recipe_hash": run, "seed": 0}) as log:
            for task in range(150):
                content = {"family": f"f{task // 5}", "about": {"topic": task // 75}} | ({} if task else {"first": 1})
                log.imported(
                    {
                        "gym": "quiz",
                        "task_id": f"q{task // 5}-{'abcde'[task % 5]}",
                        "split": "test",
                        "stage": "evaluate",
                        "phase": "evaluate",
                        "policy": "m",
                        "attempt": 0,
                        "admitted": True,
                        "score": 1.0,
                        "turns": 2,
                        "source": "chats",
                        "tier": "",
                    },
                    [{"turn": 1, "info": {"info": {"author": task % 3}}}],
                    [],
                    content,
                )
    return home


@pytest.mark.parametrize(
    ("cluster", "units"), [("id_stem", 30), ("family", 30), ("about.topic", 2), ("info.author", 3), ("gym", 1)]
)
def test_a_policy_may_name_the_cluster_of_its_tasks(families: Path, cluster: str, units: int) -> None:
    gate = gated(families, "one", "two", {"cluster": cluster, **NOT_WORSE})
    (result,) = gate.results
    assert (result.answer, result.unit, result.decision.interval.units) == ("INCONCLUSIVE", "clusters", units)
    assert f"{units} clusters of 150 tasks by {cluster}" in result.sentence
    assert f"About 149 clusters instead of {units}" in result.sentence
    assert json.loads(json.dumps(gate.as_json()))["rules"][0]["needed"]["clusters"] == 149
    assert not any("families" in note for note in gate.notes)


def test_ids_that_suggest_families_are_named(families: Path) -> None:
    gate = gated(families, "one", "two", NOT_WORSE)
    assert gate.answer == "PASS"  # as 150 tasks
    (note,) = (note for note in gate.notes if "families" in note)
    assert note.startswith("150 tasks have ids that suggest 30 families, such as q0-a and q0-b.")
    assert "cluster: id_stem" in note
    with open_warehouse(families / "warehouse") as warehouse:
        report = comparison_report(warehouse, find_sides(warehouse, ["one", "two"])[0])
    assert any("30 families" in sentence for sentence in comparison_sentences(report))


def test_a_cluster_that_tasks_do_not_have_is_refused(home: Path, families: Path) -> None:
    for cluster, problem in (("famly", "did you mean 'family'?"), ("first", "149 of 150 tasks have no field 'first'")):
        with raises("gate.bad_policy", problem):
            gated(families, "one", "two", {"cluster": cluster, **NOT_WORSE})
    with raises("gate.bad_policy", "have no stems in common"):
        gated(home, "base", "same", {"cluster": "id_stem", **NOT_WORSE})


def test_an_import_without_a_horizon_needs_a_cap(families: Path) -> None:
    (unknown,) = gated(families, "one", "two", cost("turns")).results
    assert "B needs 1.00 x the turns of A in total, but the largest possible number of turns" in unknown.sentence
    # 2 turns: 2.4 - 2 = .4, and down to -10: p is (1 - .4 / 10.4)^150
    (known,) = gated(families, "one", "two", cost("turns", cap=10)).results
    assert (known.answer, known.decision.p_kept) == ("PASS", pytest.approx((10 / 10.4) ** 150, rel=1e-6))


def test_mistakes_in_a_policy_name_the_nearest_word(home: Path, tmp_path: Path) -> None:
    cases = {
        "ruls: [{rule: better}]": "did you mean 'rules'?",
        "rules: [{rule: better, populaton: x}]": "did you mean 'population'?",
        "rules: [{rule: not worse by more then .02}]": "did you mean 'not worse by more than .02'?",
        "rules: [{rule: cost at most 1.2 x, metric: token}]": "did you mean 'tokens'?",
        "rules: [{rule: better, level: 2}]": "less than or equal to 0.25",
        "rules: [{rule: cost at most 1.2 x, cap: 1.0e+300}]": "less than or equal to 1000000000",
        f"rules: [{{rule: cost at most {'9' * 400} x}}]": "the number of a rule is at most 1e+09",
        "rules: []": "at least one rule",
        "level: .05": "at least one rule",
        "rules: [{rule: better}]\ncollapsed: {at_most: 0}": "greater than or equal to 0.001",
        "rules: [{rule: better}]\ncollapsed: {atmost: .1}": "'collapsed.at_most' is missing",
        "rules: [": "is not readable YAML in line 1",
        "3": "contains no mapping of fields",
        "rules: [{rule: better}]\nlevel: .05\nlevel: .1": "'level' is given twice",
        "rules: [{rule: better, level: 0:0.5}]": "0:0.5",
    }
    for text, fact in cases.items():
        (tmp_path / "policy.yaml").write_text(text)
        with raises("gate.bad_policy", fact):
            read_policy(tmp_path / "policy.yaml")
    with open_warehouse(home / "warehouse") as warehouse:
        report = comparison_report(warehouse, find_sides(warehouse, ["base", "same"])[0])

        def refused(code: str, fact: str, policy: dict[str, object]) -> None:
            with raises(code, fact):
                apply_gate(warehouse, report, read_policy(policy))

        refused("gate.bad_policy", "did you mean 'travel'?", {"rules": [{"rule": "better", "population": "travle"}]})
        refused("gate.bad_policy", "--attempts 2", {"rules": [{"rule": "better", "metric": "pass^2"}]})
        refused("gate.score_range", "[0, 0.5]", {"scores": [0, 0.5], "rules": [{"rule": "better"}]})
        sides, _ = find_sides(warehouse, ["base", "recipe=steady,seed=*"])
        with raises("gate.bad_sides"):
            apply_gate(warehouse, comparison_report(warehouse, sides), read_policy(NOT_WORSE))


def test_the_script_of_the_docs_ends_with_the_exit_status_of_the_gate(home: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "evaluation.md").read_text()
    policy, workflow = re.findall(r"```yml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "policy.yaml").write_text(policy)
    run = re.search(r"        run: \|\n((?:          .*\n)+)", workflow)
    assert run is not None
    script = (
        re.sub(r"^ {10}", "", run[1], flags=re.MULTILINE).replace("$BASELINE", "base").replace("$CANDIDATE", "worse")
    )
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "userrl").write_text(f"#!{sys.executable}\nfrom flows.cli.start import main\nmain()\n")
    (bin_ / "userrl").chmod(0o755)
    environment = {
        **os.environ,
        "USERRL_HOME": str(home),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    done = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()
    assert (suite.tag, suite.get("failures")) == ("testsuite", "1")
    assert (tmp_path / "summary.md").read_text().rstrip().endswith("FAIL")


def test_the_python_call_returns_the_gate(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import userrl

    monkeypatch.setenv("USERRL_HOME", str(home))
    result = userrl.compare("base", "same", policy=NOT_WORSE)
    assert result.gate is not None
    assert result.gate.answer == "PASS"
    assert str(result).rstrip().endswith("PASS")
    assert json.loads(json.dumps(result.as_json()))["gate"]["rules"][0]["p_pass"] == pytest.approx(0.98**200, abs=1e-8)
    assert userrl.compare("base", "same").gate is None
