"""The sweep flow: Optuna over a named space, with trials as runs of a ``train`` deployment and the winner confirmed on fresh
seeds.
"""

from __future__ import annotations

from flows.server.settings import settle

settle()

import base64  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from dataclasses import dataclass, field  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from optuna import Study  # noqa: E402
from prefect import get_run_logger, runtime  # noqa: E402
from prefect.artifacts import create_image_artifact  # noqa: E402
from prefect.utilities.urls import url_for  # noqa: E402

from curricula.yaml_files import stem  # noqa: E402
from flows.server.keyless import keyless_flow  # noqa: E402
from flows.stages.artifacts import artifact_key, show_markdown  # noqa: E402
from flows.trials.launchers import DeploymentLauncher  # noqa: E402
from sweeps.results import table  # noqa: E402
from sweeps.space import Space  # noqa: E402
from userrl.run.request import SweepRequest, takes  # noqa: E402
from userrl.trials.document import sweep_document, trials_document  # noqa: E402
from userrl.trials.processes import ProcessLauncher  # noqa: E402
from userrl.trials.sweep import run_sweep  # noqa: E402


def flow_run_name() -> str:
    """Return the space's name, also for a space given as a file."""
    return stem(str(runtime.flow_run.parameters.get("space", "sweep")))


@keyless_flow(name="sweep", flow_run_name=flow_run_name, validate_parameters=True)
@takes(SweepRequest)
def sweep(request: SweepRequest) -> dict[str, Any]:
    """Run a named space to the end of its budget. Run again, it continues where it stopped."""
    launcher_of = DeploymentLauncher if request.workers == "deployments" else ProcessLauncher
    result = run_sweep(request, launcher_of, get_run_logger().info, _TrialsArtifact)
    _TrialsArtifact(result.space, result.study)(over=True)
    _show_pictures(result.space.name, result.pictures)
    return {
        "sweep": result.space.name,
        "best": result.best.overrides,
        "claim": result.best.claim,
        "trials": result.trials,
    }


@dataclass(slots=True)
class _TrialsArtifact:
    """The table of trials in Prefect, updated when a row changes. over: show the final document of the finished sweep."""

    space: Space
    study: Study
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, *, over: bool = False) -> None:
        rows = table(self.space, self.study, at_work=True)
        if over or rows != self.rows:
            self.rows = rows
            document = (
                sweep_document(self.space, self.study, at_work=False, address=_address)
                if over
                else trials_document(self.space, self.study, _address)
            )
            show_markdown(f"sweep-{self.space.name}", document.markdown(), f"sweep {self.space.name}")


def _address(handle: str) -> str | None:
    """Return the page of a trial's flow run, or None if the trial is a child process."""
    return None if ":" in handle else url_for("flow-run", obj_id=handle)


def _show_pictures(name: str, pictures: Sequence[Path]) -> None:
    key = artifact_key(f"sweep-{name}")
    for path in pictures:
        picture = base64.b64encode(path.read_bytes()).decode()
        create_image_artifact(f"data:image/png;base64,{picture}", key=f"{key}-{path.stem}")


if __name__ == "__main__":
    sweep()
