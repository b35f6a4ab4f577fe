"""Recorded conversations of tau-bench (a list of results) and tau2-bench (``results.json``).

tau-bench: ``[{task_id, trial, reward, info, traj}]``. It does not name the models. tau2-bench: one object with ``info``,
``tasks`` and ``simulations``; messages carry token usage and cost. The reward of both is the score, but an attempt that failed
for a reason outside the agent (a server, the simulated user) has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analysis.foreign.conversation import ENDED, ForeignCall, ForeignConversation, given, other_fields, scored
from analysis.foreign.dialogue import divided
from userrl_core.chats.stream import JsonStream, items
from userrl_core.chats.values import broken, count, mapping, name_of, number, sequence
from userrl_core.errors import ConfigError
from userrl_core.json_files import json_text
from userrl_core.key_names import without_keys

ENDINGS: Mapping[str, str] = {
    "max_steps": "horizon",
    "context_window_exceeded": "length",
    "too_many_errors": "error",
    "agent_error": "error",
    "timeout": "error",
}
"""Our stop reasons for tau2's termination reasons; every other one is `ENDED`, or ``error`` if it is one."""

BENCH = ("task_id", "trial", "reward", "traj")
SIMULATION = ("task_id", "trial", "seed", "messages", "reward_info", "termination_reason")
"""The fields of a result of tau-bench and of a simulation of tau2 that are read by name. The others are stored as they are."""
MESSAGE = ("usage", "cost", "generation_time_seconds")
USAGE = ("prompt_tokens", "completion_tokens", "total_tokens")


def read_tau_bench(path: Path) -> Iterator[ForeignConversation]:
    """Yield the conversations of a list of results, or of one result per line."""
    for where, row in items(path):
        if "traj" not in row or "task_id" not in row:
            broken(where, "a result of tau-bench needs 'task_id' and 'traj'")
        info = mapping(row.get("info") or {}, where, "info")
        messages = sequence(row["traj"], where, "traj")
        chat = divided(messages, where)
        error = info.get("error") or info.get("traceback") or row.get("error")
        failure = _failure(without_keys(error, chat.unread))
        reward, reason = scored(row.get("reward"), where, "reward", failure)
        conversation = ForeignConversation(
            where,
            "tau-bench",
            name_of(row["task_id"]),
            mapping(info.get("task") or {}, where, "info.task"),
            chat.opening,
            chat.turns,
            score=reward,
            attempt=count(row.get("trial"), where, "trial", chat.unread),
            stop_reason="error" if failure else ENDED,
            reject_reason=reason,
            info={key: info[key] for key in ("reward_info", "source") if info.get(key) is not None},
            unread=chat.unread,
            silent=chat.silent,
        )
        others = other_fields(info, ("task", "error", "reward_info", "source", "user_cost"))
        conversation.keep(other_fields(row | {"info": others}, BENCH), reward=row.get("reward"))
        cost = number(info.get("user_cost"), where, "info.user_cost", chat.unread)
        if cost is not None:
            conversation.calls.append(ForeignCall("user", "", price=cost))
        yield conversation


def _failure(error: Any) -> str | None:
    """Return why an attempt of tau-bench has no score. Its reward is then 0, which nobody computed."""
    return f"the attempt failed: {error if isinstance(error, str) else json_text(error)}" if error else None


def _ending(row: Mapping[str, Any]) -> str:
    """Return a termination reason, also if it was written by its Python name (``TerminationReason.USER_ERROR``)."""
    return name_of(row.get("termination_reason")).rpartition(".")[2].lower()


def _not_the_agent(ending: str) -> bool:
    """Return True if an attempt of tau2 ended in an error that was not the agent's. Its reward is then 0 too."""
    return ending.endswith("error") and ending != "agent_error"


def read_tau2(path: Path) -> Iterator[ForeignConversation]:
    """Yield the simulations of a ``results.json``, in the file's order."""
    facts: dict[str, Any] = {}
    tasks: dict[str | int, dict[str, Any]] | None = None
    described = False
    for key, stream in _document(path):
        if key == "tasks":
            tasks = _tasks(stream)
        elif key != "simulations":
            facts[key] = stream.counted()
        elif "info" in facts and tasks is not None:
            yield from _simulations(path, stream, facts, tasks)
            described = True
        else:
            stream.skip()
    if described:
        return
    for key, stream in _document(path):  # the simulations came before what describes them
        if key == "simulations":
            yield from _simulations(path, stream, facts, tasks or {})
        else:
            stream.skip()


def _document(path: Path) -> Iterator[tuple[str, JsonStream]]:
    with path.open("rb") as file:
        stream = JsonStream(file, str(path))
        for key in stream.names():
            yield key, stream
        stream.finish()


def _tasks(stream: JsonStream) -> dict[str | int, dict[str, Any]]:
    """Return the tasks by their ids. One without an id has its place."""
    tasks: dict[str | int, dict[str, Any]] = {}
    for position, (where, item) in enumerate(stream.elements()):
        task = mapping(item, where, "a task")
        task_id = name_of(task.get("id")) or position
        if tasks.setdefault(task_id, task) != task:
            broken(where, f"task {task_id} occurs twice, with different content")
    return tasks


