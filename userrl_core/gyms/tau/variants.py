"""Three instructions for one task, offline: templates over its gold calls (TARL appendix A).

- inferred: the content of the calls, in one form.
- withheld: the instruction without the numbers of records. The customer gives a number only once the agent has named it.
- simplified: the instruction with all arguments of the calls.

The gold calls stay, and so does the split: a variant of a test task is a test task.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from userrl_core.errors import ConfigError
from userrl_core.gyms.tau import airline, bikes, retail
from userrl_core.gyms.tau.outfitter import tiny
from userrl_core.gyms.tau.rule_user import FORGOTTEN
from userrl_core.records import Task
from userrl_core.seeding import derive_seed

Variant = Literal["inferred", "withheld", "simplified"]
VARIANTS: tuple[str, ...] = get_args(Variant)
MIX = "mix"
"""Half of the tasks unchanged, half withheld (TARL appendix A: with equal probability)."""

WRITES: Mapping[str, frozenset[str]] = {
    "retail": retail.WRITES,
    "outfitter": retail.WRITES,
    "airline": airline.WRITES,
    "bikes": bikes.WRITES,
    tiny.DOMAIN: tiny.WRITES,
}
IDENTITY = {
    "find_user_id_by_name_zip": "You are {first_name} {last_name}, and your zip code is {zip}.",
    "find_user_id_by_email": "Your e-mail address is {email}.",
    "find_customer_by_email": "Your e-mail address is {email}.",
    "get_user_details": "Your user id is {user_id}.",
}
_NUMBER = re.compile(r"\b(?:order|booking|reservation) (#W\d+|B\d+|[A-Z0-9]{6})\b")


def varied(tasks: Iterable[Task], variant: str) -> list[Task]:
    """Return the tasks in a variant, or in ``mix``. A task that a variant would not change stays as it is.

    Raises ConfigError for an unknown variant.
    """
    if variant not in (*VARIANTS, MIX):
        raise ConfigError(
            "task.bad_option", f"There is no variant '{variant}' of tasks. Use one of {', '.join((*VARIANTS, MIX))}."
        )
    return [of(task, variant) if variant != MIX else one_of(task, of(task, "withheld")) for task in tasks]


def of(task: Task, variant: str) -> Task:
    """Return one task's variant."""
    payload, instruction = task.payload, str(task.payload["instruction"])
    wishes = _wishes(payload["actions"], WRITES[payload["domain"]])
    if variant == "inferred":
        return with_instruction(task, " ".join([*_identity(payload["actions"]), f"You want {wishes}."]), variant)
    if variant == "simplified":
        return with_instruction(task, f"{instruction} To be exact, you want {wishes}.", variant)
    numbers = list(dict.fromkeys(_NUMBER.findall(instruction)))
    if not numbers:
        return task
    return with_instruction(task, f"{instruction} {FORGOTTEN}", variant, withheld=numbers)


def with_instruction(task: Task, instruction: str, variant: str, **more: Any) -> Task:
    """Return the task under another instruction. more: further fields of the payload."""
    return replace(task, id=f"{task.id}-{variant}", payload={**task.payload, "instruction": instruction, **more})


def one_of(original: Task, rewritten: Task) -> Task:
    """Choose one of the two with equal probability, always the same for a task."""
    return rewritten if derive_seed("rewritten", original.key) % 2 else original


def _identity(actions: Sequence[Mapping[str, Any]]) -> list[str]:
    return [IDENTITY[action["name"]].format(**action["kwargs"]) for action in actions if action["name"] in IDENTITY][:1]


def _wishes(actions: Sequence[Mapping[str, Any]], writes: frozenset[str]) -> str:
    wish_texts = [f"to {_words(a['name'])} ({_arguments(a['kwargs'])})" for a in actions if a["name"] in writes]
    return "; and ".join(wish_texts) or "to be told what you ask for, and nothing changed"


def _arguments(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{_words(name)} {_value(value)}" for name, value in values.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return _arguments(value)
    return " and ".join(map(_value, value)) if isinstance(value, (list, tuple)) else str(value)


def _words(name: str) -> str:
    return name.replace("_", " ")
