"""The fingerprint of an evaluation's protocol: a row of settings for each gym, and one hash.

The settings are columns of the table ``protocols``. `SETTINGS` has their order, by how much they are known to matter. A
setting that is not known is None.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from curricula.recipe import Recipe
from userrl.run.job import Actor, server_of
from userrl.run.tasks import evaluation_gyms, gym_config, users_of
from userrl_core.errors import ConfigError
from userrl_core.gyms import prompt
from userrl_core.gyms.base import Gym, parse_config
from userrl_core.gyms.prompt import opening_messages, turns_left_note
from userrl_core.gyms.registry import gym_class, part, released_module
from userrl_core.gyms.released_texts import hashes, text_hash
from userrl_core.interact import tool_schema
from userrl_core.json_files import portable
from userrl_core.records import Task
from userrl_core.seeding import content_hash
from userrl_core.served.client import ChatServer
from userrl_core.training.jobs import User
from warehouse import reference

Row = dict[str, str | None]
SCRIPTED = "scripted"
"""The value of the settings of a model that the scripted demonstrator does not have."""
SAMPLING = ("temperature", "top_p", "max_tokens")
OF_MACHINE = ("database", "prompt", "tool")
"""Fields of a task's payload that say where its data is on this machine, or hold the agent's prompt."""
OF_HOST = {"database", "store", "web_key_env", "web_timeout", "web_retries", "servers"}
"""Fields of a gym's config that are about the machine."""
JUDGED = ("travel", "intention", "turtle", "persuade", "telepathy", "search")
"""Gyms in which a judgement of messages enters the reward. It is the user's model that judges."""
MAKERS = ("openai.com", "azure.com", "anthropic.com", "googleapis.com", "openrouter.ai")
"""Hosts that sell models which their makers do not publish."""
_CLOSED = re.compile(r"(gpt-\d|chatgpt|o\d|claude|gemini)", re.IGNORECASE)
_SERVER = frozenset(ChatServer.model_fields)


@cache
def settings() -> dict[str, str]:
    """Return every setting with the reason why it matters, those known to matter most first."""
    path = Path(reference.__file__).with_name("setting_ranks.csv")
    with path.open(encoding="utf-8", newline="") as file:
        return {row["setting"]: row["matters"] for row in csv.DictReader(file)}


def fingerprints(recipe: Recipe, actor: Actor, tasks: Sequence[Task]) -> list[Row]:
    """Return a row for each evaluated gym, with the columns of the table ``protocols``. tasks: those that are played."""
    gyms = evaluation_gyms(recipe)
    users = users_of(recipe, gyms, role="evaluate")
    configs = gym_config(recipe, evaluation=True)
    rows = []
    for gym in gyms:
        of_gym = [task for task in tasks if task.gym == gym]
        if of_gym:
            rows.append(_row(recipe, actor, gym, of_gym, users[gym], configs.get(gym, {})))
    return rows


def protocol_hash(row: Mapping[str, str | None]) -> str:
    """Return the hash of a row's settings."""
    return content_hash({name: row.get(name) for name in settings()})[:16]


def continued_protocol(row: Row, stored: Mapping[str, str | None]) -> Row:
    """Return the protocol of a gym of which an earlier attempt played a part. stored: that attempt's row, or {}.

    A setting that has changed is None, and so is the hash. Without a stored row the answer is {}, because nobody knows what the
    earlier version played with.
    """
    if not stored:
        return {}
    stored = _as_of_today(stored)
    stored = {**stored, "protocol_hash": protocol_hash(stored)}
    return {name: value if stored[name] == value else None for name, value in row.items()}


def reverified_protocol(stored: Mapping[str, str | None], options: Mapping[str, Any], judge: User | None) -> Row:
    """Return a stored protocol with another judge or changed rules. options: the gym's config. judge: None keeps the judge.

    The hash is None if the stored one is, because then a setting is not known.
    """
    row: Row = {name: stored[name] for name in ("policy", "checkpoint", "gym", "texts", *settings())}
    row["gym_settings"] = _gym_settings(str(row["gym"]), options)
    if judge is not None and row["judge"] != "none":
        row["judge"] = _user_model(*(judge if isinstance(judge, tuple) else (judge, {})))
    row["protocol_hash"] = None if stored["protocol_hash"] is None else protocol_hash(row)
    return row


