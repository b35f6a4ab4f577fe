"""TravelGym's user with the texts and the message order of the released code of UserRL and UserBench (``prompts: released``).

The prompts contain the conversation with the released notes and replies, so the gym shows the agent the released replies too.
Unlike there, an unreadable reply is requested again and then gives a null reward (there: a normal conversation).
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from userrl_core.gyms.released_texts import Source, Template, published_root
from userrl_core.gyms.served_user import ServedUser
from userrl_core.gyms.travel.replies import ReplyTexts
from userrl_core.gyms.travel.world import (
    ASPECTS,
    HistoryLine,
    MessageReading,
    Preference,
    SearchJudgement,
    SearchKind,
    UtteranceKind,
    World,
)
from userrl_core.records import Task
from userrl_core.served.plain import read_object, read_text, spoken

KINDS: Mapping[str, UtteranceKind] = {"1": "other", "2": "held", "3": "not_held", "4": "too_vague"}
"""The released numbers of the kinds of utterance."""
SEARCHES: Mapping[str, SearchKind] = {"True": "match", "False": "wrong", "N/A": "unrelated"}
"""The released judgements of a query."""
CARS = ("rental car", "car rental")
FOLDERS = (("userrl", "gyms/TravelGym/travelgym/env"), ("userbench", "travelgym/env"))
"""Places of the texts, which are the same in both repositories."""
EVALUATE = "async_evaluate_action"


@dataclass(frozen=True, slots=True)
class TravelTexts:
    """The released texts: prompts (system, user) by call, pieces of the prompts, notes by kind, and the agent's replies."""

    search: tuple[str, str]
    judge: tuple[str, str]
    elicited: tuple[str, str]
    volunteered: tuple[str, str]
    natural: tuple[str, str]
    argument: Template
    preference: Template
    revealed: tuple[Template, Template]
    history: tuple[Template, ...]
    no_history: str
    notes: Mapping[str, Template]
    volunteered_note: str
    replies: ReplyTexts
    several: ReplyTexts


@lru_cache(maxsize=4)
def read_texts(root: Path) -> TravelTexts:
    """Read the texts from a folder of published data. Raises MissingFileError or ConfigError."""
    part, folder = next((place for place in FOLDERS if (root / place[0] / place[1]).is_dir()), FOLDERS[0])
    prompts, code = Source(root, part, f"{folder}/utils.py"), Source(root, part, f"{folder}/prompt_async.py")

    def pair(name: str) -> tuple[str, str]:
        return prompts.constant(f"{name}_SYSTEM"), prompts.constant(f"{name}_USER")

    schemas = {name: prompts.entry("OPTION_SCHEMAS", name).strip() for name in ASPECTS}
    other, held, not_held, too_vague, *_ = code.assigned(EVALUATE, "note", 6)
    return TravelTexts(
        search=pair("JUDGE_SEARCH"),
        judge=pair("JUDGE_PROMPT"),
        elicited=pair("RESPONSE_PREFERENCE"),
        volunteered=pair("RESPONSE_ELICIT"),
        natural=pair("RESPONSE_NATURAL"),
        argument=code.added("async_generate_judge_search", "arg_string")[0],
        preference=code.added("async_generate_judge_response", "preferences_str")[0],
        revealed=code.assigned(EVALUATE, "preference_str", 2),  # type: ignore[arg-type]
        history=prompts.added("build_history_into_prompt", "history_str"),
        no_history=prompts.returned("build_history_into_prompt").text,
        notes={"other": other, "held": held, "not_held": not_held, "too_vague": too_vague},
        volunteered_note=code.values(EVALUATE, "note", 1)[0].text,
        replies=_replies(code, schemas, several=False),
        several=_replies(code, schemas, several=True),
    )


def _replies(code: Source, schemas: Mapping[str, str], *, several: bool) -> ReplyTexts:
    not_held, too_vague = code.assigned(EVALUATE, "response", 2)
    options, before, wrong, unrelated, failed, bad_id, chosen, best, _, correct, _, none, *recordings = code.assigned(
        EVALUATE, "feedback", 14
    )
    recorded = recordings[several]
    return ReplyTexts(
        not_held=not_held.text,
        too_vague=too_vague.text,
        search_failed=failed.text,
        search_wrong=wrong.text,
        search_unrelated=unrelated.text,
        searched_before=before.fill(alignment_aspect="{aspect}"),
        bad_id=bad_id.text,
        chosen_before=chosen.fill(id_initial="{initial}"),
        foreign=recorded.fill(feedback=none.text),
        best=recorded.fill(feedback=best.text),
        correct=recorded.fill(feedback=correct.text),
        wrong=recorded.fill(feedback=none.text),
        found=options.fill(schema="{schema}", alignment_aspect="{aspect}"),
        skipped=code.values(EVALUATE, "content", 2)[0].parts[-1][1],
        schemas=schemas,
    )


