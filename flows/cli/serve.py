"""``userrl serve-user``, ``serve-gym`` and ``serve-tools``: servers for a user model, a gym, and the tools of a domain."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.arguments import Host, Names
from userrl_core.errors import ConfigError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from flows.server.front_door import FrontDoor

SERVING = "userrl-serving"
"""The package with the servers of models, gyms and tools."""

app = typer.Typer(add_completion=False, help="Serve users, gyms and tools over HTTP.")
Port = Annotated[int, typer.Option("--port", min=1, max=65535, help="Port.")]
Idle = Annotated[float, typer.Option("--idle", min=1.0, help="Seconds after which an unused session is closed.")]


@app.command(name="serve-user")
def serve_user(
    model: Annotated[str, typer.Option("--model", help="A Hugging Face folder or name, such as Qwen/Qwen3-32B.")],
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port of the OpenAI-compatible server.")] = 8000,
    host: Host = "127.0.0.1",
    name: Names = None,
    python: Annotated[
        str | None,
        typer.Option("--python", help="Without --command: Python of vLLM's environment ($USERRL_VLLM_PYTHON)."),
    ] = None,
    tensor_parallel: Annotated[
        int, typer.Option("--tensor-parallel", min=1, help="Without --command: GPUs per copy of the model.")
    ] = 1,
    copies: Annotated[
        int | None,
        typer.Option(
            "--copies", min=1, help="Without --command: copies behind one address. Default: as many as fit on --gpus."
        ),
    ] = None,
    max_model_len: Annotated[
        int | None,
        typer.Option("--max-model-len", help="Without --command: maximum length of a conversation in tokens."),
    ] = None,
    memory: Annotated[
        float, typer.Option("--memory", min=0.05, max=0.99, help="Without --command: share of GPU memory to use.")
    ] = 0.9,
    gpus: Annotated[str | None, typer.Option("--gpus", help="GPUs to use, such as 6,7.")] = None,
    command: Annotated[
        str | None, typer.Option("--command", help="Start this server instead of vLLM; {port} is filled in.")
    ] = None,
    health: Annotated[
        str, typer.Option("--health", help="Path that answers 200 when the server is healthy.")
    ] = "/health",
    start_timeout: Annotated[
        float, typer.Option("--start-timeout", help="Seconds that the server may take to start.")
    ] = 900.0,
    tool_parser: Annotated[
        str,
        typer.Option(
            "--tool-parser",
            help="Without --command: vLLM's parser of tool calls (hermes for Qwen). none: requests with tools are refused.",
        ),
    ] = "hermes",
    extra: Annotated[
        list[str] | None,
        typer.Argument(help="Without --command: after --, more arguments for vLLM.", metavar="[-- ARGUMENTS]"),
    ] = None,
) -> None:
    """Serve a model as simulated user until Ctrl-C. The server waits until the model is healthy, and restarts it if it dies.

    Example: userrl serve-user --model Qwen/Qwen3-32B --gpus 6,7
    """
    from flows.server.front_door import bound, guarded, serving
    from userrl.machine.home import home
    from userrl.machine.slots import named
    from userrl.worker.relay import BODY_BYTES, relay
    from userrl_core.served.model_server import ServeOptions, Supervisor, default_python, free_port
    from userrl_core.training.model_files import check_stored

    if command is not None and "{port}" not in command:
        raise ConfigError(
            "argument.malformed",
            "--command must contain {port}, because the model's server listens on its own port behind ours.",
        )
    check_stored(model)
    options = ServeOptions(
        model=model,
        copies=copies or max(len(named(gpus)) // tensor_parallel, 1),
        port=free_port(),
        python=python or default_python(),
        tensor_parallel=tensor_parallel,
        max_model_len=max_model_len,
        memory=memory,
        gpus=gpus,
        command=command,
        health=health,
        start_timeout=start_timeout,
        tool_parser=None if tool_parser == "none" else tool_parser,
        extra=tuple(extra or ()),
    )
    supervisor = Supervisor(options, home() / "serve" / str(port), typer.echo)

    def stop(number: int, frame: FrameType | None) -> None:
        # In a thread, because a signal handler must not wait for the process that it stops.
        threading.Thread(target=supervisor.stop).start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    door = guarded(relay(f"http://127.0.0.1:{options.port}"), host, name or [], home(), body=BODY_BYTES)
    with bound(host, port) as door_socket:
        try:
            supervisor.start()
            with serving(door, door_socket):
                base_url = f"http://{(name or [host])[0]}:{port}/v1"
                typer.echo(f"use it with: base_url={base_url} model={model}{_token(door, home())} (Ctrl-C stops it)")
                supervisor.watch()
        finally:
            supervisor.stop()
    typer.echo("stopped")


@app.command(name="serve-model")
def serve_model(
    model: Annotated[str, typer.Argument(help="A model of this home such as smollm2-135m, or a checkpoint's folder.")],
    port: Port = 8300,
    host: Host = "127.0.0.1",
    name: Annotated[
        list[str] | None, typer.Option("--name", help="A name under which other machines reach it; may be repeated.")
    ] = None,
    max_batch: Annotated[int, typer.Option("--max-batch", min=1, help="Requests answered together.")] = 32,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", min=1, help="Longest reply where none is asked for.")
    ] = 256,
) -> None:
    """Serve a model over OpenAI's protocol from our own decoder, until Ctrl-C. Example: userrl serve-model smollm2-135m."""
    from curricula.host import cpu_dtype
    from flows.server.front_door import bound, guarded, serve
    from userrl.machine.home import home, quiet_process
    from userrl.machine.pretrained import model_path, model_title
    from userrl.machine.separate import part
    from userrl.machine.slots import threads

    serving = part(SERVING, "model_server")
    quiet_process()
    from userrl_core.training.config import ModelConfig
    from userrl_core.training.local.completion import Completer
    from userrl_core.training.local.state import load_checkpoint
    from userrl_core.training.local.threads import fix_threads

    fix_threads(threads(None))
    folder = model_path(model)
    config = ModelConfig.model_validate({"path": folder, "dtype": cpu_dtype()})
    with bound(host, port) as door_socket:
        completer = Completer(*load_checkpoint(Path(folder), config, "cpu"))
        server = serving.ModelServer(completer, (model, model_title(model)), max_batch=max_batch, max_tokens=max_tokens)
        door = guarded(serving.app_of(server), host, name or [], home())
        message = (
            f"{model_title(model)}: base_url=http://{(name or [host])[0]}:{port}/v1 model={model}{_token(door, home())} "
            "(Ctrl-C stops it)"
        )
        serve(door, door_socket, lambda: typer.echo(message))


