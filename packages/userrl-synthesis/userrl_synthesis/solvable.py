"""Check that gold calls still solve a task under its instruction: they succeed, and no argument must be guessed.

An argument is known if it occurs in the customer's instruction, in the domain's policy or schemas, or in a record that can be
looked up. Look-up repeatedly follows known text to records whose key, e-mail, or name with postcode occurs in it.
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
"""Customer, orders, products, and one spare round."""
BY_NAME = " by name"
Place = tuple[str, str]
"""A table and a key in it."""


def why_not(task: Task) -> str:
    """Return the reason why the gold calls do not solve the task; "" if they do."""
    payload = task.payload
    try:
        domain = load_domain(payload["domain"], payload["database"])
    except TaskError as error:
        return str(error)
    base = payload.get("tables", domain.base)
    replayed = replay(domain, payload["actions"], base)
    if replayed.errors:
        return replayed.errors[0]
    if not replayed.writes:
        return "no gold call changes anything, so doing nothing would solve it"
    known_words = known_text(domain, str(payload["instruction"]), payload, base)
    for name, arguments in replayed.writes:
        for value in _leaves(arguments):
            if str(value).casefold() not in known_words:
                return f"nothing tells '{value}', which {name} needs"
    return ""


def known_text(domain: Domain, instruction: str, payload: Mapping[str, Any], base: Any) -> str:
    """Return everything that the agent can be told or can look up, as one text without case."""
    index = _index(payload["domain"], payload["database"]) if base is domain.base else Index(base)
    known_texts = [instruction, domain.policy, json.dumps(domain.schemas)]
    lookups = _lookups(domain, payload, base)
    vocabulary, new = set[str](), set(_words(" ".join(known_texts)))
    seen_places: set[Place] = set()
    for _ in range(ROUNDS):
        vocabulary |= new
        text = " ".join(known_texts).casefold()
        results = [result for inputs, result in lookups if all(value in text for value in inputs)]
        record_keys = {
            record_key
            for token in new
            for record_key in index.by_word.get(token, ())
            if index.needs[record_key] <= vocabulary
        } - seen_places
        new = set[str]()
        for table, key in record_keys:
            record = base[table.removesuffix(BY_NAME)][key]
            known_texts.append(f"{key} {json.dumps(record, ensure_ascii=False)}")
            new |= set(_words(known_texts[-1])) - vocabulary
        known_texts += results
        new |= {token for result in results for token in _words(result)} - vocabulary
        seen_places |= record_keys
    return " ".join(known_texts).casefold()


class Index:
    """Index of the words that lead to a record: its key, its e-mail address, or its postcode with its name.

    by_word: places by each of these words. needs: further words that must be known.
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
                    record_key = (f"{table}{BY_NAME}", key)
                    self.by_word[str(record["address"].get("zip")).casefold()].append(record_key)
                    self.needs[record_key] = {str(part).casefold() for part in name.values()}


@lru_cache(maxsize=8)
def _index(domain: str, database: str | None) -> Index:
    return Index(load_domain(domain, database).base)


def _words(text: str) -> list[str]:
    return [token.strip(".").casefold() for token in _WORD.findall(text)]


def _lookups(domain: Domain, payload: Mapping[str, Any], base: Any) -> list[tuple[list[str], str]]:
    """Return the inputs and results of the gold calls that only read, such as a search for flights."""
    database, lookups = Database(base), []
    for action in payload["actions"]:
        try:
            result = domain.call(database, action["name"], action["kwargs"])
        except ToolError:
            continue
        if action["name"] not in domain.writes:
            lookups.append(([str(value).casefold() for value in _leaves(action["kwargs"])], result))
    return lookups


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value