class ReleasedTravelUser(ServedUser):
    """A served user with the released prompts. texts: the folder of published data; further options of `ChatServer`.

    Judging raises JudgeError, speaking raises UserError.
    """

    def __init__(self, task: Task, rng: random.Random, *, texts: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._texts = read_texts(published_root(texts))
        self._world = World.of(task.payload)
        self._scenario = str(task.payload.get("scenario", self._world.scenario))
        self._notes: list[str] = []
        self.replies, self.several = self._texts.replies, self._texts.several
        """The replies of user and database that the gym shows: with one choice per aspect, and with several."""

    async def judge(
        self, utterance: str, candidates: Sequence[Preference], history: Sequence[HistoryLine]
    ) -> MessageReading:
        """Judge a message with one call over the candidates."""
        ids = {preference.id for preference in candidates}
        listed = "".join(
            self._texts.preference.fill(
                **{
                    "preference['id']": p.id,
                    "preference['aspect']": p.aspect,
                    "preference['preference']": p.preference,
                }
            )
            for p in candidates
        )

        def read(text: str) -> MessageReading:
            judgement = read_object(text, "type")
            kind = KINDS.get(str(judgement["type"]).strip())
            preference_id = str(judgement.get("preference_id", "")).strip()
            if kind is None or (kind == "held" and preference_id not in ids):
                raise ValueError("the type is not one of four, or the preference is not listed")
            return MessageReading(kind, preference_id if kind == "held" else None)

        prompt = self._texts.judge[1].format(
            scenario=self._scenario,
            conversation_history=self._talk(history),
            latest_utterance=spoken(utterance),
            preferences_list=listed.strip(),
        )
        reading = await self._ask_in_words(self._texts.judge[0], prompt, "judge", read)
        note = self._texts.notes[reading.kind]
        self._notes.append(note.fill(preference_id=reading.preference_id or ""))
        return reading

    async def match(self, query: str, history: Sequence[HistoryLine]) -> SearchJudgement:
        """Judge a query with one call over the arguments."""
        arguments = "".join(
            self._texts.argument.fill(
                **{"dimension": name, "json.dumps(argument, indent=4)": json.dumps(dict(aspect.arguments), indent=4)}
            )
            for name, aspect in self._world.aspects.items()
        )

        def read(text: str) -> SearchJudgement:
            judgement = read_object(text, "alignment_judgement")
            kind = SEARCHES.get(str(judgement["alignment_judgement"]).strip())
            name = str(judgement.get("alignment_aspect", "")).lower().strip()
            name = "rental_car" if name in CARS else name
            if kind is None or (kind == "match" and name not in self._world.aspects):
                raise ValueError("the judgement is none of True, False and N/A, or its aspect is no part of the trip")
            return SearchJudgement(kind, name if kind == "match" else None)

        system, user = self._texts.search
        prompt = user.format(agent_request=spoken(query, "search"), ground_truth_arguments=arguments.strip())
        return await self._ask_in_words(system, prompt, "judge", read)

    async def reveal(
        self, utterance: str, preference: Preference, history: Sequence[HistoryLine], *, asked: bool
    ) -> str:
        """Reveal a preference with one speaking call, whose released prompt holds the preference itself."""
        name = "current_preference" if asked else "random_preference"
        preference_text = self._texts.revealed[0 if asked else 1].fill(
            **{
                "preference_id": preference.id,
                f"{name}['aspect']": preference.aspect,
                f"{name}['preference']": preference.preference,
                f"{name}['implicit_elicitation']": preference.implicit,
            }
        )
        if not asked and self._notes:
            self._notes[-1] = self._texts.volunteered_note
        system, user = self._texts.elicited if asked else self._texts.volunteered
        prompt = user.format(
            preference=preference_text.strip(),
            conversation_history=self._talk(history),
            latest_utterance=spoken(utterance),
        )
        return await self._ask_in_words(system, prompt, "user", _response)

    async def chat(self, utterance: str, history: Sequence[HistoryLine]) -> str:
        """Reply with one speaking call without a preference."""
        system, user = self._texts.natural
        prompt = user.format(conversation_history=self._talk(history), latest_utterance=spoken(utterance))
        return await self._ask_in_words(system, prompt, "user", _response)

    def _talk(self, history: Sequence[HistoryLine]) -> str:
        """Return the conversation as the released prompts have it, with a note after every message to the user."""
        if not history:
            return self._texts.no_history
        agent, noted, user, database, _, blank = self._texts.history
        notes, text = iter(self._notes), ""
        for line, after in zip(history, [*history[1:], None], strict=True):
            if line.speaker == "agent":
                to_user = after is not None and after.speaker == "user"
                text += agent.fill(content=spoken(line.text, "action" if to_user else "search"))
                text += noted.fill(note=next(notes, "")) if to_user else ""
            else:
                text += (user if line.speaker == "user" else database).fill(content=line.text)
            text += blank.text
        return text.strip()


def _response(text: str) -> str:
    return read_text(read_object(text, "response")["response"]).strip()
