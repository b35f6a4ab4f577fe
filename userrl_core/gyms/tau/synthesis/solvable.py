"""Whether gold calls still solve a task under its instruction: they succeed, and nothing in them has to be guessed.

An argument is known when the customer's instruction has it, or a record that can be looked up from there, or the domain's policy
and schemas. Looking up goes from what is known to the records whose key, or whose e-mail or name with postcode, stands in it, again
and again.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from userrl_core.errors import TaskError
from userrl_core.gyms.tau.database import Database
from userrl_core.gyms.tau.tasks import load_domain
from userrl_core.gyms.tau.tools import Domain, ToolError
from userrl_core.gyms.tau.verifier import replay
from userrl_core.records import Task

_WORD = re.compile(r"[#\w.@-]+")
ROUNDS = 4
"""Customer, orders, products, and one to spare."""
BY_NAME = " by name"
Place = tuple[str, str]
"""A table and a key in it."""


def why_not(task: Task) -> str:
    """What keeps the gold calls from solving the task; "" where they do."""
    payload = task.payload
    try:
        domain = load_domain(payload["domain"], payload["database"])
    except TaskError as error:
        return str(error)
    base = payload.get("tables", domain.base)
    done = replay(domain, payload["actions"], base)
    if done.errors:
        return done.errors[0]
    if not done.writes:
        return "no gold call changes anything, so doing nothing would solve it"
    known = known_text(domain, str(payload["instruction"]), payload, base)
    for name, arguments in done.writes:
        for value in _leaves(arguments):
            if str(value).casefold() not in known:
                return f"nothing tells '{value}', which {name} needs"
    return ""


def known_text(domain: Domain, instruction: str, payload: Mapping[str, Any], base: Any) -> str:
    """All that the agent can be told or can look up, in one text without case."""
    index = _index(payload["domain"], payload["database"]) if base is domain.base else Index(base)
    known = [instruction, domain.policy, json.dumps(domain.schemas)]
    lookups = _lookups(domain, payload, base)
    words, new = set[str](), set(_words(" ".join(known)))
    seen: set[Place] = set()
    for _ in range(ROUNDS):
        words |= new
        text = " ".join(known).casefold()
        brought = [told for asked, told in lookups if all(value in text for value in asked)]
        places = {place for word in new for place in index.by_word.get(word, ()) if index.needs[place] <= words} - seen
        new = set[str]()
        for table, key in places:
            record = base[table.removesuffix(BY_NAME)][key]
            known.append(f"{key} {json.dumps(record, ensure_ascii=False)}")
            new |= set(_words(known[-1])) - words
        known += brought
        new |= {word for told in brought for word in _words(told)} - words
        seen |= places
    return " ".join(known).casefold()


class Index:
    """What leads to a record: its key, its e-mail address, or its postcode with its name.

    by_word: places by each of these words. needs: what must be known besides.
    """

    def __init__(self, base: Mapping[str, Mapping[str, Any]]) -> None:
        self.by_word: defaultdict[str, list[Place]] = defaultdict(list)
        self.needs: defaultdict[Place, set[str]] = defaultdict(set)
        for table, records in base.items():
            for key, record in records.items():
                self.by_word[key.casefold()].append((table, key))
                if email := record.get("email"):
                    self.by_word[str(email).casefold()].append((table, key))
                if isinstance(name := record.get("name"), Mapping) and isinstance(record.get("address"), Mapping):
                    place = (f"{table}{BY_NAME}", key)
                    self.by_word[str(record["address"].get("zip")).casefold()].append(place)
                    self.needs[place] = {str(part).casefold() for part in name.values()}


@lru_cache(maxsize=8)
def _index(domain: str, database: str | None) -> Index:
    return Index(load_domain(domain, database).base)


def _words(text: str) -> list[str]:
    return [word.strip(".").casefold() for word in _WORD.findall(text)]


def _lookups(domain: Domain, payload: Mapping[str, Any], base: Any) -> list[tuple[list[str], str]]:
    """The gold calls that only read, such as a search for flights: what they must be told, and what they bring."""
    database, found = Database(base), []
    for action in payload["actions"]:
        try:
            result = domain.call(database, action["name"], action["kwargs"])
        except ToolError:
            continue
        if action["name"] not in domain.writes:
            found.append(([str(value).casefold() for value in _leaves(action["kwargs"])], result))
    return found


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value
