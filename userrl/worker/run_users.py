"""The user model during a run: the run serves it itself if its profile names GPUs for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from curricula.recipe import Recipe
from userrl.machine.home import home
from userrl.machine.slots import named, take
from userrl.run.tasks import PLAYED, own_user_url, users_of
from userrl_core.errors import ConfigError
from userrl_core.served.model_server import ServeOptions, default_python, serving
from userrl_core.training.model_files import check_stored
from userrl_core.training.shapes import shape_of
from userrl_core.training.verl.machine.step_time import gpus_per_copy


@contextmanager
def served_users(recipe: Recipe, say: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with each kind of stage before it begins. The first stage that needs the model starts
    its server.

    The server lasts until the block ends, for whatever reason. Nothing is started if the recipe names no GPUs for it. Raises
    ConfigError and UserError as `serving` does.
    """
    with ExitStack() as stack:
        running = False

        def ensure(kind: str) -> None:
            nonlocal running
            if not running and needs_server(recipe, kind):
                options = serve_options(recipe)
                check_stored(options.model)
                gpus = named(options.gpus)
                wait = f"waits for GPUs for {options.model}; in use: "
                stack.enter_context(
                    take(home() / "slots", len(gpus), gpus, waiting=lambda holders: say(wait + holders))
                )
                say(f"serving {options.model} as simulated user on port {options.port}")
                stack.enter_context(serving(options, home() / "serve" / str(options.port), say))
                running = True

        yield ensure


def needs_server(recipe: Recipe, kind: str) -> bool:
    """Return whether a stage of this kind (distill, sft, rl, evaluate) uses the model that the run itself serves."""
    url = own_user_url(recipe)
    if url is None or kind not in PLAYED:
        return False
    role, gyms = PLAYED[kind]
    users = users_of(recipe, gyms(recipe), role=role).values()
    return any(not isinstance(user, str) and user[1].get("base_url") == url for user in users)


def serve_options(recipe: Recipe) -> ServeOptions:
    """Return the server's options. Raises ConfigError if the profile names no model."""
    hardware = recipe.hardware
    if hardware.user_model is None:
        raise ConfigError(
            "model.not_served",
            "hardware.user_gpus is given, but hardware.user_model is not. Name the model to serve there.",
        )
    gpus = len(named(hardware.user_gpus)) or 1
    per_copy = copy_size(hardware.user_model, gpus, hardware.memory_gb)
    return ServeOptions(
        model=hardware.user_model,
        port=hardware.user_port,
        python=hardware.python or default_python(),
        tensor_parallel=per_copy,
        copies=gpus // per_copy,
        gpus=hardware.user_gpus,
        command=hardware.user_command,
    )


def copy_size(model: str, gpus: int, memory: float) -> int:
    """Return the GPUs per copy, given the memory of each in GB. All GPUs for a model of unknown shape."""
    try:
        return gpus_per_copy(shape_of(model), gpus, memory)
    except ConfigError:
        return gpus
