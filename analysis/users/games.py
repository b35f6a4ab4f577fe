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
from userrl_core.gyms.intention.gym import details_of
from userrl_core.gyms.pool import THINGS
from userrl_core.gyms.stemming import normalise, strongest_match, words
from userrl_core.gyms.travel.world import World
from userrl_core.gyms.turtle.gym import full_explanation
from userrl_core.gyms.wish.tasks import COLOURS, GARMENTS
from userrl_core.records import Task, Turn


def wish(conversation: Conversation) -> Findings:
    """Compare the colours that the user said with those it has in mind."""
    findings, payload = Findings(agent=[]), conversation.task.payload
    target_colours: Mapping[str, str] = payload["wished"]
    findings.checked("ungrounded", "leaked", "unanswered")
    told_garments: set[str] = set()
    asked_garments: list[str] = []
    again = 0
    for turn in _action_turns(conversation):
        named_garments = [name for name in _words(turn.content) if name in GARMENTS]
        reply_words = set(_words(turn.observation))
        garment = named_garments[0] if len(set(named_garments)) == 1 else None
        for colour in sorted(reply_words & set(COLOURS)):
            if colour != target_colours.get(garment or ""):
                findings.add("ungrounded", turn.number, f"{colour} for {garment or 'no garment'}")
        for option in sorted(reply_words & {payload["best"], *payload["wrong"].values()}):
            findings.add("leaked", turn.number, option)
        if garment is None or garment not in target_colours:
            continue
        again += garment in told_garments
        asked_garments.append(garment)
        if target_colours[garment] in reply_words:
            told_garments.add(garment)
        elif garment not in told_garments:
            findings.add("unanswered", turn.number, garment, harmful=False)
    for garment in target_colours:
        # One refusal is a manner, which the agent can ask through. Two without an answer leave the agent nothing to do.
        if garment not in told_garments and asked_garments.count(garment) > 1:
            turns = [finding.turn for finding in findings.user["unanswered"] if finding.detail == garment]
            findings.add("unanswered", turns[-1], f"{garment} was never told")
    _answered(findings, conversation, payload["best"])
    findings.goal = Goal(len(target_colours), len(told_garments), again, 1, int(conversation.solved))
    return findings


def errand(conversation: Conversation) -> Findings:
    """Compare the things that the user named with the chain."""
    findings, chain = Findings(agent=[]), list(conversation.task.payload["chain"])
    findings.checked("ungrounded", "leaked", "unanswered")
    told_parts, again, mentioned = {chain[0]}, 0, {chain[0]}
    for turn in _action_turns(conversation):
        asked_name = next((name for name in _words(turn.content) if name in mentioned), None)
        reply_names = {name for name in _words(turn.observation) if name in THINGS} - {asked_name}
        if asked_name is None:
            continue
        index = chain.index(asked_name)
        part = chain[index + 1] if index + 1 < len(chain) else None
        again += part in told_parts if part else 0
        for other_name in sorted(reply_names - {part} - mentioned):
            findings.add("leaked" if other_name in chain else "ungrounded", turn.number, other_name)
        if part in reply_names and part is not None:
            told_parts.add(part)
            mentioned.add(part)
        elif part is not None and part not in told_parts:
            findings.add("unanswered", turn.number, asked_name)
    if not conversation.solved:
        findings.blame("unfinished", _last(conversation), conversation.ending)
    findings.goal = Goal(len(chain) - 1, len(told_parts) - 1, again, 1, int(conversation.solved))
    return findings


