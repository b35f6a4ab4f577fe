"""A run of twelve steps in three stages, once uninterrupted and once killed in every step: ``killable_run FOLDER START``.

Every process is forked from one that has done the imports, which are slow. It logs every finished trajectory and every
rewind as a JSON line, synced, and may kill itself in a step: ``after`` its checkpoint, or ``within`` it, between the log of
its trajectories and its update. Prints the exit status of each process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from userrl_core.training.local.threads import quiet_threads

quiet_threads()

from tests.userrl_core.training.toys import ListCurriculum, RecordingSink, rl_job, travel  # noqa: E402  threads first
from userrl_core.records import Trajectory  # noqa: E402
from userrl_core.training.config import AlgorithmConfig  # noqa: E402
from userrl_core.training.local.loop import train_rl  # noqa: E402

STAGES = ((4, 4), (8, 5), (12, 6))
"""Last step and horizon."""


class FileSink(RecordingSink):
    def __init__(self, path: Path, kill_within: int) -> None:
        super().__init__()
        self.file = path.open("a", encoding="utf-8")
        self.kill_within = kill_within

    def write(self, row: dict[str, Any]) -> None:
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())

    def end(self, trajectory: Trajectory) -> None:
        super().end(trajectory)
        context = trajectory.context
        turns = [[t.number, t.token_ids, t.logprobs, t.reward] for t in trajectory.turns]
        self.write(
            {
                "stage": context.stage, "step": context.step, "phase": context.phase, "task": trajectory.task.key,
                "attempt": trajectory.attempt, "horizon": trajectory.horizon, "turns": turns,
            }
        )  # fmt: skip

    def credits(self, traj_id: int, shaped: Sequence[float], advantage: Sequence[float]) -> None:
        if self.ended[traj_id - 1].context.step == self.kill_within:
            os.kill(os.getpid(), signal.SIGKILL)

    def event(self, kind: str, **fields: Any) -> None:
        if kind == "rewind":
            self.write({"rewind": fields["step"]})


def main(folder: Path, start: Path) -> None:
    print(run_process(folder / "whole", start, 0, "after"))
    for step in range(1, 13):
        # In odd steps after the checkpoint, in even ones between rollout and update.
        print(run_process(folder / "killed", start, step, "after" if step % 2 else "within"))
    print(run_process(folder / "killed", start, 0, "after"))


def run_process(folder: Path, start: Path, kill_at: int, when: str) -> int:
    """Run in a child process; returns its exit status, negative for the signal that ended it."""
    folder.mkdir(exist_ok=True)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        train(folder, start, kill_at, when)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def train(folder: Path, start: Path, kill_at: int, when: str) -> None:
    sink = FileSink(folder / "log.jsonl", kill_at if when == "within" else 0)

    def progress(step: int, total: int, metrics: Mapping[str, float]) -> None:
        if step == kill_at and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)

    init, best, first = start, None, 1
    for number, (last, _) in enumerate(STAGES, 1):
        job = rl_job(
            folder, init, out_dir=folder / f"rl-{number}", first_step=first, last_step=last, best=best,
            validation=travel("validation", 0, 4), validate_every=3, validation_horizon=6,
            algorithm=AlgorithmConfig(
                group=4, batch=3, minibatches=2, lr=5e-4, warmup_steps=6, max_tokens=24, max_response_tokens=160
            ),
        )  # fmt: skip
        result = train_rl(job, ListCurriculum(travel(count=10), STAGES), sink, progress)
        init, best, first = result.checkpoint, result.best, last + 1
    (folder / "result.json").write_text(result.model_dump_json())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