def _row(recipe: Recipe, actor: Actor, gym: str, tasks: Sequence[Task], user: Any, options: Mapping[str, Any]) -> Row:
    gym_type = gym_class(gym)
    kind, of_user = user if isinstance(user, tuple) else (user, {})
    model, texts = "none", {}
    if gym_type.users:
        model = _user_model(kind, of_user)
        texts = _user_texts(gym, of_user) if kind == "openai" else {}
    released = of_user.get("prompts", "ours") == "released"
    agent_texts = _agent_texts(gym_type, recipe, tasks, actor.native)
    row: Row = {
        "gym": gym,
        "tasks": _tasks(tasks),
        "task_versions": content_hash(sorted(_version(task) for task in tasks))[:8],
        "user_model": model,
        "user_prompts": f"{'released' if released else 'ours'} {text_hash(texts)[:8]}" if texts else "none",
        "user_behaviour": _json({k: v for k, v in of_user.items() if k not in {*_SERVER, "prompts", "texts"}}),
        "user_sampling": _json(_sampling(gym, kind, of_user)) if texts else "none",
        "judge": "none" if gym not in JUDGED else model if texts else "rule",
        "gym_settings": _gym_settings(gym, options),
        "horizon": str(recipe.evaluate.horizon),
        "agent_prompt": f"{'native' if actor.native else recipe.model.prompt_style} {text_hash(agent_texts)[:8]}",
        **_agent(recipe, actor, tasks, gym_type),
        "format_errors": recipe.on_format_error,
        "attempts": str(recipe.evaluate.attempts),
    }
    row["protocol_hash"] = protocol_hash(row)
    row["texts"] = _json({"agent": agent_texts, "user": texts})
    return row


def _gym_settings(gym: str, options: Mapping[str, Any]) -> str:
    """Return the gym's config as text, without what says nothing about playing: the machine, and the scripted demonstrator."""
    config = parse_config(gym_class(gym), options)
    of_demonstrator = {name for name in type(config).model_fields if name.startswith("demonstrator")}
    return _json(config.model_dump(mode="json", exclude=OF_HOST | of_demonstrator))


