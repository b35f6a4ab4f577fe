"""The release gate: three answers on three pairs, a hand computation, policies with mistakes, and the shell script of the docs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.makers import raises
from tests.reports.test_compare import evaluated
from userrl.reports.comparison_report import comparison_report
from userrl.reports.gate import Gate, apply_gate
from userrl.reports.gate_policy import read_policy
from userrl.reports.sides import find_sides
from warehouse import open_warehouse

ROOT = Path(__file__).parents[2]
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


def gated(home: Path, a: str, b: str, policy: object) -> Gate:
    with open_warehouse(home / "warehouse") as warehouse:
        sides, _ = find_sides(warehouse, [a, b])
        return apply_gate(warehouse, comparison_report(warehouse, sides), read_policy(policy))  # type: ignore[arg-type]


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


def test_a_comparison_by_hand(home: Path) -> None:
    # Means by task: A 0, .5, 1, .5; B .5, 1, 1, 1. Differences: .5, .5, 0, .5. Mean 1.5 / 4 = .375.
    gate = gated(home, "four-a", "four-b", {"rules": [{"rule": "better"}, {"rule": "better", "metric": "pass^2"}]})
    score, both = (result.decision for result in gate.results)
    assert score.interval.estimate == pytest.approx(0.375)
    # pass^2 by task: A 0, 0, 1, 0; B 0, 1, 1, 1. Differences: 0, 1, 0, 1. Mean 2 / 4 = .5.
    assert both.interval.estimate == pytest.approx(0.5)
    # With weights w from Dirichlet(1, 1, 1, 1, 1): P(w1 + w3 - w0 <= 0), as w0 < w1 + w3 has chance 1 - (1/2)^2.
    assert both.p_kept == pytest.approx(0.25, abs=1e-6)


def test_a_collapsed_seed_is_counted_and_a_recipe_needs_more_seeds(home: Path) -> None:
    policy = {"checkpoint": "last", "rules": [{"rule": "collapsed share at most .1"}, NOT_WORSE["rules"][0]]}
    gate = gated(home, "recipe=steady,seed=*", "recipe=falls,seed=*", policy)
    share, score = (result.decision for result in gate.results)
    assert (share.interval.estimate, score.interval.estimate) == (0.125, pytest.approx(-0.1))
    assert score.interval.method == "Gaffke's limits over seeds, paired"
    assert gate.answer == "INCONCLUSIVE"


def test_an_undecided_rule_counts_as_the_policy_says(home: Path) -> None:
    rule = NOT_WORSE["rules"][0]
    assert gated(home, "base", "unclear", {"undecided": "fail", "rules": [rule]}).answer == "FAIL"
    passed = gated(home, "base", "unclear", {"rules": [{**rule, "undecided": "pass"}]})
    assert passed.answer == "PASS"
    assert passed.results[0].decision.answer == "INCONCLUSIVE"
    assert "counts an undecided rule as PASS" in passed.results[0].sentence


def test_an_unknown_price_is_not_a_price_of_nothing(home: Path) -> None:
    rules = [{"rule": "cost at most 1.2 x"}, {"rule": "cost at most 1.2 x", "metric": "tokens"}]
    dollars, tokens = gated(home, "base", "same", {"rules": rules}).results
    assert (dollars.answer, tokens.answer) == ("INCONCLUSIVE", "PASS")
    assert "the dollars of 400 of 400 tasks are not known" in dollars.sentence


def test_mistakes_in_a_policy_name_the_nearest_word(home: Path, tmp_path: Path) -> None:
    cases = {
        "ruls: [{rule: better}]": "did you mean 'rules'?",
        "rules: [{rule: better, populaton: x}]": "did you mean 'population'?",
        "rules: [{rule: not worse by more then .02}]": "did you mean 'not worse by more than .02'?",
        "rules: [{rule: cost at most 1.2 x, metric: token}]": "did you mean 'tokens'?",
        "rules: [{rule: better, level: 2}]": "less than or equal to 0.25",
        "rules: []": "at least one rule",
        "rules: [": "not valid YAML",
        "3": "must have keys",
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
    page = (ROOT / "docs" / "comparing.md").read_text()
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
