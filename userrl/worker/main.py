"""The worker process of a stage: ``python -m userrl.worker.main JOB.json``.

A flow starts one per stage, or forks it from one that has imported everything (``--fork-server DESCRIPTOR``). It does one
job, logs every turn, writes a progress line per step and leaves a result file. On SIGTERM it stops at once: the log is
sealed, and the next start continues from the last checkpoint. A failure is one sentence and exit status 1. A stage's own
modules, such as torch or verl, are imported after the environment is settled.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from userrl.machine.home import quiet_process
from userrl.run.job import ProgressWriter, StageJob
from userrl.worker.sinks import open_sink
from userrl_core.errors import LogError, TrainingError, UserRLError
from userrl_core.fork_server import serve
from userrl_core.processes import die_with_parent
from userrl_core.sink import Sink
from userrl_core.training.jobs import begun_marker
from userrl_core.training.local.threads import quiet_threads


class Stopped(BaseException):
    """Signals that SIGTERM arrived. It is not an Exception, so that no handler swallows it."""


def main(argv: list[str] | None = None) -> int:
    """Return the exit status: 0 done, 1 failed (one sentence), 2 wrong call, 143 stopped."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["--fork-server"]:
        preload()
        serve(int(arguments[1]), main)
        return 0
    if len(arguments) != 1:
        print("usage: python -m userrl.worker.main JOB.json", file=sys.stderr)
        return 2
    quiet_process()
    quiet_threads()
    signal.signal(signal.SIGTERM, _stop)
    die_with_parent()
    try:
        job = StageJob.read(Path(arguments[0]))
    except UserRLError as error:
        print(error.line, flush=True)
        return 1
    try:
        run(job)
    except Stopped:
        print(f"stopped in {job.stage}; the next start continues from the last checkpoint", flush=True)
        return 143
    except UserRLError as error:
        print(error.line, flush=True)
        return 1
    except OSError as error:
        if error.errno is None:
            raise
        sentence = f"{job.stage} could not continue: {error.strerror} ({error.filename or job.folder})."
        print(TrainingError("process.failed", sentence).line, flush=True)
        return 1
    return 0


def preload() -> None:
    """Import the modules of the local trainer's stages."""
    quiet_process()
    quiet_threads()
    _leave_out_unused()
    gc.disable()  # it would look through what the imports made, again and again: a tenth of their time
    if "transformers" not in sys.modules:  # else it has looked for SciPy, and fails without it
        sys.modules.setdefault("scipy", None)  # type: ignore[arg-type]  # transformers has it for object detection
    from userrl.worker import evaluate, explore, train  # noqa: F401
    from userrl_core.training.local import loop, sft  # noqa: F401

    if sys.modules.get("scipy", sys) is None:
        del sys.modules["scipy"]  # a gym's search may want it later
    gc.enable()


def run(job: StageJob) -> None:
    """Do the job with its sinks, and write the result."""
    progress = ProgressWriter(job.progress_file)
    began, cpu = time.monotonic(), time.process_time()
    sink = open_sink(job)
    try:
        _void_earlier_start(job, sink)
        sink.stage(job.stage, "started")
        result = _work(job)(job, sink, progress)
        used = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu}
        if result.shared_from is None:  # a shared cold start has the cost of the run that trained it
            result = result.model_copy(update=used)
        fields = {k: v for k, v in result.model_dump(mode="json").items() if isinstance(v, (int, float, str))}
        sink.stage(job.stage, "finished", **fields)
    except LogError:
        raise  # the log can no longer be written
    except BaseException as error:
        sink.stage(job.stage, "failed", reason=type(error).__name__)
        raise
    finally:
        sink.close()
        progress.close()
    job.finish(result)


def _void_earlier_start(job: StageJob, sink: Sink) -> None:
    """Mark the log of an earlier attempt at AgentEvol's exploration as superseded. It starts over, without a checkpoint.

    Evaluations and demonstrations continue where they were (`userrl.worker.played`), and training declares its own truncation.
    """
    if job.kind != "distill" or job.inputs.before is None:
        return
    marker = begun_marker(job.folder)
    if marker.exists():
        sink.event("rewind", stage=job.stage)
    marker.touch()


UNUSED = ("sklearn", "accelerate", "dill", "h2", "trio")
"""Packages that transformers, torch and httpx import if installed, for features that we do not use: a fifth of the CPU time of
all imports. Only peft needs the second, for training adapters.
"""


def _work(job: StageJob) -> Any:
    if job.backend == "local":
        _leave_out_unused()
    if job.kind == "distill":
        if job.inputs.before is not None:
            from userrl.worker.explore import explore

            return explore
        from userrl.worker.distill import distill

        return distill
    if job.kind == "evaluate":
        from userrl.worker.evaluate import evaluate

        return evaluate
    if job.backend == "verl":
        from userrl.worker import train_verl as trainer
    else:
        preload()
        if job.recipe.cold_start.lora is not None or job.recipe.algorithm.lora is not None:
            sys.modules.pop("accelerate", None)  # peft imports it
        from userrl.worker import train as trainer  # type: ignore[no-redef]
    return trainer.sft if job.kind == "sft" else trainer.rl


def _leave_out_unused() -> None:
    for package in UNUSED:
        sys.modules.setdefault(package, None)  # type: ignore[arg-type]  # makes Python's import fail in this process


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped


if __name__ == "__main__":
    sys.exit(main())
