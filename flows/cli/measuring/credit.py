"""``userrl audit credit``: what turns are worth to a frozen policy, and how far each credit rule agrees.

The table goes into the warehouse as a run of its own: a metric per rule and measure, and an event with the settings.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.arguments import Json
from flows.cli.terminal import plain, plain_json

if TYPE_CHECKING:
    from flows.cli.measuring.frozen import Frozen
    from userrl_core.audit.agreement import Measures
    from userrl_core.audit.credit import Audit
    from userrl_core.measure.interval import Interval

GROUPS, GROUP, K = 40, 8, 8
"""From the prototype: more groups beat more continuations."""


def credit(
    who: Annotated[
        list[str], typer.Argument(metavar="WHO...", help="Runs, or folders of their checkpoints, such as the SFT's.")
    ],
    gym: Annotated[str | None, typer.Option(help="Where; a run's only training gym by default.")] = None,
    groups: Annotated[int, typer.Option(min=2, help="Training tasks, a group of trajectories each.")] = GROUPS,
    group: Annotated[int, typer.Option(min=2, help="Trajectories of a task.")] = GROUP,
    k: Annotated[int, typer.Option("--k", min=1, help="Continuations of a prefix in either half.")] = K,
    horizon: Annotated[int | None, typer.Option(help="Most agent turns; the recipe's last stage's.")] = None,
    goal: Annotated[
        str, typer.Option(help="What a turn is worth, in the table: sum (of rewards), r2g, or the gym's score.")
    ] = "sum",
    loss: Annotated[
        str, typer.Option(help="Loss aggregation in the table: trajectory_mean or token_mean.")
    ] = "trajectory_mean",
    seed: Annotated[int, typer.Option(help="Chooses the tasks and every draw.")] = 0,
    as_json: Json = False,
) -> None:
    """Hold every credit rule against what turns were worth, from continuations of real conversations."""
    from typing import get_args

    from flows.cli.measuring.frozen import frozen
    from userrl_core.audit.credit import GOALS
    from userrl_core.audit.rules import Aggregation
    from userrl_core.errors import ConfigError

    if goal not in GOALS:
        raise ConfigError(f"--goal is {', '.join(GOALS)}, not '{goal}'.")
    if loss not in get_args(Aggregation):
        raise ConfigError(f"--loss is {' or '.join(get_args(Aggregation))}, not '{loss}'.")
    shown = []
    for each in [frozen(name) for name in who]:
        where = _gym(each, gym)
        turns = horizon or _horizon(each)
        began, cpu = time.perf_counter(), time.process_time()
        found = asyncio.run(_audit(each, where, turns, groups, group, k, seed))
        spent = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
        settings = {"gym": where, "horizon": turns, "groups": groups, "group": group, "k": k, "seed": seed, **spent}
        run_id = _store(each, found, settings)
        shown.append(_result(each, found, settings, run_id))
        if not as_json:
            _show(each, found, settings, goal, loss, run_id)
    if as_json:
        print(plain_json(shown, indent=1))


def _gym(frozen: Frozen, gym: str | None) -> str:
    from userrl_core.errors import ConfigError

    trained = tuple(frozen.recipe.training_gyms)
    if gym is None and len(trained) != 1:
        raise ConfigError(f"{frozen.run} was trained on {', '.join(trained)}; choose one with --gym.")
    return gym or trained[0]


def _horizon(frozen: Frozen) -> int:
    stages = frozen.recipe.stages
    return (stages[-1].horizon if stages else None) or frozen.recipe.evaluate.horizon


async def _audit(frozen: Frozen, gym: str, horizon: int, groups: int, n: int, k: int, seed: int) -> Audit:
    from flows.run.tasks import sample, tasks_of
    from userrl_core.audit.credit import audit
    from userrl_core.seeding import derive_seed

    credit = frozen.recipe.credit
    tasks = sample(tasks_of(frozen.recipe, gym, "train"), groups, "audit", seed)
    return await audit(
        tasks,
        frozen.policy(derive_seed("audit", seed)),
        frozen.setting((gym,)),
        horizon=horizon,
        n=n,
        k=k,
        gamma=credit.gamma,
        curvature=credit.k,
        seed=derive_seed("audit", seed),
        progress=_progress if sys.stderr.isatty() else None,
    )


def _progress(done: int, total: int) -> None:
    print(f"\rcontinuations from {done} of {total} prefixes\x1b[K", end="\n" if done == total else "", file=sys.stderr)


def _store(frozen: Frozen, found: Audit, settings: dict[str, Any]) -> str:
    from flows.machine.home import warehouse_dir
    from flows.run.run import run_fields
    from userrl_core.seeding import content_hash
    from warehouse import TurnLog

    asked = {key: value for key, value in settings.items() if not key.endswith("seconds")}
    label = f"audit-credit-{content_hash([frozen.id, asked])[:10]}"
    run_id = f"{frozen.run}-{label}"
    fields = run_fields(frozen.recipe, seed=frozen.seed, backend="local", parent=frozen.run)
    numbers = {f"audit/{goal}/reliability": value for goal, value in found.reliability.items()}
    for goal, rows in found.measures.items():
        for row in rows:
            rule = row.rule.name.replace("/", ".").replace(" ", ".")
            numbers |= {f"audit/{goal}.{rule}/{key}": value for key, value in _numbers(row).items()}
        numbers |= {f"audit/{goal}.worth/{key}": value for key, value in _by_kind(found.kinds[goal]).items()}
    with TurnLog.open(warehouse_dir(), run_id, run_fields={**fields, "name": label}) as log:
        log.event("rewind", stage="audit")  # a repeated command takes the place of what it did before
        log.event("credit_audit", stage="audit", checkpoint=frozen.id, identity=found.identity, **settings)
        log.metrics(numbers, stage="audit", step=0)
    return run_id


def _numbers(row: Measures) -> dict[str, float]:
    """One number per measure and limit; those that are not defined are left out."""
    numbers = {"silent": row.silent, "gap": row.gap, "true_gap": row.true_gap, "mean": row.mean, "rms": row.rms}
    numbers |= {"reliability": row.reliability, "significant": float(row.significant)}
    numbers |= {"push": row.push.group, "push_turn": row.push.turn, "silent_below": row.push.silent}
    for name in ("cosine", "within", "between", "wrong"):
        numbers |= _with_limits(name, getattr(row, name))
    return {key: value for key, value in numbers.items() if math.isfinite(value)} | _by_kind(row.kinds)


def _by_kind(kinds: dict[str, Interval]) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for kind, interval in kinds.items():
        numbers |= _with_limits(f"kind_{kind.replace(' ', '_')}", interval)
    return {key: value for key, value in numbers.items() if math.isfinite(value)}


def _with_limits(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _result(frozen: Frozen, found: Audit, settings: dict[str, Any], run_id: str) -> dict[str, Any]:
    return {
        "checkpoint": frozen.id,
        "stored_as": run_id,
        **settings,
        "trajectories": found.trajectories,
        "turns": found.turns,
        "continuations": found.continuations,
        "identity": found.identity,
        "reliability": {name: value if math.isfinite(value) else None for name, value in found.reliability.items()},
        "refused": found.refused,
        "worth": {goal: _by_kind(kinds) for goal, kinds in found.kinds.items()},
        "rules": {goal: {row.rule.name: _numbers(row) for row in rows} for goal, rows in found.measures.items()},
    }


def _show(frozen: Frozen, found: Audit, settings: dict[str, Any], goal: str, loss: str, run_id: str) -> None:
    from userrl_core.audit.agreement import RANKED_FROM
    from userrl_core.audit.credit import ranked

    print(
        f"{plain(frozen.label)} at {settings['gym']}, horizon {settings['horizon']}: {found.tasks} tasks x {settings['group']}, "
        f"{found.turns} turns, {found.continuations} continuations, {settings['cpu_seconds']:.0f} CPU-s; the sum identity holds "
        f"within {found.identity:.0e}"
    )
    reliabilities = ", ".join(f"{name} {value:.2f}" for name, value in found.reliability.items())
    print(f"split-half reliability of what turns were worth, at K {settings['k']}: {reliabilities}")
    rows = ranked(found, goal, loss)
    if not found.reliability[goal] >= RANKED_FROM:
        print(
            f"  too little to rank rules by ({RANKED_FROM} is needed): rules stand in no order; give it more --groups or --k"
        )
        rows = [row for row in found.measures[goal] if row.rule.aggregation == loss]
    print(
        f"{goal}, {loss}".ljust(26)
        + "cosine [95 %]          reliab.  within  between  wrong  silent  on-stop (true)    mean    rms  push (turn)"
    )
    for row in rows:
        print(
            f"{row.rule.name.rpartition(' ')[0]:26}{_limits(row.cosine):22}{_two(row.reliability):>8}{_two(row.within.estimate):>8}"
            f"{_two(row.between.estimate):>9}{_two(row.wrong.estimate):>7}{_two(row.silent):>8}"
            f"{_two(row.gap):>9} ({_two(row.true_gap)}){_three(row.mean):>9}{_three(row.rms):>7}"
            f"{_two(row.push.group):>6} ({_two(row.push.turn)})"
        )
    kinds = found.kinds[goal]
    if len(kinds) > 1:
        titles = "".join(f"{kind:>22}" for kind in kinds)
        print(
            f"by what turns do, in RMS{titles}\n{'worth':26}{''.join(f'{_limits(kinds[kind]):>22}' for kind in kinds)}"
        )
        for row in rows:
            cells = "".join(f"{_limits(row.kinds[kind]):>22}" for kind in kinds)
            print(f"{row.rule.name.rpartition(' ')[0]:26}{cells}")
    for name, why in found.refused.items():
        if name.endswith(loss):
            print(f"{name.rpartition(' ')[0]}: not possible here ({plain(why)})")
    significant = max((row.significant for row in rows), default=0)
    print(
        f"wrong and silent: of the {significant} turns whose worth is beyond two standard errors; intervals over tasks"
    )
    print(f"all of it: userrl sql \"select name, value from metrics where run_id = '{run_id}'\"")


def _limits(interval: Any) -> str:
    return f"{_two(interval.estimate)} [{_two(interval.low)}, {_two(interval.high)}]"


def _two(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}".replace("0.", ".", 1)


def _three(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}".replace("0.", ".", 1)
