"""Run the study of language_model.yaml: does RL add to the cold start of a pretrained language model, on English gyms?

    userrl model fetch smollm2-135m
    python -m lab.studies.language_model --list              # the runs that are planned, and the hash of the plan
    python -m lab.studies.language_model wish                # the seeds of a gym, one after another
    python -m lab.studies.language_model wish --seeds 7-8
    python -m lab.studies.language_model --forgetting    # perplexity of a text, divergence and an answer, of the runs in scores.csv
    python -m lab.studies.language_model --tables            # the tables, from data/language-model alone

Each seed is an ordinary run of the home in $USERRL_HOME, with all stages. Its policies are then played once more at temperature 1.
Finished runs are not repeated, interrupted ones continue. Each adds its rows to scores.csv and tiers.csv in data/language-model.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.measure.interval import t_interval
from curricula import load
from lab.studies.study_rows import DATA, add_row, chosen, plan_hash, plans, read_plan, read_rows, study_arguments
from userrl.evaluation.planned import evaluate_here, plan_evaluation
from userrl.machine.home import quiet_process, runs_dir, warehouse_dir
from userrl.machine.pretrained import model_path
from userrl.run.plan import plan_run
from userrl.run.request import EvaluateRequest, TrainRequest
from userrl.stages.here import train_here
from userrl_core.number_format import with_error
from warehouse import open_warehouse

PLAN = Path(__file__).with_suffix(".yaml")
SCORES = DATA / "language-model" / "scores.csv"
TIERS = DATA / "language-model" / "tiers.csv"
FORGETTING = DATA / "language-model" / "forgetting.csv"
KEY = ("family", "seed", "policy", "temperature", "plan")
DEMONSTRATOR, BEFORE, BEST, LAST = "demonstrator", "SFT", "RL", "RL last step"
POLICIES = {DEMONSTRATOR: "demonstrator", BEFORE: "cold start", BEST: "RL, best on validation", LAST: "RL, last step"}
"""Policies in the tables, with their titles."""

BY_TIER = """
SELECT policy, tier, count(*) AS conversations, avg(score) AS score, avg(turns) AS turns
FROM trajectories WHERE run_id = $run AND phase = 'evaluate' AND admitted AND score IS NOT NULL GROUP BY ALL ORDER BY ALL
"""

PLAYED = """
WITH asked AS (
    SELECT traj_id, count(*) FILTER (choice = 'action') AS questions, count(*) FILTER (flags & 1 > 0) AS unreadable
    FROM turns WHERE run_id = $run AND stage = 'evaluate' GROUP BY traj_id
)
SELECT policy, count(*) AS conversations, avg(score) AS score, stddev_samp(score) / sqrt(count(*)) AS error,
       avg(turns) AS turns, avg(questions) AS questions, sum(unreadable) / sum(turns) AS unreadable
FROM trajectories JOIN asked USING (traj_id)
WHERE run_id = $run AND phase = 'evaluate' AND admitted AND score IS NOT NULL GROUP BY policy ORDER BY policy
"""


def main() -> int:
    """List or run the seeds of a gym, or print the tables."""
    parser = study_arguments("A language model before and after RL.")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--forgetting", action="store_true")
    given = parser.parse_args()
    plan = read_plan(PLAN)
    if given.tables:
        print("\n".join([*tables(), "", *by_tier(), "", *forgotten()]))
        return 0
    quiet_process()
    if given.forgetting:
        return forgetting(plan)
    print(f"plan {plan_hash(PLAN)}", file=sys.stderr)
    for family in chosen(plan, given.family):
        for seed in seeds(plan, family, given.seeds):
            request = asked(plan, family, seed)
            if given.listed or not given.family:
                print(family, seed, plan_run(request).run_id)
            else:
                done = train_here(plan_run(request), progress=_say)
                add(family, seed, 0.0, done.run, sum(done.cpu_seconds.values()))
                for policy, checkpoint in sampled_checkpoints(done.run):
                    played = evaluate_here(plan_evaluation(sampled(checkpoint, seed)))
                    add(family, seed, 1.0, played.run, sum(played.cpu_seconds.values()), policy)
    return 0


def seeds(plan: Mapping[str, Any], family: str, given: str | None) -> Iterator[int]:
    """Yield the plan's seeds of a gym, with those of a second look, or the argument's."""
    if given:
        first, last = map(int, given.split("-"))
    else:
        first, last = plan["seeds"]["first"], plan["second_look"].get(family, plan["seeds"])["last"]
    yield from range(first, last + 1)


def asked(plan: Mapping[str, Any], family: str, seed: int) -> TrainRequest:
    """Return the request of a run, from demonstrations to the evaluation."""
    return TrainRequest(
        recipe=plan["recipe"],
        profile=plan["profile"],
        seed=seed,
        overrides={**plan["settings"], **plan["families"][family]},
        wandb="off",
    )


def sampled_checkpoints(run: str) -> Iterator[tuple[str, Path]]:
    """Yield the policies that are played at temperature 1 too: the cold start and the last step of RL."""
    for policy, stage in ((BEFORE, "sft"), (LAST, "rl-1")):
        *_, last = sorted((runs_dir() / run / "stages" / stage / "checkpoints").glob("step-[0-9]*"))
        yield policy, last


def sampled(checkpoint: Path, seed: int) -> EvaluateRequest:
    """Return the request to play a checkpoint's test tasks at the temperature of training."""
    return EvaluateRequest(checkpoint=str(checkpoint), seed=seed, temperature=1.0)