def _simulations(
    path: Path, stream: JsonStream, facts: dict[str, Any], tasks: Mapping[str | int, dict[str, Any]]
) -> Iterator[ForeignConversation]:
    about = _About(facts, str(path))
    played: set[str] = set()
    for where, item in stream.elements():
        conversation = _simulation(where, mapping(item, where, "a simulation"), about, tasks)
        played.add(conversation.task_id)
        yield conversation
    if others := [task for task_id, task in tasks.items() if task_id not in played]:
        facts["tasks"] = others
    if not played and (path.parent / "simulations").is_dir():
        raise ConfigError(
            "import.not_supported",
            f"{path} keeps its simulations in the folder simulations/. Save it again with format='json'.",
        )


class _About:
    """The domain and the two models of a results file. facts: its fields besides tasks and simulations."""

    def __init__(self, facts: Mapping[str, Any], where: str) -> None:
        self.facts = facts
        info = mapping(facts.get("info") or {}, where, "info")
        agent = mapping(info.get("agent_info") or {}, where, "info.agent_info")
        user = mapping(info.get("user_info") or {}, where, "info.user_info")
        domain = mapping(info.get("environment_info") or {}, where, "info.environment_info")
        self.gym = f"tau2-{name_of(domain.get('domain_name')) or 'unknown'}"
        self.agent = name_of(agent.get("llm")) or name_of(agent.get("implementation"))
        self.user = name_of(user.get("llm")) or name_of(user.get("implementation"))


def _simulation(
    where: str, row: Mapping[str, Any], about: _About, tasks: Mapping[str | int, dict[str, Any]]
) -> ForeignConversation:
    if "task_id" not in row:
        broken(where, "a simulation needs 'task_id'")
    if row.get("messages") is None and row.get("ticks") is not None:
        raise ConfigError(
            "import.not_supported", f"{where}: voice simulations (ticks) cannot be imported. Nothing was imported."
        )
    messages = sequence(row.get("messages"), where, "messages")
    flat = [part for message in messages for part in _parts(message, where)]
    chat = divided(flat, where, read=MESSAGE)
    task_id, ending = name_of(row["task_id"]), _ending(row)
    result = mapping(row.get("reward_info") or {}, where, "reward_info")
    failure = f"the attempt failed: {ending}" if _not_the_agent(ending) else None
    reward, reason = scored(result.get("reward"), where, "reward", failure)
    conversation = ForeignConversation(
        where,
        about.gym,
        task_id,
        tasks.get(task_id, {}),
        chat.opening,
        chat.turns,
        score=reward,
        attempt=count(row.get("trial"), where, "trial", chat.unread),
        policy=about.agent,
        user=about.user,
        seed=count(row.get("seed"), where, "seed", chat.unread, maximum=2**63 - 1),
        stop_reason=ENDINGS.get(ending, "error" if _not_the_agent(ending) else ENDED),
        reject_reason=reason if failure or reason is None else f"{reason} ({ending or 'no reason given'})",
        info={"termination_reason": ending, **({"reward_info": result} if result else {})},
        unread=chat.unread,
        silent=chat.silent,
        file=about.facts,
    )
    conversation.keep(other_fields(row, SIMULATION))
    _usage(conversation, flat, chat.turns_of, row, about)
    return conversation


def _parts(message: Any, where: str) -> list[Any]:
    """Return a message, or the messages of several tools that tau2 stores as one."""
    if isinstance(message, dict) and isinstance(message.get("tool_messages"), list):
        return list(message["tool_messages"])
    return [message]


def _usage(
    conversation: ForeignConversation,
    messages: list[Any],
    turns_of: list[range],
    row: Mapping[str, Any],
    about: _About,
) -> None:
    """Store tokens and cost by message; a role's cost without messages that have one is stored once."""
    where, unread, priced = conversation.where, conversation.unread, set()
    for message, indices in zip(messages, turns_of, strict=True):
        role = message["role"]
        if role not in ("assistant", "user"):
            conversation.count(given(message, MESSAGE), (), "")
            continue
        usage = mapping(message.get("usage") or {}, where, "usage")
        conversation.count(usage, USAGE, "usage.")
        prompt = count(usage.get("prompt_tokens"), where, "usage.prompt_tokens", unread)
        completion = count(usage.get("completion_tokens"), where, "usage.completion_tokens", unread)
        seconds = number(message.get("generation_time_seconds"), where, "generation_time_seconds", unread)
        price = number(message.get("cost"), where, "cost", unread)
        turn = conversation.turns[indices.start] if indices else None
        if turn is not None:
            turn.prompt_tokens, turn.completion_tokens, turn.seconds = prompt, completion, seconds
        if prompt is None and completion is None and price is None and (role == "assistant" or seconds is None):
            continue
        side = "policy" if role == "assistant" else "user"
        if price is not None:
            priced.add(side)
        if role == "user" and indices.start:  # the answer to the turn before
            turn = conversation.turns[indices.start - 1]
        calls = conversation.calls if turn is None else turn.calls
        calls.append(
            ForeignCall(side, about.agent if side == "policy" else about.user, prompt, completion, seconds, price)
        )
    for side, key, model in (("policy", "agent_cost", about.agent), ("user", "user_cost", about.user)):
        cost = number(row.get(key), where, key, unread)
        if cost is not None and side not in priced:
            conversation.calls.append(ForeignCall(side, model, price=cost))
