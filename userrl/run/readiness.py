"""Checks of whether a recipe runs on a machine. ``recipe show``, every flow and the tests ask this before anything starts.

A verdict is *runs*, *composes* or *refused*. Runs: the local backend, and nothing is missing. Composes: verl's part
is built and fits the machine's memory; only the machine itself can tell more. Refused: with one sentence that says
what is needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from curricula import Draft, PlannedStage, Recipe, draft
from curricula.data import SEARCHED, missing_search_key, none_published
from curricula.feasibility import check_credit
from curricula.gate import SPENT
from curricula.host import AUTO, Host, choose_profile, needs
from curricula.schedule import GroupSchedule
from curricula.spec import FOLDER
from userrl.machine.home import published_data
from userrl.machine.pretrained import model_path
from userrl.machine.slots import named, slots
from userrl.run.estimate import FITTED, gpu_needs, hours, warning
from userrl.run.request import Backend
from userrl.run.tasks import (
    check_only,
    check_own_file,
    count_published,
    demonstrated_gyms,
    evaluation_gyms,
    judge_of,
    own_user_url,
    users_of,
)
from userrl_core.errors import ConfigError, TaskError, UserRLError
from userrl_core.gyms.registry import PACKAGED, names, unavailable
from userrl_core.judging.judge import is_judged, judge_server
from userrl_core.served.client import ChatServer
from userrl_core.served.health import served_users
from userrl_core.sharegpt import read_conversations
from userrl_core.training.verl.step_plan import refuse_stage
from userrl_core.user_path import user_path

PACKAGES = ("verl", "vllm", "sglang")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
Kind = Literal["runs", "composes", "refused"]
Reason = Literal[
    "", "environment", "judge", "settings", "backend", "package", "machine", "data", "key", "user", "model"
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for a recipe on a machine.

    reason: the subject of a refusal. code: its error code. sentence: the missing requirement.
    """

    kind: Kind
    reason: Reason = ""
    sentence: str = ""
    code: str = ""

    def enforce(self) -> None:
        """Raise ConfigError with the sentence of a refusal."""
        if self.kind == "refused":
            raise ConfigError(self.code, self.sentence)


