"""``userrl serve-user`` and ``userrl serve-gym``: a model that plays users, and a gym that others may play, over HTTP."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False, help="Serve users and gyms over HTTP.")


@app.command(name="serve-user")
def serve_user(
    model: Annotated[str, typer.Option("--model", help="Hugging Face folder or name, e.g. Qwen/Qwen3-32B.")],
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port of the OpenAI-compatible server.")] = 8000,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    python: Annotated[
        str | None, typer.Option("--python", help="Interpreter of vLLM's environment ($USERRL_VLLM_PYTHON).")
    ] = None,
    tensor_parallel: Annotated[int, typer.Option("--tensor-parallel", min=1, help="GPUs for one copy.")] = 1,
    max_model_len: Annotated[
        int | None, typer.Option("--max-model-len", help="Longest conversation in tokens.")
    ] = None,
    memory: Annotated[float, typer.Option("--memory", min=0.05, max=0.99, help="Share of GPU memory.")] = 0.9,
    gpus: Annotated[str | None, typer.Option("--gpus", help="Which GPUs, e.g. 6,7.")] = None,
    command: Annotated[
        str | None, typer.Option("--command", help="Another server in place of vLLM; {port} is filled in.")
    ] = None,
    health: Annotated[str, typer.Option("--health", help="Path that answers 200 when all is well.")] = "/health",
    start_timeout: Annotated[float, typer.Option("--start-timeout", help="Seconds until it must answer.")] = 900.0,
) -> None:
    """Serve a model until Ctrl-C: waits for health, restarts it with pauses when it dies, stops it at the end."""
    from flows.machine.home import home
    from flows.serving.user_server import ServeOptions, Supervisor, default_python

    options = ServeOptions(
        model=model,
        port=port,
        host=host,
        python=python or default_python(),
        tensor_parallel=tensor_parallel,
        max_model_len=max_model_len,
        memory=memory,
        gpus=gpus,
        command=command,
        health=health,
        start_timeout=start_timeout,
    )
    supervisor = Supervisor(options, home() / "serve" / str(port), typer.echo)

    def stop(number: int, frame: FrameType | None) -> None:
        # From a thread: a signal handler must not wait for the process that it stops.
        threading.Thread(target=supervisor.stop).start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        supervisor.start()
        typer.echo(f"use it with: base_url={options.base_url} model={model} (Ctrl-C stops it)")
        supervisor.watch()
    finally:
        supervisor.stop()
    typer.echo("stopped")


@app.command(name="serve-gym")
def serve_gym(
    gym: Annotated[str, typer.Argument(help="The gym, such as travel.")],
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port.")] = 8100,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    split: Annotated[str, typer.Option("--split", help="train, validation or test.")] = "test",
    tier: Annotated[str | None, typer.Option("--tier", help="Difficulty tier, where the gym has tiers.")] = None,
    user_model: Annotated[str | None, typer.Option("--user-model", help="A served model plays the user.")] = None,
    user_url: Annotated[str | None, typer.Option("--user-url", help="Its /v1 address.")] = None,
) -> None:
    """Serve a gym in the shape of AgentGym's servers (create, reset, step, observation, close) until Ctrl-C."""
    import uvicorn

    from flows.serving.gym_server import GymServer, app_of

    user: Any = "rule" if user_model is None else ("openai", {"model": user_model, "base_url": user_url})
    server = GymServer(gym, split, user, options={"tier": tier} if tier else {})
    application = app_of(server)
    typer.echo(f"{gym}: {len(server.pool)} {split} tasks at http://{host}:{port} (Ctrl-C stops it)")
    uvicorn.run(application, host=host, port=port, log_level="warning")