def travel(conversation: Conversation) -> Findings:
    """Compare the user's words with its trip and preferences, and the agent's choices with the best options."""
    findings = Findings(agent=[])
    try:
        world = World.of(conversation.task.payload)
    except TaskError:
        return Findings()
    findings.checked("ungrounded", "leaked", "unanswered")
    known_text = " ".join([world.scenario, *(f"{p.implicit} {p.preference}" for p in world.preferences.values())])
    for message, identifier, is_known in said_identifiers(conversation.messages(), known_text):
        findings.identifiers += 1
        if not is_known:
            findings.add("ungrounded", message.turn, identifier)
    elicited: set[str] = set()
    again = 0
    best = {aspect.best for aspect in world.aspects.values()}
    chosen: set[str] = set()
    agent_words = ""
    for turn in conversation.turns:
        if turn.choice == "answer":
            chosen |= set((turn.info.get("choices") or {}).keys())
        if turn.choice != "action":
            continue
        agent_words += turn.content or ""
        preference = turn.info.get("preference")
        again += preference in elicited
        if preference is not None:
            if turn.info.get("utterance") == "held" and not words_of(turn.observation):
                findings.add("unanswered", turn.number, str(preference))
            elicited.add(str(preference))
        for option in sorted(best):
            if re.search(rf"\b{option}\b", turn.observation) and option not in agent_words:
                findings.add("leaked", turn.number, option)
    if not conversation.solved:
        wrong = sorted(chosen - best)
        if wrong:
            findings.blame("wrong answer", _last(conversation), ", ".join(wrong))
        elif not chosen:
            findings.blame("no answer", _last(conversation), conversation.ending)
        else:
            findings.blame("unfinished", _last(conversation), conversation.ending)
    findings.goal = Goal(len(world.preferences), len(elicited), again, len(best), len(best & chosen))
    return findings


def intention(conversation: Conversation) -> Findings:
    """Count the details that the agent asked for. The user decides its own preferences, so none of its facts can be wrong."""
    findings, details = Findings(agent=[]), details_of(conversation.task)
    findings.checked("unanswered")
    covered = 0
    for turn in _action_turns(conversation):
        covered += int(turn.info.get("covered", 0))
        if turn.info.get("covered") and not words_of(turn.observation):
            findings.add("unanswered", turn.number, "an empty answer")
    if not conversation.solved:
        findings.blame("unfinished", _last(conversation), f"{covered} of {len(details)} details asked for")
    findings.goal = Goal(len(details), covered, 0, len(details), covered)
    return findings


def turtle(conversation: Conversation) -> Findings:
    """Compare the user's answers with the story: Yes to a criterion's question, Yes and No to the story's own patterns."""
    findings, story = Findings(agent=[]), conversation.task.payload
    findings.checked("ungrounded", "leaked")
    asked_criteria: set[int] = set()
    again = 0
    hidden = set(words(full_explanation(conversation.task))) - set(words(f"{story['title']} {story['surface']}"))
    agent_words: set[str] = set()
    for turn in _action_turns(conversation):
        question, reply = turn.content or "", words_of(turn.observation)
        agent_words |= set(words(question))
        right = _answer(story, question)
        verdict = next((answer for answer in ("yes", "no", "maybe") if re.match(rf"{answer}\b", reply, re.I)), None)
        if right is not None and verdict in ("yes", "no") and verdict != right:
            findings.add("ungrounded", turn.number, f"{reply[:40]} to: {question[:120]}")
        for hidden_word in sorted((set(words(reply)) & hidden) - agent_words):
            findings.add("leaked", turn.number, hidden_word)
        matching = {
            i for i, criterion in enumerate(story["criteria"]) if normalise(criterion["ask"]) == normalise(question)
        }
        again += len(matching & asked_criteria)
        asked_criteria |= matching
    answers = [turn for turn in conversation.turns if turn.choice == "answer"]
    best = max((float(turn.info.get("score", 0.0)) for turn in answers), default=0.0)
    if not conversation.solved:
        findings.blame("wrong answer" if answers else "no answer", _last(conversation), conversation.ending)
    findings.goal = Goal(
        len(story["criteria"]), len(asked_criteria), again, len(story["criteria"]), round(best * len(story["criteria"]))
    )
    return findings


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


def _answered(findings: Findings, conversation: Conversation, best: str) -> None:
    answers = [turn for turn in conversation.turns if turn.choice == "answer" and turn.observation]
    if conversation.solved:
        return
    if conversation.ending == "gave_up" and answers:
        findings.blame("wrong answer", answers[-1].number, f"{answers[-1].content} for {best}")
    else:
        findings.blame("no answer", _last(conversation), conversation.ending)


def _action_turns(conversation: Conversation) -> list[Turn]:
    return [turn for turn in conversation.turns if turn.choice == "action"]


def _words(text: str | None) -> list[str]:
    return re.findall(r"[a-z]+", (text or "").lower())


def _last(conversation: Conversation) -> int:
    return conversation.turns[-1].number if conversation.turns else 0