def _as_of_today(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row whose gym settings have today's fields. What an earlier version had no field for has its default.

    The row of another program's gym, or with a field that has gone, is returned as it is.
    """
    stored = row.get("gym_settings")
    try:
        return {**row, "gym_settings": _gym_settings(str(row.get("gym")), json.loads(stored))} if stored else row
    except (ConfigError, ValueError):
        return row


def _user_model(kind: str, options: Mapping[str, Any]) -> str:
    return _model_name(options) if kind == "openai" else kind


def _model_name(options: Mapping[str, Any]) -> str:
    """Return the name of a served model. A maker's model that another server claims to be is marked."""
    name = str(options.get("model", ChatServer().model))
    url = options.get("base_url") or os.environ.get("OPENAI_BASE_URL")
    host = urlsplit(str(url)).hostname or "" if url else ""
    is_makers = f".{host}".endswith(tuple(f".{maker}" for maker in MAKERS))
    is_claimed = bool(url) and not is_makers and _CLOSED.match(name) is not None
    return f"{name} (own server)" if is_claimed else name


def _tasks(tasks: Sequence[Task]) -> str:
    sources = "+".join(sorted({task.source for task in tasks}))
    splits = "+".join(sorted({task.split for task in tasks}))
    return f"{sources} {splits} {len(tasks)} {content_hash(sorted(task.id for task in tasks))[:8]}"


def _version(task: Task) -> str:
    return content_hash({key: value for key, value in task.payload.items() if key not in OF_MACHINE})


def _user_texts(gym: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the hash of each prompt of a served user."""
    if options.get("prompts") == "released":
        return hashes(released_module(gym).read_texts(Path(options["texts"])))
    try:
        return _constants(part(gym, "llm_user"))
    except ModuleNotFoundError:
        return {}


@cache
def _constants(module: ModuleType) -> dict[str, str]:
    """Return the hash of each constant text of a module."""
    return {k: text_hash(v) for k, v in vars(module).items() if isinstance(v, str) and k.strip("_").isupper()}


def _sampling(gym: str, kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's sampling settings. Those that the gym's own user sets are its constants."""
    server = ChatServer(**{key: value for key, value in options.items() if key in _SERVER})
    values = {name: getattr(server, name) for name in SAMPLING}
    if gym == "tau" and options.get("prompts") == "released":
        values |= {name: options.get(name) for name in ("temperature", "max_tokens")}
    if gym == "search" and "max_tokens" not in options:
        values["max_tokens"] = part(gym, "llm_user").MAX_TOKENS
    if server.extra_body is not None:  # such as thinking switched off
        values["extra_body"] = json.loads(server.extra_body)
    return values


def _agent_texts(gym_type: type[Gym[Any]], recipe: Recipe, tasks: Sequence[Task], native: bool) -> dict[str, str]:
    """Return the hash of each text of the agent's prompt that does not depend on the task."""
    style = recipe.model.prompt_style
    note = {"turns_left": text_hash(turns_left_note(1, brief=style == "brief"))} if recipe.model.turns_left else {}
    systems = {
        message["content"]
        for task in tasks
        for message in task.payload.get("prompt", ())
        if message["role"] == "system"
    }
    if style == "released" and systems and not native:
        return {"system": text_hash(sorted(systems)), **note}
    return {
        "template": text_hash(_source(prompt)),
        "goal": text_hash(gym_type.goal),
        "choices": text_hash(gym_type.choice_help),
        **({"hint": text_hash(gym_type.hint)} if style == "paper" else {}),
        **note,
    }


@cache
def _source(module: ModuleType) -> tuple[str, ...]:
    """Return the constant texts in the function that makes an opening. Docstrings are none: the agent does not see them."""
    texts = (*opening_messages.__code__.co_consts, *vars(module).values())
    unseen = (opening_messages.__doc__, module.__doc__)
    return tuple(text for text in texts if isinstance(text, str) and "\n" in text and text not in unseen)


def _agent(recipe: Recipe, actor: Actor, tasks: Sequence[Task], gym_type: type[Gym[Any]]) -> Row:
    """Return tool, sampling and limits of the agent. The scripted demonstrator has none."""
    names = ("agent_tool", "temperature", "top_p", "max_tokens", "context_limit")
    evaluate, setup = recipe.evaluate, recipe.demonstrations
    if actor.kind == "demonstrator" and setup.policy == "scripted":
        return dict.fromkeys(names, SCRIPTED)
    tool = tasks[0].payload.get("tool") or tool_schema(gym_type.choices())
    description = text_hash(json.dumps(tool, sort_keys=True))[:8]
    if actor.kind != "checkpoint":
        # A served demonstrator has its own sampling, not the evaluation's (`worker.distill.demonstrator`).
        own = setup.chat_server.model_copy(update={"top_p": setup.server.get("top_p")})
        server = own if actor.kind == "demonstrator" else server_of(actor)
        given = server.model_fields_set
        temperature = server.temperature if "temperature" in given else evaluate.temperature
        top_p = server.top_p if "top_p" in given else evaluate.top_p
        protocol = f"{'native' if actor.native else 'interact'} {server.tool_choice}"
        limits: tuple[object, object] = (server.max_tokens or "server's", "server's")
    else:
        temperature, top_p = evaluate.temperature, recipe.evaluation_top_p
        protocol = f"interact {recipe.model.calls}"
        limits = (recipe.algorithm.max_tokens, "model's" if recipe.model.path else recipe.model.max_context)
    values = (
        protocol if actor.native else f"{protocol} {description}",
        temperature,
        "greedy" if temperature == 0 else top_p or 1.0,
        *limits,
    )
    return {name: None if value is None else str(value) for name, value in zip(names, values, strict=True)}


def _json(value: Any) -> str:
    """Return one text for equal settings: their keys in order. It enters the hash, and is compared as text."""
    return json.dumps(portable(value), sort_keys=True, default=str)


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting in which two protocols are not known to agree. ours, theirs: None where it is not known."""

    setting: str
    ours: str | None
    theirs: str | None
    matters: str

    @property
    def differs(self) -> bool:
        """Return whether both sides are known, so that they certainly differ."""
        return self.ours is not None and self.theirs is not None

    def __str__(self) -> str:
        name = self.setting.replace("_", " ")
        return f"{name} ({self.ours} and {self.theirs})" if self.setting not in IN_JSON else name


IN_JSON = ("gym_settings", "user_behaviour", "user_sampling", "tasks", "task_versions")
"""Settings whose values are too long for a sentence."""


def differing(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the settings with several known values. A scripted agent's sampling, which it does not have, is none."""
    protocols = [_as_of_today(row) for row in rows]
    return [name for name in settings() if len({row.get(name) for row in protocols} - {None, SCRIPTED}) > 1]


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the settings in which two protocols differ or one is not known, those known to matter most first.

    Two objects differ in the fields that differ.
    """
    items = []
    ours, theirs = _as_of_today(ours), _as_of_today(theirs)
    for setting, matters in settings().items():
        first, second = ours.get(setting), theirs.get(setting)
        if first is None or second is None or first != second:
            if setting == "gym_settings" and first is not None and second is not None:
                first, second = _different_fields(first, second)
            items.append(Difference(setting, first, second, matters))
    return tuple(items)


def _different_fields(ours: str, theirs: str) -> tuple[str, str]:
    first, second = json.loads(ours), json.loads(theirs)
    keys = [key for key in {**first, **second} if first.get(key) != second.get(key)]
    return _json({key: first.get(key) for key in keys}), _json({key: second.get(key) for key in keys})
