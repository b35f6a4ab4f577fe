"""Checks of the travel library and of generated scenarios against UserBench (sections 3.1 to 3.3 and appendix B)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from userrl_core.gyms.stemming import stems
from userrl_core.gyms.travel.library import LibraryPreference, library
from userrl_core.gyms.travel.options import COSTS, OptionCounts
from userrl_core.gyms.travel.world import ASPECTS, Aspect, World, meets, total_cost
from userrl_core.records import Task

MIN_PHRASES = 10
Option = Mapping[str, Any]


def library_preferences() -> list[LibraryPreference]:
    return [p for aspect in library().values() for category in aspect.categories.values() for p in category.preferences]


def library_faults(preferences: Sequence[LibraryPreference]) -> list[str]:
    """What is wrong with these preferences; empty when nothing is.

    A phrase gives its preference away when it shares the stem of a content word with the explicit text.
    """
    faults: list[str] = []
    for preference in preferences:
        name = f"{preference.aspect}.{preference.category}.{preference.key}"
        text_stems = stems(preference.text)
        if not text_stems:
            faults.append(f"{name}: the text '{preference.text}' has no content word.")
        if len(set(preference.phrases)) < MIN_PHRASES:
            faults.append(f"{name}: {len(set(preference.phrases))} different phrases, fewer than {MIN_PHRASES}.")
        for phrase in preference.phrases:
            if shared := sorted(s for s in text_stems if any(_same_word(s, other) for other in stems(phrase))):
                faults.append(f"{name}: '{phrase}' gives the preference away by {', '.join(shared)}.")
    return faults


def _same_word(one: str, other: str) -> bool:
    """Whether two stems are of one word: a short ending (dog, dogs; stop, stopp-ing) makes no difference."""
    short, long = sorted((one, other), key=len)
    return one == other or (len(short) >= 3 and long.startswith(short) and len(long) - len(short) <= 2)


def scenario_faults(task: Task, counts: OptionCounts | None = None) -> list[str]:
    """What is wrong with a scenario of ours; empty when all properties hold.

    One best option under the budget rule, the other correct ones more expensive; every wrong option violates a preference
    that its note names and is otherwise a valid option of this trip; noise is for another trip, unrealistic or incomplete;
    no two preferences of a category; the composition is the tier's; the opening gives no preference away.
    """
    world = World.of(task.payload)
    faults = []
    composition = sorted(str(len(aspect.preferences)) for aspect in world.aspects.values())
    if composition != sorted(task.payload["composition"]):
        faults.append(f"composition {task.payload['composition']} but preferences {composition}")
    opening_stems = set(stems(world.scenario))
    for name, aspect in world.aspects.items():
        notes = task.payload["aspects"][name]["notes"]
        aspect_faults = (
            *_preference_faults(aspect, opening_stems),
            *_option_faults(aspect, notes, counts or OptionCounts()),
        )
        faults += [f"{name}: {fault}" for fault in aspect_faults]
    return faults


def _preference_faults(aspect: Aspect, opening_stems: set[str]) -> list[str]:
    faults = []
    categories = [p.category for p in aspect.preferences]
    if len(set(categories)) < len(categories):
        faults.append(f"two preferences of one category: {categories}")
    for p in aspect.preferences:
        of_category = library()[aspect.name].categories[p.category].preferences
        source = next((entry for entry in of_category if entry.text == p.preference), None)
        if source is None or p.implicit not in source.phrases:
            faults.append(f"{p.id} is not in the library")
        if shared := opening_stems.intersection(stems(p.preference)):
            faults.append(f"the opening gives {p.id} away by {shared}")
    return faults


def _option_faults(aspect: Aspect, notes: Mapping[str, Mapping[str, str]], counts: OptionCounts) -> list[str]:
    by_type: dict[str, list[Option]] = {"correct": [], "wrong": [], "noise": []}
    for option in aspect.options:
        by_type[notes[option["id"]]["type"]].append(option)
    faults = []
    sizes = tuple(map(len, by_type.values()))
    if sizes != (counts.correct, counts.wrong, counts.noise):
        faults.append(f"{sizes} correct, wrong and noise options")
    ids = [option["id"] for option in aspect.options]
    if len(set(ids)) < len(ids) or any(option_id[0] != ASPECTS[aspect.name] for option_id in ids):
        faults.append(f"ids {ids}")
    if any(key in option for option in aspect.options for key in ("type", "reason")):
        faults.append("an option shows its type")
    faults += _correct_faults(aspect, by_type["correct"])
    faults += _wrong_faults(aspect, by_type["wrong"], notes)
    faults += [f"{option['id']} is not noise" for option in by_type["noise"] if _valid(aspect, option)]
    return faults


def _correct_faults(aspect: Aspect, options: Sequence[Option]) -> list[str]:
    faults = [f"{o['id']} is correct but not valid" for o in options if not _valid(aspect, o)]
    faults += [f"{o['id']} is correct but violates a preference" for o in options if _violated(aspect, o)]
    if {o["id"] for o in options} != set(aspect.correct):
        faults.append("the correct ids are not the correct options")
    costs = sorted((total_cost(o, aspect.preferences) or 0.0, o["id"]) for o in options)
    if costs[0][1] != aspect.best or (len(costs) > 1 and costs[0][0] == costs[1][0]):
        faults.append(f"best is {aspect.best}, costs are {costs}")
    return faults


def _wrong_faults(aspect: Aspect, options: Sequence[Option], notes: Mapping[str, Mapping[str, str]]) -> list[str]:
    faults = []
    for option in options:
        violated = _violated(aspect, option)
        # The texts of preferences contain commas, so the note is compared as a whole.
        note = notes[option["id"]]["reason"]
        if not violated or any(text not in note for text in violated) or not _valid(aspect, option):
            faults.append(f"{option['id']} is wrong for {note}, but violates {violated}")
    return faults


def _violated(aspect: Aspect, option: Option) -> list[str]:
    return [p.preference for p in aspect.preferences if not meets(option, p.rule)]


def _valid(aspect: Aspect, option: Option) -> bool:
    """For this trip, at a realistic price, and complete."""
    low, high = COSTS[aspect.name]
    cost = option.get("cost")
    if cost is None or not low / 3 <= cost <= high * 5:
        return False
    if any(option.get(key) != value for key, value in aspect.arguments.items()):
        return False
    return all(option.get(p.rule["attribute"]) is not None for p in aspect.preferences)
