"""TravelGym's fixed replies of user and database: full sentences, and one or two words for the tiny tier."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ReplyTexts:
    """One text per event. The gym defines the events.

    Released texts may hold {aspect}, {id} and {initial}. found: the text before the options of a search, {schema} included;
    "": our own. skipped: the end of its line in the conversation that the user sees.
    """

    not_held: str
    too_vague: str
    search_failed: str
    search_wrong: str
    search_unrelated: str
    searched_before: str
    bad_id: str
    chosen_before: str
    foreign: str
    best: str
    correct: str
    wrong: str
    found: str = ""
    skipped: str = ""
    schemas: Mapping[str, str] = field(default_factory=dict)


FULL = ReplyTexts(
    not_held="Good question, but I have no wish there, or none that I have not told you. Ask me about another detail.",
    too_vague="That is too general for me to answer. Ask about one particular detail of the trip.",
    search_failed="The search service does not answer at the moment. Try again later.",
    search_wrong="The search was not carried out: the request must name one aspect of the trip with exactly its arguments.",
    search_unrelated="The search was not carried out: nothing in the request belongs to this trip.",
    searched_before="The results for this aspect were shown before; look at them again.",
    bad_id="An option id is one of the letters F, H, A, C, R and a number, such as H1; nothing was recorded.",
    chosen_before="An option was already chosen for that aspect, and only one is allowed; nothing was recorded.",
    foreign="Nothing of that kind is part of this trip.",
    best="That is the best option.",
    correct="That option meets my wishes, but it is not the best one.",
    wrong="That option does not meet my wishes.",
)
TERSE = ReplyTexts(
    not_held="any",
    too_vague="any",
    search_failed="failed",
    search_wrong="none",
    search_unrelated="none",
    searched_before="again",
    bad_id="wrong",
    chosen_before="again",
    foreign="wrong",
    best="right",
    correct="almost",
    wrong="wrong",
)


def show_options(aspect: str, options: Sequence[Mapping[str, Any]], texts: ReplyTexts) -> str:
    """Format the database's reply: one JSON line per option, or only the ids."""
    if texts is TERSE:
        return "found " + " ".join(str(option["id"]) for option in options)
    if texts.found:
        opening = texts.found.replace("{aspect}", aspect).replace("{schema}", texts.schemas[aspect])
        return (opening + "".join(f"{json.dumps(option)}\n" for option in options)).strip()
    lines = [f"{len(options)} options for {aspect.replace('_', ' ')}:"]
    lines += [json.dumps(option, ensure_ascii=False) for option in options]
    return "\n".join(lines)