@app.command(name="serve-gym")
def serve_gym(
    gym: Annotated[str, typer.Argument(help="The gym, such as travel.")],
    port: Port = 8100,
    host: Host = "127.0.0.1",
    name: Names = None,
    split: Annotated[str, typer.Option("--split", help="Split of the tasks: train, validation or test.")] = "test",
    tier: Annotated[str | None, typer.Option("--tier", help="Difficulty tier, for gyms that have tiers.")] = None,
    user_model: Annotated[
        str | None, typer.Option("--user-model", help="A served model that simulates the user.")
    ] = None,
    user_url: Annotated[str | None, typer.Option("--user-url", help="With --user-model: its /v1 address.")] = None,
    idle: Idle = 3600.0,
) -> None:
    """Serve a gym over HTTP until Ctrl-C, with AgentGym's routes (create, reset, step, observation, close) and OpenEnv's.

    Example: userrl serve-gym travel --port 8100
    """
    from userrl.machine.separate import part

    serving, openenv = part(SERVING, "gym_server"), part(SERVING, "openenv")
    user: Any = "rule" if user_model is None else ("openai", {"model": user_model, "base_url": user_url})
    server = serving.GymServer(gym, split, user, options={"tier": tier} if tier is not None else {}, idle=idle)
    served_gym = serving.app_of(server)
    served_gym.include_router(openenv.routes(server))
    _serve(served_gym, host, port, name, f"{gym}: {len(server.pool)} {split} tasks", "Ctrl-C stops it")


@app.command(name="serve-tools")
def serve_tools(
    domain: Annotated[str, typer.Argument(help="The domain: outfitter, bikes, retail or airline.")],
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder of the published data, for retail and airline ($USERRL_PUBLISHED_DATA)."),
    ] = None,
    port: Port = 8200,
    host: Host = "127.0.0.1",
    name: Names = None,
    idle: Idle = 3600.0,
) -> None:
    """Serve a domain's tools as REST routes and MCP tools until Ctrl-C. Each session has its own database.

    Example: userrl serve-tools outfitter
    """
    from userrl.machine.home import published_data
    from userrl.machine.separate import part
    from userrl_core.gyms.tau.tasks import OWN, domain_tasks, load_domain

    serving = part(SERVING, "tool_server")
    if data is not None and domain in OWN:
        raise ConfigError("argument.conflict", f"Domain '{domain}' is ours and reads no --data. Omit it.")
    root = (data or published_data()).resolve()
    tasks, folder = domain_tasks(domain, root / "tau-bench")
    server = serving.ToolServer(load_domain(domain, folder), folder, tasks, idle=idle)
    summary = f"{domain}: {len(server.domain.tools)} tools, {len(tasks)} tasks"
    _serve(
        serving.app_of(server), host, port, name, summary, "POST /sessions starts a session, Ctrl-C stops the server"
    )


def _serve(app: ASGIApp, host: str, port: int, names: list[str] | None, summary: str, note: str) -> None:
    """Serve an application until Ctrl-C, and say so once clients can connect."""
    from flows.server.front_door import bound, guarded, serve
    from userrl.machine.home import home

    door = guarded(app, host, names or [], home())
    message = f"{summary} at http://{host}:{port}{_token(door, home())} ({note})"
    with bound(host, port) as door_socket:
        serve(door, door_socket, lambda: typer.echo(message))


def _token(door: FrontDoor, home: Path) -> str:
    """Say where the token is stored. The token itself stays out of logs."""
    from flows.server.front_door import TOKEN, token_file

    if door.token is None:
        return ""
    return f", token in ${TOKEN}" if os.environ.get(TOKEN) else f", token in {token_file(home)}"
