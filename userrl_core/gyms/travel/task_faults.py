"""Proof that a generated travel scenario is what UserBench says it is (sections 3.1 to 3.3 and appendix B)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from userrl_core.gyms.stemming import content_words, stem
from userrl_core.gyms.travel.library import library
from userrl_core.gyms.travel.options import COSTS, OptionCounts
from userrl_core.gyms.travel.world import ASPECTS, Aspect, World, meets, total
from userrl_core.records import Task

Option = Mapping[str, Any]


def faults(task: Task, counts: OptionCounts | None = None) -> list[str]:
    """What is wrong with a scenario of ours; empty when it keeps every promise.

    One best option under the budget rule, the other correct ones dearer; every wrong option breaks a preference that its
    note names and is otherwise a sound option of this trip; noise is for another trip, impossible or incomplete; no two
    preferences of a category; the composition is the tier's; the opening gives no preference away.
    """
    wanted = counts or OptionCounts()
    world = World.of(task.payload)
    found = []
    composition = sorted(str(len(aspect.preferences)) for aspect in world.aspects.values())
    if composition != sorted(task.payload["composition"]):
        found.append(f"composition {task.payload['composition']} but preferences {composition}")
    said = {stem(word) for word in content_words(world.scenario)}
    for name, aspect in world.aspects.items():
        notes = task.payload["aspects"][name]["notes"]
        found += [f"{name}: {fault}" for fault in (*_preferences(aspect, said), *_options(aspect, notes, wanted))]
    return found


def _preferences(aspect: Aspect, opening: set[str]) -> list[str]:
    found = []
    categories = [p.category for p in aspect.preferences]
    if len(set(categories)) < len(categories):
        found.append(f"two preferences of one category: {categories}")
    for p in aspect.preferences:
        wish = next((w for w in library()[aspect.name].categories[p.category].wishes if w.text == p.preference), None)
        if wish is None or p.implicit not in wish.phrases:
            found.append(f"{p.id} is not in the library")
        if shared := opening & {stem(word) for word in content_words(p.preference)}:
            found.append(f"the opening gives {p.id} away by {shared}")
    return found


def _options(aspect: Aspect, notes: Mapping[str, Mapping[str, str]], counts: OptionCounts) -> list[str]:
    by_type: dict[str, list[Option]] = {"correct": [], "wrong": [], "noise": []}
    for option in aspect.options:
        by_type[notes[option["id"]]["type"]].append(option)
    found = []
    sizes = tuple(len(by_type[kind]) for kind in ("correct", "wrong", "noise"))
    if sizes != (counts.correct, counts.wrong, counts.noise):
        found.append(f"{sizes} correct, wrong and noise options")
    ids = [option["id"] for option in aspect.options]
    if len(set(ids)) < len(ids) or any(one[0] != ASPECTS[aspect.name] for one in ids):
        found.append(f"ids {ids}")
    if any(key in option for option in aspect.options for key in ("type", "reason")):
        found.append("an option shows what it is")
    return (
        found + _correct(aspect, by_type["correct"]) + _wrong(aspect, by_type["wrong"], notes) + _noise(aspect, by_type)
    )


def _correct(aspect: Aspect, options: Sequence[Option]) -> list[str]:
    found = [f"{o['id']} is correct but unsound" for o in options if not _sound(aspect, o)]
    found += [f"{o['id']} is correct but misses a preference" for o in options if _missed(aspect, o)]
    if {o["id"] for o in options} != set(aspect.correct):
        found.append("the correct ids are not the correct options")
    costs = sorted((total(o, aspect.preferences) or 0.0, o["id"]) for o in options)
    if costs[0][1] != aspect.best or (len(costs) > 1 and costs[0][0] == costs[1][0]):
        found.append(f"best is {aspect.best}, costs are {costs}")
    return found


def _wrong(aspect: Aspect, options: Sequence[Option], notes: Mapping[str, Mapping[str, str]]) -> list[str]:
    found = []
    for option in options:
        missed = _missed(aspect, option)
        # The texts of preferences hold commas themselves, so the note is compared as a whole.
        named = notes[option["id"]]["reason"]
        if not missed or any(text not in named for text in missed) or not _sound(aspect, option):
            found.append(f"{option['id']} is wrong for {named}, but misses {missed}")
    return found


def _noise(aspect: Aspect, by_type: Mapping[str, Sequence[Option]]) -> list[str]:
    return [f"{option['id']} is no noise" for option in by_type["noise"] if _sound(aspect, option)]


def _missed(aspect: Aspect, option: Option) -> list[str]:
    return [p.preference for p in aspect.preferences if not meets(option, p.rule)]


def _sound(aspect: Aspect, option: Option) -> bool:
    """For this trip, at a possible price, with everything needed to judge it."""
    low, high = COSTS[aspect.name]
    cost = option.get("cost")
    if cost is None or not low / 3 <= cost <= high * 5:
        return False
    if any(option.get(key) != value for key, value in aspect.arguments.items()):
        return False
    return all(option.get(p.rule["attribute"]) is not None for p in aspect.preferences)