class _Refusal(Exception):
    def __init__(self, reason: Reason, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.verdict = Verdict("refused", reason, sentence, code)


def here() -> Host:
    """Describe this machine as flows see it: usable GPUs, importable packages, and keys that are set."""
    gpus = sum(slot.gpu is not None for slot in slots())
    return Host(
        gpus=gpus,
        gpu_memory=_gpu_memory() if gpus else None,
        packages=frozenset(name for name in PACKAGES if find_spec(name) is not None),
        keys=frozenset(name for name, value in os.environ.items() if value),
    )


def resolve(
    recipe: str | Path, profile: str | None = AUTO, overrides: dict[str, Any] | None = None, *, check: bool = True
) -> Recipe:
    """Return a request's recipe for this machine, with its profile chosen and its epochs counted. Raises ConfigError."""
    drafted = drafted_here(recipe, profile, overrides)
    return checked_here(drafted) if check else drafted.recipe


def drafted_here(recipe: str | Path, profile: str | None = AUTO, overrides: dict[str, Any] | None = None) -> Draft:
    """Return the recipe before its gyms are queried, so that a verdict can come first. Raises ConfigError."""
    drafted = draft(
        recipe,
        choose_profile(recipe, profile, here),
        overrides,
        data_folder=published_data(),
        keys=[name for name, value in os.environ.items() if value],
    )
    if drafted.recipe.alarms:
        from userrl.run.alarms import check_alarms  # imported here: it imports DuckDB

        check_alarms(drafted.recipe.alarms)
    return drafted


def checked_here(drafted: Draft, *, trains: bool = True) -> Recipe:
    """Return the recipe after the checks that need its gyms or its tasks (`Draft.checked`). Raises ConfigError."""
    recipe = drafted.checked(count_published, trains=trains)
    check_only(recipe)
    return recipe


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The part of a request that checks need in addition to the recipe. stages: the RL stages that will train."""

    backend: Backend
    init_from: str
    stages: Sequence[PlannedStage]


def findings(
    recipe: Recipe,
    host: Host,
    *,
    backend: Backend | Literal["auto"] = "auto",
    init_from: str = "",
    stages: Sequence[PlannedStage] | None = None,
) -> Iterator[tuple[str, Verdict | None]]:
    """Yield each preflight check in `CHECKS` by name, with its refusal, if any. Plans, `recipe show` and `doctor` share this list.

    init_from: a checkpoint instead of the recipe's model. stages: the requested RL stages; default: all.
    """
    trained = recipe.planned_stages if stages is None else stages
    options = RunOptions(recipe.hardware.backend if backend == "auto" else backend, init_from, trained)
    for name, check in CHECKS.items():
        try:
            check(recipe, host, options)
        except _Refusal as refusal:
            yield name, refusal.verdict
            if refusal.verdict.reason == "environment":
                return  # the other checks ask the gyms
        else:
            yield name, None


def verdict(
    recipe: Recipe,
    host: Host,
    *,
    backend: Backend | Literal["auto"] = "auto",
    init_from: str = "",
    stages: Sequence[PlannedStage] | None = None,
) -> Verdict:
    """Return whether the recipe trains on this machine: the first refusal of `findings`, if any."""
    for _, refusal in findings(recipe, host, backend=backend, init_from=init_from, stages=stages):
        if refusal is not None:
            return refusal
    chosen = recipe.hardware.backend if backend == "auto" else backend
    return Verdict("composes" if chosen == "verl" else "runs")


def playing_verdict(recipe: Recipe, host: Host, kind: Literal["distill", "evaluate"]) -> Verdict:
    """Return whether demonstrations or held-out tasks can be played on this machine, without training."""
    try:
        _refuse_unplayable(recipe, demonstrated_gyms(recipe) if kind == "distill" else evaluation_gyms(recipe))
        _refuse_unserved(recipe, host, (kind,))
    except _Refusal as refusal:
        return refusal.verdict
    return Verdict("runs")


CHECKS: dict[str, Callable[[Recipe, Host, RunOptions], None]] = {
    "environments": lambda recipe, host, options: _refuse_unplayable(
        recipe, (*recipe.training_gyms, *evaluation_gyms(recipe))
    ),
    "judge": lambda recipe, host, options: _refuse_judge(recipe),
    "settings": lambda recipe, host, options: _refuse_settings(
        recipe, options.backend, options.init_from, options.stages
    ),
    "addresses": lambda recipe, host, options: _refuse_loopback(recipe) if options.backend == "verl" else None,
    "machine": lambda recipe, host, options: _refuse_machine(recipe, host, options.backend),
    "data, keys and served models": lambda recipe, host, options: _refuse_unserved(
        recipe, host, ("distill", "rl", "evaluate")
    ),
}
"""Every preflight check, in the order in which a run is refused. A check raises `_Refusal`."""

# -- what may be missing --------------------------------------------------------------------------------------------


def _refuse_unplayable(recipe: Recipe, gyms: tuple[str, ...]) -> None:
    """Refuse gyms that this version lacks, or that lack something on this machine."""
    missing = [gym for gym in dict.fromkeys(gyms) if gym not in (*names(), *PACKAGED)]
    if missing:
        missing_names = ", ".join(missing)
        raise _Refusal(
            "environment",
            "gym.no_such_gym",
            f"Recipe '{recipe.name}' needs the environment{'s' * (len(missing) > 1)} {missing_names}, which this "
            f"version does not have. Choose a recipe on one of {', '.join(sorted(names()))}.",
        )
    for gym in dict.fromkeys(gyms):
        if reason := unavailable(gym):
            raise _Refusal("environment", "gym.not_installed", reason)


def _refuse_judge(recipe: Recipe) -> None:
    """Refuse a judge that has nothing to judge."""
    gyms = recipe.training_gyms
    if not gyms or any(map(is_judged, gyms)):
        return
    named_gyms = f"none of its training gyms ({', '.join(gyms)}) has gold calls to"
    if recipe.judge is not None:
        sentence = f"has a judge of turns, and {named_gyms} judge by. Train on tau too, or set judge to null."
    elif recipe.intervention is not None:
        sentence = f"interrupts wrong steps, and {named_gyms} compare them with. Train on tau too, or set intervention to null."
    else:
        return
    raise _Refusal("judge", "judge.no_gold_calls", f"Recipe '{recipe.name}' {sentence}")


def _refuse_settings(recipe: Recipe, backend: Backend, init_from: str, trained: Sequence[PlannedStage]) -> None:
    """Refuse settings that the trainer does not support on any machine."""
    try:
        check_credit(recipe)
        if backend == "verl" and trained:
            for planned in trained:
                refuse_stage(partial(recipe.stage_of, branch=planned.branch), planned.first, planned.last)
            _refuse_gates(recipe)
    except ConfigError as error:
        raise _Refusal("settings", error.code, str(error)) from error
    if recipe.model.path is not None and not init_from and recipe.hardware.ray_address is None:
        try:
            model_path(recipe.model.path)
        except ConfigError as error:
            raise _Refusal("model", error.code, str(error)) from error
    for holds, sentence in _backend_limits(recipe, backend, init_from, trained):
        if holds:
            raise _Refusal("backend", "training.backend_cannot", sentence)
    try:
        if trained:
            gpu_needs(recipe, backend, init_from)
    except ConfigError as error:
        raise _Refusal("backend", error.code, str(error)) from error


def _backend_limits(
    recipe: Recipe, backend: Backend, init_from: str, trained: Sequence[PlannedStage]
) -> Iterator[tuple[object, str]]:
    """Yield what the chosen backend cannot train, each with its sentence."""
    if backend == "local":
        yield (
            recipe.algorithm.kl_reward_coef > 0,
            f"algorithm.kl_reward_coef is {recipe.algorithm.kl_reward_coef:g}, and only verl subtracts this penalty from the "
            "rewards. Set it to 0 (algorithm.kl_coef is the penalty in the loss, which both backends have), or set backend to "
            "verl.",
        )
        return
    yield (
        not (recipe.model.path or init_from),
        f"verl trains a checkpoint, and profile {recipe.profile} trains a model from scratch. Set model.path, or use a profile "
        "such as qwen3-8b.",
    )
    yield (
        recipe.model.calls == "lean",
        "model.calls lean adds tokens to the model before training, which only the local backend does. Set it to line or json, "
        "or backend to local.",
    )
    yield (
        recipe.evolve is not None,
        "AgentEvol alternates sampling and training, which only the local backend does. Set backend to local, or use profile "
        "h200-1.",
    )
    yield (
        any(planned.stage.timed for planned in trained),
        "A stage has its length in seconds, which only the local backend measures. Give it in steps or epochs, or set backend "
        "to local.",
    )
    yield (
        recipe.algorithm.name == "dpo",
        "dpo compares pairs of conversations, which only the local backend does. Set algorithm.name to grpo, or backend to local.",
    )
    yield (
        recipe.algorithm.batch_tokens is not None,
        "algorithm.batch_tokens fills steps by tokens, which only the local backend does. Set it to null and give stages in "
        "steps, or set backend to local.",
    )


def _refuse_gates(recipe: Recipe) -> None:
    """Raise ConfigError for a schedule whose gates need values that verl does not report at the end of a step."""
    if isinstance(recipe.schedule, GroupSchedule):
        raise ConfigError(
            "training.backend_cannot",
            f"Schedule {recipe.schedule.model_dump()['kind']} gives the groups of a step different horizons, which only the local "
            "backend does. Choose another schedule, or train with backend=local.",
        )
    gates = [level.gate for level in recipe.schedule.levels() if level.gate is not None]
    if counted := next((gate.unit for gate in gates if gate.unit != "steps"), None):
        raise ConfigError(
            "training.backend_cannot",
            f"The schedule's gate counts {counted}, which verl does not report at the end of a step. Let it count steps, or train "
            "with backend=local.",
        )
    unknown = [name for name in ("entropy", *SPENT) if any(getattr(gate, name) is not None for gate in gates)]
    if unknown:
        raise ConfigError(
            "training.backend_cannot",
            f"The schedule's gate uses {' and '.join(unknown)}, which verl does not report at the end of a "
            "step. Use success, plateau, signal, length or at_most, or train with backend=local.",
        )


def _refuse_machine(recipe: Recipe, host: Host, backend: Backend) -> None:
    hardware = recipe.hardware
    if hardware.ray_address is not None:
        return  # the machine is another one
    if recipe.profile is None and backend == "local" and recipe.model.path is not None and not hardware.gpus:
        raise _Refusal(
            "machine",
            "profile.none_fits",
            f"Recipe '{recipe.name}' as published names no machine. Choose a profile, such as laptop or h200-1.",
        )
    gpus = hardware.node_gpus if backend == "verl" else hardware.gpus
    on_gpus = gpus if hardware.device != "cpu" else 0
    if on_gpus and not (hardware.gpus or host.gpus):
        raise _Refusal(
            "machine",
            "profile.none_fits",
            "verl trains on a GPU, and this machine has none. Start the run on a GPU host (docs/gpu.md), or with backend=local.",
        )
    if not host.has(hardware) or on_gpus + len(named(hardware.user_gpus)) > max(host.gpus, on_gpus):
        users = f" and {len(named(hardware.user_gpus))} for the user model" if hardware.user_gpus else ""
        raise _Refusal(
            "machine",
            "profile.none_fits",
            f"Profile {recipe.profile} needs {needs(hardware)}{users}, and this machine has "
            f"{host.described()}. Choose a profile that fits (profile=auto does), or change hardware.gpus and "
            "hardware.gpu_memory.",
        )
    if backend != "verl" or hardware.python is not None:
        return
    required = ["verl", *([hardware.engine] if on_gpus else [])]
    missing = [package for package in required if package not in host.packages]
    if missing:
        raise _Refusal(
            "package",
            "install.missing",
            f"Backend verl needs {' and '.join(missing)}, which cannot be imported here. Install them "
            "(docs/gpu.md), or set hardware.python to the interpreter of verl's environment.",
        )


def _refuse_loopback(recipe: Recipe) -> None:
    """Refuse a user server on the loopback address if several nodes need it."""
    nodes = recipe.hardware.nodes
    servers = served_users(users_of(recipe, recipe.training_gyms, role="train")) if nodes > 1 else ()
    for server in servers:
        if server.base_url is not None and urlsplit(server.base_url).hostname in LOOPBACK:
            raise _Refusal(
                "user",
                "model.bad_address",
                f"{nodes} nodes cannot all reach {server.model} at {server.base_url}, because this address "
                "means each node itself. Start 'userrl serve-user --host ADDRESS --name NAME' and set "
                "hardware.user_url to http://NAME:PORT/v1 instead of hardware.user_gpus.",
            )


def _refuse_unserved(recipe: Recipe, host: Host, kinds: tuple[str, ...]) -> None:
    """Refuse missing published tasks, keys and served models that stages of these kinds need."""
    if (sentence := none_published(recipe)) is not None:
        raise _Refusal("data", "task.none_imported", sentence)
    for gym in dict.fromkeys((*recipe.training_gyms, *evaluation_gyms(recipe))):
        published = recipe.gym(gym).published
        if published not in (None, "imported", FOLDER) and not host.has_data(str(published)):
            raise _Refusal(
                "data",
                "file.missing",
                f"gyms.{gym}.published names {published}, which cannot be found. Give the right path.",
            )
        if str(published).endswith(".jsonl"):
            try:
                check_own_file(gym, str(published), recipe.gym(gym).config)
            except UserRLError as error:
                raise _Refusal("data", error.code, str(error)) from None
    chats = recipe.cold_start.data
    if "distill" in kinds and chats is not None and (user_path(chats).is_dir() or not user_path(chats).exists()):
        raise _Refusal("data", "file.missing", f"cold_start.data names {chats}, which is no file. Give the right path.")
    if "distill" in kinds and chats is not None:
        try:
            read_conversations(user_path(chats), recipe.played_gyms)
        except TaskError as error:
            raise _Refusal("data", error.code, str(error)) from None
    gyms = (*evaluation_gyms(recipe),) * ("evaluate" in kinds) + (*recipe.training_gyms,) * ("rl" in kinds)
    for gym in (gym for gym in SEARCHED if gym in gyms and recipe.gym(gym).published == FOLDER):
        if missing := missing_search_key(gym, recipe.gym(gym).config, host.keys):
            raise _Refusal(
                "key",
                "gym.no_key",
                f"In gym '{gym}' {missing}. Set it, or data: published-or-ours to play our own questions.",
            )
    if "OPENAI_BASE_URL" in host.keys:
        return
    for role, server in _servers(recipe, kinds):
        if server.base_url is not None:
            continue
        if server.model == recipe.hardware.user_model:
            raise _Refusal(
                "user",
                "model.not_served",
                f"{role} is {server.model}, and no server of it is given. Set hardware.user_gpus to serve it "
                "on GPUs of this machine, hardware.user_url to its address, or OPENAI_BASE_URL.",
            )
        if server.api_key_env not in host.keys:
            raise _Refusal(
                "key",
                "model.no_key",
                f"{role} is {server.model}, which needs a key. Set {server.api_key_env}, or OPENAI_BASE_URL for your own server.",
            )


def server_of(model: str | None, base_url: str | None, **more: Any) -> ChatServer | None:
    """Return the server of a model, or None without a model. Raises ConfigError if its key is not set."""
    if model is None:
        return None
    server = ChatServer(model=model, base_url=base_url, **more)
    refuse_missing_key(server)
    return server


def refuse_missing_key(server: ChatServer) -> None:
    """Raise ConfigError for a served model whose server needs a key that is not set."""
    if server.base_url is None and not os.environ.get(server.api_key_env):
        raise ConfigError(
            "model.no_key",
            f"Model {server.model} is served by OpenAI, which needs a key. Set {server.api_key_env}, or give "
            "the address of its server with --base-url.",
        )


def forecast(recipe: Recipe, gpus: int) -> str | None:
    """Return how long a whole run will take, as a sentence. None for a short run where the estimate is not known to hold: with a
    GPU, a pretrained or served model, AgentEvol, or a gym that it was not compared with.
    """
    if (long := warning(recipe, gpus)) is not None or gpus:
        return long
    gyms = {*recipe.training_gyms, *evaluation_gyms(recipe)}
    own = recipe.model.path is None and recipe.evolve is None and gyms <= FITTED
    expected = hours(recipe) if own and not any(_servers(recipe, ("distill", "rl", "evaluate"))) else None
    if expected is None:
        return None
    return f"This run will take about {max(1, round(60 * expected))} min on two quiet cores (within a factor of 2)."


def _servers(recipe: Recipe, kinds: tuple[str, ...]) -> Iterator[tuple[str, ChatServer]]:
    distils = (
        "distill" in kinds
        and recipe.cold_start.data is None
        and (recipe.cold_start.enabled or recipe.model.path is None)
    )
    if distils and recipe.demonstrations.policy != "scripted":
        yield "The demonstrator", recipe.demonstrations.chat_server
    if "rl" in kinds and (judge := judge_server(judge_of(recipe))):
        yield "The judge of turns", judge
    if "rl" in kinds and (step_verifier := judge_server(recipe.intervention)):
        yield "The verifier of steps", step_verifier
    roles = [("demonstrate", "The user of demonstrations", demonstrated_gyms(recipe))] * distils
    roles += [("train", "The user in training", recipe.training_gyms)] * ("rl" in kinds)
    roles += [("evaluate", "The user in the evaluation", evaluation_gyms(recipe))] * ("evaluate" in kinds)
    for role, role_name, gyms in roles:
        for server in sorted(served_users(users_of(recipe, gyms, role=role)), key=lambda server: server.model):
            if server.base_url is None or server.base_url != own_user_url(recipe):
                yield role_name, server


def _gpu_memory() -> float | None:
    """Return the memory of the smallest GPU in GB, or None if the driver does not report it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        return min(float(line) for line in done.stdout.split()) * 1.048576e-3
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
