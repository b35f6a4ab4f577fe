"""Registration of the deployments of prefect.yaml through Prefect's client, a line each.

``python -m flows.server.deployments [NAME ...]``, without names all of them. `prefect deploy --all` registers the same. It takes
minutes on a busy machine, and sets schedules back to those of the file without a word.
"""

from __future__ import annotations

from flows.server.settings import settle

settle()

import asyncio  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence  # noqa: E402
from datetime import datetime, timedelta  # noqa: E402
from functools import cache  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from prefect import Flow  # noqa: E402
from prefect.client.orchestration import PrefectClient, get_client  # noqa: E402
from prefect.client.schemas.actions import DeploymentScheduleCreate  # noqa: E402
from prefect.client.schemas.objects import DeploymentSchedule  # noqa: E402
from prefect.exceptions import ObjectNotFound  # noqa: E402
from prefect.flows import load_flow_from_entrypoint  # noqa: E402
from prefect.schedules import Schedule  # noqa: E402
from prefect.utilities.callables import parameter_schema  # noqa: E402
from prefect.utilities.templating import apply_values  # noqa: E402
from pydantic import Field, PositiveFloat  # noqa: E402

from curricula.validation import validated  # noqa: E402
from curricula.yaml_files import read  # noqa: E402
from flows.server.schedule_text import when  # noqa: E402
from userrl_core.errors import ConfigError, UserRLError  # noqa: E402
from userrl_core.settings import Settings  # noqa: E402
from userrl_core.suggest import nearest  # noqa: E402

FILE = Path("prefect.yaml")


class Pool(Settings):
    """The work pool of a deployment."""

    name: str
    work_queue_name: str | None = None
    job_variables: dict[str, Any] = Field(default_factory=dict)


class Times(Settings):
    """A schedule of a deployment: a cron text, seconds, or a recurrence rule."""

    cron: str | None = None
    interval: PositiveFloat | None = None
    rrule: str | None = None
    timezone: str | None = None
    anchor_date: datetime | None = None
    day_or: bool = True
    slug: str | None = None
    active: bool = True
    parameters: dict[str, Any] = Field(default_factory=dict)

    def as_prefects(self) -> DeploymentScheduleCreate:
        """Return the schedule in Prefect's form."""
        fields = self.model_dump(exclude_none=True)
        if self.interval is not None:
            fields["interval"] = timedelta(seconds=self.interval)
        return DeploymentScheduleCreate.from_schedule(Schedule(**fields))


class Deployment(Settings):
    """A deployment of prefect.yaml, with the fields of Prefect's file that are read here."""

    name: str
    entrypoint: str
    work_pool: Pool
    description: str | None = None
    tags: list[str] = Field(default_factory=list)
    parameters: dict[str, Any] = Field(default_factory=dict)
    schedules: list[Times] = Field(default_factory=list)
    pull: list[dict[str, Any]] | None = None

    @property
    def label(self) -> str:
        """Flow and name, as Prefect shows them."""
        return f"{self.entrypoint.rpartition(':')[2]}/{self.name}"


def read_deployments(file: Path = FILE) -> list[Deployment]:
    """Return the deployments of prefect.yaml. Raises ConfigError for a field that is not read here."""
    if not file.is_file():
        raise ConfigError("file.missing", f"There is no {file} here. Run this in the project's folder.")
    document = read(file)
    deployments = document.get("deployments")
    if not isinstance(deployments, list) or not all(isinstance(row, Mapping) for row in deployments):
        raise ConfigError("file.unreadable", f"{file} has no list of deployments.")
    if step := next((name for name in ("build", "push") if document.get(name)), None):
        raise ConfigError(
            "recipe.unknown_key", f"{file}: '{step}' is not read here. Use `prefect deploy` for this file."
        )
    directory = {"prefect.deployments.steps.set_working_directory": {"directory": str(Path.cwd())}}
    pull = document.get("pull") or [directory]
    try:
        rows: Any = apply_values(deployments, dict(os.environ), remove_notset=False)
    except (TypeError, ValueError) as error:
        raise ConfigError("file.unreadable", f"{file} has a value that Prefect does not take: {error}.") from error
    return [validated(Deployment, {"pull": pull, **row}, f"{file}, deployment '{row.get('name')}'") for row in rows]


