"""A small evaluation of the demonstrator, played in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from userrl.evaluation.planned import plan_evaluation
from userrl.run.job import ProgressWriter
from userrl.run.request import EvaluateRequest
from userrl.worker.evaluate import evaluate
from warehouse import TurnLog


def demonstrated(home: Path, gyms: Sequence[str], **changes: Any) -> str:
    """The run's id, with ten tasks of each gym. changes: of what is asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("USERRL_HOME", str(home))
        asked = {"suite": "quick", "checkpoint": "demonstrator", "gyms": gyms, "tasks": 10, **changes}
        planned = plan_evaluation(EvaluateRequest.model_validate(asked))
        with planned.plan.begin() as run:
            job = planned.job(run)
            job.write()
            with TurnLog.open(job.warehouse, job.run_id) as log:
                progress = ProgressWriter(job.progress_file)
                evaluate(job, log, progress)
                progress.close()
    return job.run_id
