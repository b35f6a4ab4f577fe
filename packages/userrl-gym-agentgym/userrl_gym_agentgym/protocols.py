"""The common protocol of AgentGym's environment servers, and their differences (AgentGym @3ef9235).

All answer POST /create, /reset, /step, /close and GET /observation. A session is ``id`` or ``env_idx``. A failure is an
``error`` field of an answer with status 200. This file defines a turn's reward and success for each environment. "Done with a
score above 0" is not success.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from userrl_core.errors import UserError
from userrl_core.gyms.other_python import is_number

Json = Mapping[str, Any]
_ACTION = re.compile(r"Action:\s*")
_PUNCTUATION = re.compile(r"[^A-Za-z0-9, ]+")


def _whole(text: str) -> str:
    return text


def _marked(text: str) -> str | None:
    """Return the text after the only ``Action:``; the whole text without one; None for several."""
    parts = _ACTION.split(text)
    return None if len(parts) > 2 else parts[-1].strip()


def _command(text: str) -> str | None:
    """Return the first line of the action without punctuation except commas, as AgentGym's TextCraft client sends it."""
    marked = _marked(text)
    return None if marked is None else " ".join(_PUNCTUATION.sub("", marked.partition("\n")[0]).split())


def _last(text: str) -> str:
    return _ACTION.split(text)[-1].strip()


def number(answer: Json, field: str) -> float:
    """Return a finite number of an answer. Raises UserError for anything else: what a server did not say is no score."""
    if not is_number(value := answer.get(field)):
        raise UserError(
            "gym.server_failed", f"The server's field '{field}' is {str(value)[:40]!r}, not a finite number."
        )
    return float(value)


def flag(answer: Json, field: str) -> bool:
    """Return a truth value of an answer, false where it is absent. Raises UserError for anything else."""
    if (value := answer.get(field)) not in (True, False, None):
        raise UserError("gym.server_failed", f"The server's field '{field}' is {str(value)[:40]!r}, not true or false.")
    return bool(value)


def _unit(value: float) -> float:
    return min(max(value, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Protocol:
    """One environment's dialect.

    tasks: number of item ids, from 0. session: name of the session number in every request and in the answer of
    /create, which may also be the bare number. item: name of the task number in /reset. asked: further fields of
    /reset. created: the body of /create for a task (None: no body). score: the episode's score so far from the answer
    to a step, in [0, 1]. solved: the score of a success. ends: fields that mark the end of the episode. read:
    extracts the action from the agent's text, None for more than one. per_turn: the answer's reward is the turn's,
    and its ``metric`` is the gym's metric (our own server). Otherwise a turn's reward is its change of the score.
    goal: the instruction of the system message.
    """

    name: str
    tasks: int
    goal: str
    session: str = "id"
    item: str = "data_idx"
    asked: Json | None = None
    created: Callable[[int], Json | None] = lambda item: None
    score: Callable[[Json], float] = lambda answer: _unit(number(answer, "reward"))
    solved: float = 1.0
    ends: tuple[str, ...] = ("done",)
    read: Callable[[str], str | None] = _whole
    per_turn: bool = False
    actions: str = "one action in words"

    def opening(self, answer: Any) -> str:
        """Return the first observation in the answer of /reset, which is a string or an object with a field for it."""
        if isinstance(answer, str):
            return answer
        if not isinstance(answer, Mapping):
            raise UserError("gym.server_failed", "The server's answer to /reset is neither text nor an object.")
        parts = [answer[key] for key in ("task_description", "observation") if answer.get(key)]
        if isinstance(answer.get("object"), Mapping) and answer["object"].get("intent"):
            parts.append(f"OBJECTIVE: {answer['object']['intent']}")
        return "\n".join(map(str, parts))


PROTOCOLS: Mapping[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            "textcraft",
            544,
            "You are given crafting recipes and a goal. Get what no recipe makes, and craft the rest until you have crafted "
            "the goal. Use only the recipes shown, fill a kind such as planks by one thing of that kind, and always say how "
            "many.",
            created=lambda item: {},
            read=_command,
            actions="one command: get 2 oak log; or craft 4 oak planks using 1 oak log; or inventory",
        ),
        Protocol(
            "babyai",
            # 40 levels; every further 40 ids are the same levels under the next seed.
            4000,
            "You are in a world of rooms and have a goal to reach in it. Every observation lists the actions that are "
            "possible; take one of them at a time, in exactly those words.",
            score=lambda answer: _unit(number(answer, "score")),
            # A success pays 1 - 0.9 t/T, never 1; a late one is not said to be done.
            solved=0.1,
            read=_marked,
            actions="one of the available actions, as it is written: go to red ball 1; or turn left; or pickup red ball 1",
        ),
        Protocol(
            "sciworld",
            # 23 kinds of tasks and their variations, in scienceworld 1.2; a server that has fewer answers with an error.
            4639,
            "You are in a house with a laboratory and have a scientific task to carry out. Look around, go through the rooms, "
            "and act on things until the task is done. Focus only on what the task names: another focus ends it.",
            score=lambda answer: _unit(number(answer, "score") / 100.0),
            read=_last,
            actions="one action: look around; open door to kitchen; pick up OBJ; move OBJ to OBJ; use OBJ on OBJ; focus on OBJ",
        ),
        Protocol(
            "searchqa",
            221_328,
            "Answer the question. Search as often as you need, and answer with a few words.",
            session="env_idx",
            item="id",
            created=lambda item: {"id": item},
            actions="<search>what to look for</search> or <answer>a few words</answer>",
        ),
        Protocol(
            "webarena",
            812,
            "You are given a web page as an accessibility tree and an objective to reach on it. Act on elements by their "
            "numbers, and stop with the answer once the objective is reached.",
            session="env_idx",
            item="idx",
            asked={"seed": 0},
            score=lambda answer: _unit(number(answer, "reward")) if flag(answer, "terminated") else 0.0,
            ends=("terminated", "truncated"),
            actions="one action in backticks: ```click [12]```, ```type [12] [text] [1]```, ```scroll [down]```, "
            "```goto [address]```, ```go_back```, ```stop [answer]```",
        ),
        Protocol(
            "userrl",
            1000,
            "Reach what the first message asks for. Say with every action which kind of step it is.",
            score=lambda answer: number(answer, "metric"),
            per_turn=True,
            actions="the kind of step and its content: action: what to say; or search: what to look up; or answer: the answer",
        ),
    )
}
"""The five environments of AgentGym-RL, and a gym of ours behind our own server (`userrl serve-gym`)."""
