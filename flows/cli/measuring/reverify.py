"""``userrl reverify``: stored conversations under another judge or changed rules; nothing is played.

SQL re-scores what follows from stored rewards (`rescore`); this runs the gym's rules and a judge over what was said. The result
is a run of its own in the warehouse, so that every query and comparison takes it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
import yaml

from flows.cli.arguments import Json, RunName, parse_user
from flows.cli.terminal import plain, plain_json
from userrl.evaluation.stored import stored_conversations
from userrl_core.number_format import number

AT_ONCE = 32


def reverify(
    run: RunName,
    judge: Annotated[str | None, typer.Option(help="Who judges: rule, openai, or JSON with kind and options.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="A changed rule: GYM.FIELD=VALUE; may be repeated.")
    ] = None,
    gym: Annotated[list[str] | None, typer.Option(help="Only this gym; may be repeated.")] = None,
    phase: Annotated[str, typer.Option(help="Which conversations: evaluate, validate, train, distill.")] = "evaluate",
    as_json: Json = False,
) -> None:
    """Score stored conversations again under another judge or changed rules. Nothing is played."""
    from curricula.load import from_resolved
    from userrl.machine.home import warehouse_dir
    from userrl.run.run import find, run_fields
    from userrl.run.tasks import gym_config, users_of
    from userrl_core.errors import ConfigError
    from userrl_core.gyms.base import parse_config
    from userrl_core.gyms.registry import gym_class
    from userrl_core.seeding import content_hash
    from warehouse import TurnLog

    if judge is None and not change:
        raise ConfigError("Say what is new: another judge with --judge, or a changed rule with --set GYM.FIELD=VALUE.")
    meant, changes = find(run), _changes(change or ())
    recipe = from_resolved(meant.info.resolved)
    stored = list(stored_conversations(meant.id, phase, gym))
    if not stored:
        raise ConfigError(f"Run {meant.id} has no finished conversation of phase {phase} to score again.")
    played = list(dict.fromkeys(each.task.gym for each in stored))
    if unknown := sorted(set(changes) - set(played)):
        raise ConfigError(
            f"--set names gym '{unknown[0]}', which run {meant.id} did not play; it has {', '.join(played)}."
        )
    config = gym_config(recipe, evaluation=phase == "evaluate")
    config = {name: {**config.get(name, {}), **changes.get(name, {})} for name in played}
    role = "evaluate" if phase == "evaluate" else "demonstrate" if phase == "distill" else "train"
    own = users_of(recipe, played, role=role)
    new = None if judge is None else _as_user(judge)
    judged_by = {name: own[name] if new is None else new for name in played}
    _refuse_lost_verdicts(stored, new)
    for name in played:
        parse_config(gym_class(name), config[name])
    label = f"reverify-{content_hash([meant.id, phase, judge, changes])[:10]}"
    run_id = f"{meant.id}-{label}"
    fields = run_fields(recipe, seed=meant.info.seed, backend=meant.info.backend, parent=meant.id)
    with TurnLog.open(warehouse_dir(), run_id, run_fields={**fields, "name": f"evaluate-{label}"}) as log:
        for stage in dict.fromkeys(each.context.stage for each in stored):
            log.event("rewind", stage=stage)  # a repeated command takes the place of what it did before
        log.tasks(each.task for each in stored)
        results = asyncio.run(_score(stored, judged_by, config, log))
    _show(meant.id, run_id, stored, results, as_json)


def _changes(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``tau.check_outputs=true`` by gym. Raises ConfigError for anything else."""
    from userrl_core.errors import ConfigError

    changes: dict[str, dict[str, Any]] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        name, dot, field = key.partition(".")
        if not equals or not dot or not field:
            raise ConfigError(f"Write a changed rule as tau.check_outputs=true, not '{text}'.")
        changes.setdefault(name.strip(), {})[field.strip()] = yaml.safe_load(value)
    return changes


def _as_user(text: str) -> Any:
    """A user as `run_episodes` takes it."""
    from curricula.spec import UserSetup
    from curricula.validation import validated

    values = parse_user(text)
    return validated(UserSetup, values if isinstance(values, dict) else {"kind": values}, "--judge").as_argument()


def _refuse_lost_verdicts(stored: Sequence[Any], judge: Any) -> None:
    """Verdicts of a model or a person are not stored: without a judge their conversations cannot be scored."""
    from userrl_core.errors import ConfigError
    from userrl_core.reverify import judges

    if judge is not None:
        return
    for each in {each.task.gym: each for each in stored if each.user != "rule"}.values():
        if judges(each.task.gym, each.task):
            raise ConfigError(
                f"Scores of gym '{each.task.gym}' depend on verdicts of {each.user}, which were not stored; name who judges "
                "now with --judge."
            )


async def _score(
    stored: Sequence[Any], judged_by: Mapping[str, Any], config: Mapping[str, dict[str, Any]], log: Any
) -> list[Any]:
    from userrl_core.reverify import Reverified, reverify
    from userrl_core.rollout import user_name

    limit = asyncio.Semaphore(AT_ONCE)

    async def one(each: Any) -> Reverified:
        judge = judged_by[each.task.gym]
        async with limit:
            result = await reverify(each, judge, config[each.task.gym], user_name(judge))
        log.begin(result.trajectory)
        for turn in result.trajectory.turns:
            log.turn(result.trajectory, turn)
        log.end(result.trajectory)
        return result

    return list(await asyncio.gather(*map(one, stored)))


def _show(old: str, new: str, stored: Sequence[Any], results: Sequence[Any], as_json: bool) -> None:
    """Before and after by gym and actor, and why conversations could not be scored; exit 1 where none could."""
    lines = []
    for gym, policy in dict.fromkeys((each.task.gym, each.context.policy) for each in stored):
        pairs = [
            (before, after)
            for before, after in zip(stored, results, strict=True)
            if (before.task.gym, before.context.policy) == (gym, policy)
        ]
        scored = [(before.score, after.trajectory.score) for before, after in pairs if not after.refused]
        lines.append(
            {
                "gym": gym,
                "policy": policy,
                "conversations": len(pairs),
                "before": _mean([before for before, _ in scored]),
                "after": _mean([after for _, after in scored]),
                "changed": sum(abs((a or 0.0) - (b or 0.0)) > 1e-9 for a, b in scored),
                "cut": sum(after.cut for _, after in pairs),
                "refused": dict(Counter(after.refused for _, after in pairs if after.refused)),
            }
        )
    if as_json:
        print(plain_json({"run": old, "reverified": new, "rows": lines}, indent=1))
    else:
        for line in lines:
            before, after = (number(line[key]) for key in ("before", "after"))
            cut = f", {line['cut']} would have gone on" if line["cut"] else ""
            print(
                f"{plain(line['policy'])}  {line['gym']}  {before} -> {after}  "
                f"({line['conversations']} conversations, {line['changed']} changed{cut})"
            )
            for reason, count in line["refused"].items():
                print(f"  not scored {count} times: {plain(reason)}")
        print(f"every turn: userrl sql \"from trajectories where run_id = '{new}'\"")
    if all(result.refused for result in results):
        raise typer.Exit(1)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
