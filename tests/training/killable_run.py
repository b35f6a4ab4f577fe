"""A run of twelve steps in three stages, once in one go and once killed in every step: ``killable_run FOLDER START``.

Every attempt to run is a process of its own, forked from one that has only imported, so that imports are paid once. It
logs every finished attempt and every rewind as a JSON line, synced, and may kill itself in a step: ``after`` its
checkpoint, or ``within`` it, when its attempts are logged and its update is not done. Prints how each process ended.
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

from tests.training.toys import KeepingSink, ListCurriculum, rl_job, travel  # noqa: E402  threads first
from userrl_core.records import Trajectory  # noqa: E402
from userrl_core.training.config import AlgorithmConfig  # noqa: E402
from userrl_core.training.local.loop import train_rl  # noqa: E402

STAGES = ((4, 4), (8, 5), (12, 6))
"""Last step and horizon."""


class FileSink(KeepingSink):
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
        where = trajectory.where
        turns = [[t.number, t.token_ids, t.logprobs, t.reward] for t in trajectory.turns]
        self.write(
            {
                "stage": where.stage, "step": where.step, "phase": where.phase, "task": trajectory.task.key,
                "attempt": trajectory.attempt, "horizon": trajectory.horizon, "turns": turns,
            }
        )  # fmt: skip

    def credits(self, traj_id: int, shaped: Sequence[float], advantage: Sequence[float]) -> None:
        if self.ended[traj_id - 1].where.step == self.kill_within:
            os.kill(os.getpid(), signal.SIGKILL)

    def event(self, kind: str, **fields: Any) -> None:
        if kind == "rewind":
            self.write({"rewind": fields["step"]})


def main(folder: Path, start: Path) -> None:
    print(attempt(folder / "whole", start, 0, "after"))
    for step in range(1, 13):
        # In odd steps once the checkpoint is there, in even ones between rollout and update.
        print(attempt(folder / "killed", start, step, "after" if step % 2 else "within"))
    print(attempt(folder / "killed", start, 0, "after"))


def attempt(folder: Path, start: Path, kill_at: int, how: str) -> int:
    """Run in a child; returns its exit status, negative for the signal that ended it."""
    folder.mkdir(exist_ok=True)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        train(folder, start, kill_at, how)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def train(folder: Path, start: Path, kill_at: int, how: str) -> None:
    sink = FileSink(folder / "log.jsonl", kill_at if how == "within" else 0)

    def progress(step: int, total: int, metrics: Mapping[str, float]) -> None:
        if step == kill_at and how == "after":
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