def add(family: str, seed: int, temperature: float, run: str, spent: float, policy: str | None = None) -> None:
    """Add the rows of an evaluation, one for each policy. policy: its name in the data. None: the run's names."""
    with open_warehouse(warehouse_dir(), run=frozenset([run])) as warehouse:
        rows, tiers = warehouse.rows(PLAYED, run=run), warehouse.rows(BY_TIER, run=run)

    def named(row: Mapping[str, Any]) -> dict[str, Any]:
        own = {"family": family, "seed": seed, "policy": policy or row["policy"], "temperature": temperature}
        return own | {"plan": plan_hash(PLAN)}

    for row in rows:
        found = {key: round(value, 4) for key, value in row.items() if key != "policy"}
        add_row(SCORES, KEY, {**named(row), "run": run, **found, "cpu_seconds": round(spent)})
    for row in tiers:
        found = {key: round(row[key], 4) for key in ("conversations", "score", "turns")}
        add_row(TIERS, (*KEY, "tier"), {**named(row), "tier": row["tier"], **found})
    print(f"{run}: {spent:.0f} CPU-s", file=sys.stderr, flush=True)


def forgetting(plan: Mapping[str, Any]) -> int:
    """Check the fetched model, and each run's cold start and last step.

    Measured: the perplexity of a fixed text, the answer to a question, and the divergence on the text from the fetched model and
    from the run's cold start.
    """
    from userrl_core.training.local.convert import check  # imports torch, which only this needs

    played = {(row["family"], row["seed"], row["run"]) for row in read_rows(SCORES) if not row["temperature"]}
    runs = sorted(row for row in played if (runs_dir() / row[2]).is_dir())
    fetched = Path(model_path(load(plan["recipe"], profile=plan["profile"]).model.path or ""))
    folders = [("", "", "fetched", fetched)]
    folders += [(family, seed, *each) for family, seed, run in runs for each in sampled_checkpoints(run)]
    starts = {"fetched": fetched}
    for family, seed, policy, folder in folders:
        found = check(folder)
        row = {"family": family, "seed": seed, "policy": policy}
        answer = {"perplexity": round(found.perplexity, 2), "answer": " ".join(found.answer.split())}
        if policy == BEFORE:
            starts[BEFORE] = folder
        apart = {
            f"from {name}": round(divergence(folder, start), 4) for name, start in starts.items() if start != folder
        }
        add_row(FORGETTING, ("family", "seed", "policy"), {**row, **answer, **apart})
        print(*row.values(), *answer.values(), apart, file=sys.stderr, flush=True)
    return 0


def divergence(policy: Path, start: Path) -> float:
    """Return the Kullback-Leibler divergence of a policy from another one: nats per token, mean over the check's text."""
    import torch

    from userrl_core.training.config import ModelConfig
    from userrl_core.training.local.convert import TEXT
    from userrl_core.training.local.model import load_model
    from userrl_core.training.local.text.tokenizer import load_tokenizer

    ids = torch.tensor([load_tokenizer(start).encode(TEXT, add_special_tokens=False)])
    with torch.inference_mode():
        ours, theirs = (
            load_model(folder, ModelConfig(path=str(folder)))(input_ids=ids).logits[0].float().log_softmax(-1)
            for folder in (policy, start)
        )
        return float((ours.exp() * (ours - theirs)).sum(-1).mean())


def forgotten() -> Iterator[str]:
    """Yield a table of the checks of `forgetting`."""
    yield "| gym | seed | policy | perplexity | KL from the fetched model | from the cold start | answer |"
    yield "| --- | ---: | --- | ---: | ---: | ---: | --- |"
    for row in sorted(
        read_rows(FORGETTING), key=lambda row: (row["family"] or "", int(row["seed"] or 0), row["policy"] != BEFORE)
    ):
        policy = POLICIES.get(row["policy"], row["policy"])
        apart = (row.get(f"from {start}") for start in ("fetched", BEFORE))
        cells = " | ".join("" if value is None else f"{value:.3f}" for value in apart)
        yield f"| {row['family'] or ''} | {row['seed'] or ''} | {policy} | {row['perplexity']:.1f} | {cells} | {row['answer']} |"


