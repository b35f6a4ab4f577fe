"""The flow that reproduces a claim in miniature: its arms over paired seeds as ordinary runs, then its table and verdict."""

from __future__ import annotations

from flows.server.settings import settle

settle()

from typing import Any  # noqa: E402

from prefect import get_run_logger, runtime  # noqa: E402

from curricula.yaml_files import stem  # noqa: E402
from flows.server.keyless import keyless_flow  # noqa: E402
from flows.stages.artifacts import show_markdown  # noqa: E402
from flows.trials.launchers import DeploymentLauncher  # noqa: E402
from userrl.claims.document import claim_document  # noqa: E402
from userrl.claims.reproduction import reproduce_claim  # noqa: E402
from userrl.run.request import ReproduceRequest, takes  # noqa: E402
from userrl.trials.processes import ProcessLauncher  # noqa: E402


def flow_run_name() -> str:
    """Return the claim's name, also for a claim given as a file."""
    return stem(str(runtime.flow_run.parameters.get("claim", "claim")))


@keyless_flow(name="reproduce", flow_run_name=flow_run_name, validate_parameters=True)
@takes(ReproduceRequest)
def reproduce(request: ReproduceRequest) -> dict[str, Any]:
    """Run every arm of a claim over its seeds. Run again, it continues where it stopped and gives the same table.

    Returns the table as JSON, with its text.
    """
    launcher_of = DeploymentLauncher if request.workers == "deployments" else ProcessLauncher
    report = reproduce_claim(request, launcher_of, get_run_logger().info)
    document = claim_document(report)
    show_markdown(f"claim-{report.claim.name}", document.markdown(), f"claim {report.claim.name}")
    return {**report.as_json(), "text": document.text()}
