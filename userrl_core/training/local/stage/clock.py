"""The seconds of a stage's steps, where they decide when the stage ends or a gate opens.

A step's seconds are written down before any decision uses them. A restart after a kill repeats some steps. It uses
the seconds written the first time, so it makes the same decisions and the stage ends at the same step.
"""

from __future__ import annotations

import time

import torch

from userrl_core.json_files import GrowingLines, append_line
from userrl_core.training.jobs import RlJob

CPU, GPU = "seconds/cpu/sum", "seconds/gpu/sum"


class StepClock:
    """Seconds per step of one stage, one line per step in ``clock.jsonl`` of the stage's folder."""

    def __init__(self, job: RlJob) -> None:
        self._job = job
        self._path = job.out_dir / "clock.jsonl"
        self._taken = {int(line["step"]): line for line in GrowingLines(self._path)} if self._path.exists() else {}

    def start(self) -> None:
        """Start the time of a step."""
        self._marks = [time.perf_counter()]
        self._cpu_started = time.process_time()

    def mark(self) -> None:
        """Note that the rollout is over, or the update."""
        self._marks.append(time.perf_counter())

    def used(self, step: int) -> dict[str, float]:
        """Return a step's processor and GPU seconds. A repeated step keeps the seconds of the first time."""
        cpu, gpu = time.process_time() - self._cpu_started, self._gpu_seconds()
        if not self._job.timed:
            return {CPU: cpu, GPU: gpu}
        # Written before a decision uses it. A restart that repeats the step then decides the same.
        line = self._taken.get(step)
        if line is None:
            line = self._taken[step] = {"step": step, "cpu": cpu, "gpu": gpu}
            append_line(self._path, line)
        return {CPU: float(line["cpu"]), GPU: float(line["gpu"])}

    def parts(self, agent_tokens: int) -> dict[str, float]:
        """Return the seconds of rollout and update, and the sampled tokens per second of rollout."""
        started, played, updated = self._marks
        return {
            "seconds/rollout/sum": played - started,
            "seconds/update/sum": updated - played,
            "rollout/tokens/per_second": agent_tokens / max(played - started, 1e-9),
        }

    def over(self, step: int) -> bool:
        """Return whether the stage ends with this step: at its last step, or at its limit of seconds."""
        if step >= self._job.last_step or self._job.seconds is None:
            return step >= self._job.last_step
        return self._sum(step) >= self._job.seconds[1]

    def total(self, step: int) -> int:
        """Return the run's last step. For a stage limited in seconds, estimate it from the pace up to this step."""
        job, steps_done = self._job, step - self._job.first_step + 1
        if job.seconds is None:
            return job.total_steps or job.last_step
        return job.first_step - 1 + max(steps_done, round(steps_done * job.seconds[1] / max(self._sum(step), 1e-9)))

    def _sum(self, step: int) -> float:
        """Return the seconds of the stage's steps up to this one, of the kind that limits it."""
        kind = self._job.seconds[0] if self._job.seconds else "cpu"
        return sum(float(line[kind]) for n, line in self._taken.items() if self._job.first_step <= n <= step)

    def _gpu_seconds(self) -> float:
        """Return the GPU seconds since the start of the step; 0 on a CPU."""
        if self._job.device == "cpu":
            return 0.0
        torch.cuda.synchronize()  # kernels run on after the call that started them
        return time.perf_counter() - self._marks[0]
