"""Errors in conversations of wish, errand, travel, intention and turtle, whose tasks hold the truth.

A kind of error that a gym's truth cannot show stays absent. An opening is written by the gym, so it is never held against the
user.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from analysis.users.conversation import Conversation, words_of
from analysis.users.findings import Findings, Goal
from analysis.users.grounding import said_identifiers
from userrl_core.errors import TaskError
from userrl_core.gyms.errand.tasks import NAMES
from userrl_core.gyms.intention.gym import details_of
from userrl_core.gyms.stemming import normalise, strongest_match, words
from userrl_core.gyms.travel.world import World
from userrl_core.gyms.turtle.gym import full_explanation
from userrl_core.gyms.wish.tasks import COLOURS, GARMENTS
from userrl_core.records import Task, Turn


def wish(talk: Conversation) -> Findings:
    """Compare the colours that the user said with those it has in mind."""
    found, payload = Findings(agent=[]), talk.task.payload
    wished: Mapping[str, str] = payload["wished"]
    found.checked("ungrounded", "leaked", "unanswered")
    told: set[str] = set()
    asked: list[str] = []
    again = 0
    for turn in _talk(talk):
        named = [word for word in _words(turn.content) if word in GARMENTS]
        said = set(_words(turn.observation))
        garment = named[0] if len(set(named)) == 1 else None
        for colour in sorted(said & set(COLOURS)):
            if colour != wished.get(garment or ""):
                found.add("ungrounded", turn.number, f"{colour} for {garment or 'no garment'}")
        for option in sorted(said & {payload["best"], *payload["wrong"].values()}):
            found.add("leaked", turn.number, option)
        if garment is None or garment not in wished:
            continue
        again += garment in told
        asked.append(garment)
        if wished[garment] in said:
            told.add(garment)
        elif garment not in told:
            found.add("unanswered", turn.number, garment, harmful=False)
    for garment in wished:
        # One refusal is a manner, which the agent can ask through. Two without an answer leave the agent nothing to do.
        if garment not in told and asked.count(garment) > 1:
            turns = [one.turn for one in found.user["unanswered"] if one.detail == garment]
            found.add("unanswered", turns[-1], f"{garment} was never told")
    _answered(found, talk, payload["best"])
    found.goal = Goal(len(wished), len(told), again, 1, int(talk.solved))
    return found


def errand(talk: Conversation) -> Findings:
    """Compare the things that the user named with the chain."""
    found, chain = Findings(agent=[]), list(talk.task.payload["chain"])
    found.checked("ungrounded", "leaked", "unanswered")
    told, again, mentioned = {chain[0]}, 0, {chain[0]}
    for turn in _talk(talk):
        asked = next((word for word in _words(turn.content) if word in mentioned), None)
        said = {word for word in _words(turn.observation) if word in NAMES} - {asked}
        if asked is None:
            continue
        place = chain.index(asked)
        part = chain[place + 1] if place + 1 < len(chain) else None
        again += part in told if part else 0
        for thing in sorted(said - {part} - mentioned):
            found.add("leaked" if thing in chain else "ungrounded", turn.number, thing)
        if part in said and part is not None:
            told.add(part)
            mentioned.add(part)
        elif part is not None and part not in told:
            found.add("unanswered", turn.number, asked)
    if not talk.solved:
        found.blame("unfinished", _last(talk), talk.ending)
    found.goal = Goal(len(chain) - 1, len(told) - 1, again, 1, int(talk.solved))
    return found


def travel(talk: Conversation) -> Findings:
    """Compare the user's words with its trip and preferences, and the agent's choices with the best options."""
    found = Findings(agent=[])
    try:
        world = World.of(talk.task.payload)
    except TaskError:
        return Findings()
    found.checked("ungrounded", "leaked", "unanswered")
    known = " ".join([world.scenario, *(f"{p.implicit} {p.preference}" for p in world.preferences.values())])
    for message, identifier, is_known in said_identifiers(talk.messages(), known):
        found.identifiers += 1
        if not is_known:
            found.add("ungrounded", message.turn, identifier)
    elicited: set[str] = set()
    again = 0
    best = {aspect.best for aspect in world.aspects.values()}
    chosen: set[str] = set()
    agent_words = ""
    for turn in talk.turns:
        if turn.choice == "answer":
            chosen |= set((turn.info.get("choices") or {}).keys())
        if turn.choice != "action":
            continue
        agent_words += turn.content or ""
        preference = turn.info.get("preference")
        again += preference in elicited
        if preference is not None:
            if turn.info.get("utterance") == "held" and not words_of(turn.observation):
                found.add("unanswered", turn.number, str(preference))
            elicited.add(str(preference))
        for option in sorted(best):
            if re.search(rf"\b{option}\b", turn.observation) and option not in agent_words:
                found.add("leaked", turn.number, option)
    if not talk.solved:
        wrong = sorted(chosen - best)
        if wrong:
            found.blame("wrong answer", _last(talk), ", ".join(wrong))
        elif not chosen:
            found.blame("no answer", _last(talk), talk.ending)
        else:
            found.blame("unfinished", _last(talk), talk.ending)
    found.goal = Goal(len(world.preferences), len(elicited), again, len(best), len(best & chosen))
    return found


def intention(talk: Conversation) -> Findings:
    """Count the details that the agent asked for. The user decides its own preferences, so none of its facts can be wrong."""
    found, details = Findings(agent=[]), details_of(talk.task)
    found.checked("unanswered")
    covered = 0
    for turn in _talk(talk):
        covered += int(turn.info.get("covered", 0))
        if turn.info.get("covered") and not words_of(turn.observation):
            found.add("unanswered", turn.number, "an empty answer")
    if not talk.solved:
        found.blame("unfinished", _last(talk), f"{covered} of {len(details)} details asked for")
    found.goal = Goal(len(details), covered, 0, len(details), covered)
    return found


def turtle(talk: Conversation) -> Findings:
    """Compare the user's answers with the story: Yes to a criterion's question, Yes and No to the story's own patterns."""
    found, story = Findings(agent=[]), talk.task.payload
    found.checked("ungrounded", "leaked")
    asked: set[int] = set()
    again = 0
    hidden = set(words(full_explanation(talk.task))) - set(words(f"{story['title']} {story['surface']}"))
    agent_words: set[str] = set()
    for turn in _talk(talk):
        question, reply = turn.content or "", words_of(turn.observation)
        agent_words |= set(words(question))
        right = _answer(story, question)
        verdict = next((one for one in ("yes", "no", "maybe") if re.match(rf"{one}\b", reply, re.I)), None)
        if right is not None and verdict in ("yes", "no") and verdict != right:
            found.add("ungrounded", turn.number, f"{reply[:40]} to: {question[:120]}")
        for word in sorted((set(words(reply)) & hidden) - agent_words):
            found.add("leaked", turn.number, word)
        matching = {i for i, one in enumerate(story["criteria"]) if normalise(one["ask"]) == normalise(question)}
        again += len(matching & asked)
        asked |= matching
    answers = [turn for turn in talk.turns if turn.choice == "answer"]
    best = max((float(turn.info.get("score", 0.0)) for turn in answers), default=0.0)
    if not talk.solved:
        found.blame("wrong answer" if answers else "no answer", _last(talk), talk.ending)
    found.goal = Goal(
        len(story["criteria"]), len(asked), again, len(story["criteria"]), round(best * len(story["criteria"]))
    )
    return found