def chosen(names: Sequence[str], deployments: Sequence[Deployment]) -> list[Deployment]:
    """Return the deployments of these names, or all. Raises ConfigError for an unknown one."""
    by_label = {deployment.label: deployment for deployment in deployments}
    for name in names:
        if name not in by_label:
            raise ConfigError(
                "server.no_deployment",
                f"{FILE} has no deployment '{name}'{nearest(name, by_label)}. Add a line for it.",
            )
    return [by_label[name] for name in names or by_label]


async def register(deployments: Sequence[Deployment]) -> AsyncIterator[str]:
    """Register deployments one after the other. Yield a line after each, and one for each schedule that was kept."""
    async with get_client() as client:
        for deployment in deployments:
            server_schedules = await _known(client, deployment.label)
            schedules, differences = with_kept(deployment, server_schedules)
            flow = _flow(deployment.entrypoint)
            await client.create_deployment(
                flow_id=await client.create_flow_from_name(flow.name),
                name=deployment.name,
                version=flow.version,
                entrypoint=deployment.entrypoint,
                work_pool_name=deployment.work_pool.name,
                work_queue_name=deployment.work_pool.work_queue_name,
                job_variables=deployment.work_pool.job_variables,
                description=deployment.description or flow.description,
                tags=deployment.tags,
                parameters=deployment.parameters,
                parameter_openapi_schema=parameter_schema(flow).model_dump(exclude_unset=True),
                enforce_parameter_schema=True,
                schedules=schedules,
                pull_steps=deployment.pull,
            )
            yield f"{deployment.label}  {'registered' if server_schedules is None else 'registered again'}"
            for sentence in differences:
                yield f"  {sentence}"


async def _known(client: PrefectClient, label: str) -> Sequence[DeploymentSchedule] | None:
    """Return the schedules of a deployment on the server, or None for a new one."""
    try:
        return (await client.read_deployment_by_name(label)).schedules
    except ObjectNotFound:
        return None


def with_kept(
    deployment: Deployment, server_schedules: Sequence[DeploymentSchedule] | None
) -> tuple[list[DeploymentScheduleCreate], list[str]]:
    """Return the schedules of the file as the server's stand, on or off, with those that only the server has.

    The second result says what differs from the file.
    """
    schedules = [times.as_prefects() for times in deployment.schedules]
    return schedules, list(_keep(schedules, server_schedules or ()))


def _keep(schedules: list[DeploymentScheduleCreate], server_schedules: Sequence[DeploymentSchedule]) -> Iterator[str]:
    ours = {_key(schedule): schedule for schedule in schedules}
    for theirs in server_schedules:
        schedule = ours.get(_key(theirs))
        if schedule is None:
            schedules.append(DeploymentScheduleCreate(**theirs.model_dump(include=_KEPT)))
            yield f"kept the schedule {when(theirs.schedule)}, which {FILE} does not have"
        elif schedule.active != theirs.active:
            schedule.active = theirs.active
            yield f"the schedule {when(theirs.schedule)} stays {'on' if theirs.active else 'off'}"


_KEPT = {"schedule", "active", "parameters", "slug", "max_scheduled_runs"}


def _key(schedule: DeploymentScheduleCreate | DeploymentSchedule) -> str:
    return schedule.slug or when(schedule.schedule)


@cache
def _flow(entrypoint: str) -> Flow[..., Any]:
    return load_flow_from_entrypoint(entrypoint)


async def main(names: Sequence[str]) -> None:
    """Register the named deployments of prefect.yaml, or all."""
    deployments = chosen(names, read_deployments())
    async for line in register(deployments):
        print(line, flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1:]))
    except UserRLError as error:
        sys.exit(error.line)
