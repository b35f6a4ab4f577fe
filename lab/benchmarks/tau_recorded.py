"""The 200 recorded airline conversations of tau-bench (gpt-4o, 50 tasks x 4) under each of our verdicts: pass^1 to pass^4.

    python -m lab.benchmarks.tau_recorded DIR      DIR: a copy of tau-bench's data, with trajectories_gpt-4o-airline.json

Tool calls are executed again in order, with the recorded arguments. A conversation that was not ended by the customer or a
transfer earns nothing, as in tau-bench. Limits are t limits over tasks, with attempts kept together.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.measure.checkpoints import pass_hat
from userrl_core.gyms import load_published
from userrl_core.gyms.tau.database import Database
from userrl_core.gyms.tau.stopping import STOP_TOKEN
from userrl_core.gyms.tau.tasks import load_domain
from userrl_core.gyms.tau.tools import TRANSFER, ToolError
from userrl_core.gyms.tau.verifier import Write, WritesVerdict, replay, verify

RECORDED = "trajectories_gpt-4o-airline.json"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One conversation: the recorded reward, whether it ended, and our verdict."""

    task: int
    trial: int
    reward: bool
    ended: bool
    verdict: WritesVerdict


RULES: dict[str, Callable[[Recorded], bool]] = {
    "recorded": lambda replay: replay.reward,
    "database and outputs (tau-bench)": lambda replay: (
        replay.ended and replay.verdict.database and not replay.verdict.missing
    ),
    "database": lambda replay: replay.ended and replay.verdict.database,
    "writes (TARL)": lambda replay: replay.ended and replay.verdict.writes,
    "writes and outputs": lambda replay: replay.ended and replay.verdict.writes and not replay.verdict.missing,
}


def conversations(root: Path) -> Iterator[Recorded]:
    """Yield every recorded conversation with its new score."""
    tasks = {task.id: task for task in load_published("tau", root)}
    for row in json.loads((root / RECORDED).read_text(encoding="utf-8")):
        payload = tasks[f"airline-{row['task_id']:03d}"].payload
        domain = load_domain("airline", payload["database"])
        database, writes, messages, over = Database(domain.base), [], [], False
        for message in row["traj"]:
            if message["role"] == "user":
                over = over or bool(STOP_TOKEN.search(message["content"]))
            if message["role"] != "assistant":
                continue
            messages.append(message.get("content") or "")
            for call in (message.get("tool_calls") or [])[:1]:
                name = call["function"]["name"]
                over = over or name == TRANSFER
                try:
                    write: Write = (name, json.loads(call["function"]["arguments"]))
                    domain.execute(database, *write)
                except ToolError:
                    continue
                writes += [write] if name in domain.writes else []
        verdict = verify(replay(domain, payload["actions"]), writes, database, payload["outputs"], messages)
        yield Recorded(row["task_id"], row["trial"], row["reward"] == 1.0, over, verdict)


def attempts(scored: list[Recorded], rule: Callable[[Recorded], bool]) -> list[list[int]]:
    """Return verdicts by task, then trial."""
    by_task: dict[int, list[int]] = {}
    for recorded in scored:
        by_task.setdefault(recorded.task, []).append(int(rule(recorded)))
    return [by_task[task] for task in sorted(by_task)]


def main(arguments: Any = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    scored = list(conversations(parser.parse_args(arguments).root))
    print(f"{'verdict':<34} {'passed':>6}" + "".join(f"{f'pass^{k}':>22}" for k in range(1, 5)))
    for name, rule in RULES.items():
        table = attempts(scored, rule)
        limits = [pass_hat(table, k) for k in range(1, 5)]
        print(
            f"{name:<34} {sum(map(sum, table)):>6}"
            + "".join(f"  {limit.estimate:>6.4f} [{limit.low:.3f}, {limit.high:.3f}]" for limit in limits)
        )
    for recorded in scored:
        other = [name for name, rule in RULES.items() if rule(recorded) != recorded.reward]
        if other:
            verdict = recorded.verdict
            detail = f"writes {verdict.writes}, database {verdict.database}, not told {list(verdict.missing)}"
            where = f"task {recorded.task} trial {recorded.trial}"
            print(f"{where}: recorded {int(recorded.reward)}, differs under {', '.join(other)} ({detail})")
    for recorded in scored:
        if not recorded.ended:
            print(f"task {recorded.task} trial {recorded.trial}: not ended within tau-bench's 30 steps; "
                  f"writes {recorded.verdict.writes}, database {recorded.verdict.database}")  # fmt: skip


if __name__ == "__main__":
    main()