GAMES: Mapping[str, Callable[[Conversation], Findings]] = {
    "wish": wish,
    "errand": errand,
    "travel": travel,
    "intention": intention,
    "turtle": turtle,
}
"""The audit of each gym, by its name."""

NEEDED: Mapping[str, tuple[str, ...]] = {
    "wish": ("wished", "best", "wrong"),
    "errand": ("chain",),
    "travel": (),
    "intention": (),
    "turtle": ("title", "surface", "criteria"),
}
"""Keys of a task's payload that the audit of its gym reads. travel and intention check their own payloads."""


def holds_truth(task: Task) -> bool:
    """Return whether a task of one of these gyms is the gym's own, and was stored with the run."""
    ours = bool(task.payload) and not task.source.startswith("imported")
    return ours and all(key in task.payload for key in NEEDED[task.gym])


def _answer(story: Mapping[str, Any], question: str) -> str | None:
    """Return the story's answer to a question, or None where the story has none."""
    if any(normalise(criterion["ask"]) == normalise(question) for criterion in story["criteria"]):
        return "yes"
    if story.get("yes") is None or not story.get("no"):
        return None
    patterns = [criterion["pattern"] for criterion in story["criteria"] if criterion["pattern"]]
    question_words = words(question)
    yes, no = strongest_match([*patterns, *story["yes"]], question_words), strongest_match(story["no"], question_words)
    return None if yes == no else "yes" if yes > no else "no"


def _answered(found: Findings, talk: Conversation, best: str) -> None:
    answers = [turn for turn in talk.turns if turn.choice == "answer" and turn.observation]
    if talk.solved:
        return
    if talk.ending == "gave_up" and answers:
        found.blame("wrong answer", answers[-1].number, f"{answers[-1].content} for {best}")
    else:
        found.blame("no answer", _last(talk), talk.ending)


def _talk(talk: Conversation) -> list[Turn]:
    return [turn for turn in talk.turns if turn.choice == "action"]


def _words(text: str | None) -> list[str]:
    return re.findall(r"[a-z]+", (text or "").lower())


def _last(talk: Conversation) -> int:
    return talk.turns[-1].number if talk.turns else 0