def tables() -> Iterator[str]:
    """Yield a table of the scores of each run, and one of the gain from RL with Student's t limits over seeds."""
    plan, hashes = read_plan(PLAN), plans(PLAN)
    rows = [row for row in read_rows(SCORES) if row["plan"] in hashes]
    found = {
        (row["family"], row["seed"], row["temperature"], DEMONSTRATOR if "(" in row["policy"] else row["policy"]): row
        for row in rows
    }
    for family, seed, temperature, policy in list(found):  # the last step is not played twice if it is the best one
        if policy == BEST:
            found.setdefault((family, seed, temperature, LAST), found[family, seed, temperature, BEST])
    yield f"| gym | seed | decoding | {' | '.join(POLICIES.values())} | turns | questions |"
    yield "| --- | ---: | --- |" + " ---: |" * (len(POLICIES) + 2)
    for run in sorted({key[:3] for key in found}):
        played = [found.get((*run, policy)) for policy in POLICIES]
        scores = " | ".join(with_error(row["score"], row["error"], 3) if row else "" for row in played)
        ends = found[*run, BEFORE], found[*run, LAST]
        changes = " | ".join(" to ".join(f"{row[key]:.1f}" for row in ends) for key in ("turns", "questions"))
        yield f"| {run[0]} | {run[1]} | {_decoding(run[2])} | {scores} | {changes} |"
    yield ""
    yield "| gym | decoding | policy | seeds | gain over the cold start [limits] | each seed |"
    yield "| --- | --- | --- | --- | ---: | --- |"
    for family, temperature in sorted({(key[0], key[2]) for key in found}):
        for policy in (LAST, BEST):
            runs = sorted(key[1] for key in found if (key[0], *key[2:]) == (family, temperature, policy))
            for of_seeds, level in looks(plan, family, runs):
                pairs = [
                    [found[family, seed, temperature, each]["score"] for each in (BEFORE, policy)] for seed in of_seeds
                ]
                gains = np.array([after - before for before, after in pairs])
                gain = t_interval(gains, level)
                limits = f"{gain.estimate:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]" if gains.size > 1 else ""
                each = ", ".join(f"{value:+.3f}" for value in gains)
                yield (
                    f"| {family} | {_decoding(temperature)} | {POLICIES[policy]} | {_span(of_seeds)}, {100 * level:g} % "
                    f"| {limits} | {each} |"
                )


def looks(plan: Mapping[str, Any], family: str, runs: Sequence[int]) -> Iterator[tuple[Sequence[int], float]]:
    """Yield the seeds that are taken together, with the level of their limits.

    With a second look: the first seeds, the new ones, and all at the plan's level.
    """
    second = plan["second_look"].get(family)
    new = [seed for seed in runs if second and seed >= second["first"]]
    for of_seeds, level in (([seed for seed in runs if seed not in new], 0.95), (new, 0.95)):
        if of_seeds:
            yield of_seeds, level
    if new:
        yield runs, second["level"]


def by_tier() -> Iterator[str]:
    """Yield a table of the greedy scores by tier, one column a seed: the cold start and the last step."""
    rows = [row for row in read_rows(TIERS) if row["plan"] in plans(PLAN) and not row["temperature"]]
    found = {(row["family"], row["tier"], row["seed"], row["policy"]): row for row in rows}
    seeds = sorted({row["seed"] for row in rows})
    yield f"| gym | tier | tasks |{''.join(f' seed {seed} |' for seed in seeds)}"
    yield "| --- | --- | ---: |" + " ---: |" * len(seeds)
    for family, tier in sorted({key[:2] for key in found}):
        of_seeds = [[found.get((family, tier, seed, policy)) for policy in (BEFORE, LAST, BEST)] for seed in seeds]
        tasks = next(before["conversations"] for before, *_ in of_seeds if before)
        ends = [(before, last or best) for before, last, best in of_seeds]
        cells = " | ".join(f"{one['score']:.2f} to {two['score']:.2f}" if one and two else "" for one, two in ends)
        yield f"| {family} | {tier} | {tasks} | {cells} |"


def _span(seeds: Sequence[int]) -> str:
    return f"{seeds[0]} to {seeds[-1]}" if seeds[1:] else str(seeds[0])


def _decoding(temperature: float) -> str:
    return "sampled" if temperature else "greedy"


def _say(stage: str, line: dict[str, Any]) -> None:
    if "step" in line:
        print(stage, line["step"], line.get("score", ""), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
