"""``userrl schedule list|on|off``: the deployments that start on a schedule."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.arguments import Json
from flows.cli.terminal import plain_json
from flows.server.schedule_text import when

if TYPE_CHECKING:
    from prefect.client.orchestration import PrefectClient
    from prefect.client.schemas.responses import DeploymentResponse

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Schedules of deployments: list, on, off.")

Name = Annotated[str, typer.Argument(help="A deployment, such as sweep/horizon.")]


@app.command("list")
def list_schedules(as_json: Json = False) -> None:
    """List every schedule on the server, and whether it is on.

    Example: userrl schedule list
    """
    rows = asyncio.run(_rows())
    if as_json:
        print(plain_json(rows, indent=1))
        return
    for row in rows:
        print(f"{'on ' if row['active'] else 'off'}  {row['deployment']:24} {row['when']}")
    print("Next: userrl schedule on NAME, or off" if rows else "No deployment has a schedule; `userrl deploy` first.")


@app.command()
def on(name: Name) -> None:
    """Turn a deployment's schedule on. It needs a worker at that time, and may take hours (its budget limits them).

    Example: userrl schedule on sweep/horizon
    """
    _switch(name, active=True)


@app.command()
def off(name: Name) -> None:
    """Turn a deployment's schedule off. A run in progress continues, and the deployment can still be started by hand.

    Example: userrl schedule off sweep/horizon
    """
    _switch(name, active=False)


def _switch(name: str, *, active: bool) -> None:
    times = asyncio.run(_set(name, active))
    print(f"{name} is {'on' if active else 'off'}: {', '.join(times)}")


async def _rows() -> list[dict[str, Any]]:
    async with _client() as client:
        return [
            {"deployment": name, "active": schedule.active and not deployment.paused, "when": when(schedule.schedule)}
            for name, deployment in await _scheduled(client)
            for schedule in deployment.schedules
        ]


async def _set(name: str, active: bool) -> list[str]:
    from userrl_core.errors import ConfigError
    from userrl_core.suggest import nearest

    async with _client() as client:
        deployments = dict(await _scheduled(client))
        if name not in deployments:
            raise ConfigError(
                "server.no_deployment",
                f"The server has no deployment '{name}' with a schedule{nearest(name, list(deployments))}. `userrl "
                "schedule list` shows them, and `userrl deploy` creates them.",
            )
        for schedule in deployments[name].schedules:
            await client.update_deployment_schedule(deployments[name].id, schedule.id, active=active)
        return [when(schedule.schedule) for schedule in deployments[name].schedules]


def _client() -> PrefectClient:
    """Return a client of the running server. Raises ConfigError if no server runs."""
    from flows.server.own_server import need_server
    from flows.server.settings import settle

    need_server()
    settle()
    from prefect.client.orchestration import get_client

    return get_client()


async def _scheduled(client: PrefectClient) -> Sequence[tuple[str, DeploymentResponse]]:
    flows = {flow.id: flow.name for flow in await client.read_flows()}
    scheduled = [d for d in await client.read_deployments() if d.schedules]
    return sorted(((f"{flows[d.flow_id]}/{d.name}", d) for d in scheduled), key=lambda pair: pair[0])
