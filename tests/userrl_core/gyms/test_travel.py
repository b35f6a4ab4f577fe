"""TravelGym's rules: rewards, endings, searches, choices, and the defects of the released code that it does not have."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.makers import raises
from userrl_core import gyms
from userrl_core.errors import UserError
from userrl_core.gyms.travel.config import TravelConfig
from userrl_core.gyms.travel.gym import TravelGym
from userrl_core.gyms.travel.rule_user import question_for
from userrl_core.gyms.travel.tasks import tasks
from userrl_core.gyms.travel.world import HistoryLine, MessageReading, Preference, SearchJudgement
from userrl_core.interact import InteractCall
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task
from userrl_core.rollout import run_episodes


def make_task(aspects: Sequence[str] = ("hotel", "flight")) -> Task:
    """Per aspect two preferences and options 1 (best), 2 and 3 (correct), 4 and 5 (wrong)."""
    letters = {"hotel": "H", "flight": "F"}
    categories = {"hotel": ("beds", "facilities"), "flight": ("stops", "cabin")}
    payload: dict[str, Any] = {"opening": "A trip.", "aspects": {}}
    for n, name in enumerate(aspects):
        held = [
            {"id": f"P{2 * n + i}", "category": c, "preference": f"{c} preference", "implicit": f"hint {c}", "rule": {}}
            for i, c in enumerate(categories[name], 1)
        ]
        ids = [f"{letters[name]}{i}" for i in range(1, 6)]
        arguments = {"city": "Rome", "date_start": "2026-05-01", "date_end": "2026-05-04"}
        if name == "flight":
            arguments = {"origin": "Oslo", "destination": "Rome", "date": "2026-05-01"}
        payload["aspects"][name] = {
            "arguments": arguments,
            "preferences": held,
            "options": [{"id": option_id} for option_id in ids],
            "best": ids[0],
            "correct": ids[:3],
        }
    return Task("travel", "t", "train", payload, tier="easy")


class ScriptedUser:
    """A user that reads its judgement from the message: a kind, or the id of a preference; in a query an aspect."""

    async def judge(
        self, utterance: str, candidates: Sequence[Preference], history: Sequence[HistoryLine]
    ) -> MessageReading:
        if utterance.startswith("P"):
            return MessageReading("held", utterance)
        return MessageReading(utterance)  # type: ignore[arg-type]

    async def match(self, query: str, history: Sequence[HistoryLine]) -> SearchJudgement:
        return SearchJudgement(query) if query in ("wrong", "unrelated") else SearchJudgement("match", query)  # type: ignore[arg-type]

    async def reveal(
        self, utterance: str, preference: Preference, history: Sequence[HistoryLine], *, asked: bool
    ) -> str:
        return preference.implicit

    async def chat(self, utterance: str, history: Sequence[HistoryLine]) -> str:
        return "hm"


def make_gym(task: Task | None = None, **options: Any) -> TravelGym:
    gym = gyms.make("travel", task or make_task(), ScriptedUser(), **options)
    gym.reset(seed=0)
    assert isinstance(gym, TravelGym)
    return gym


async def step(gym: TravelGym, *calls: tuple[str, str]) -> list[float | None]:
    """Rewards of these calls."""
    return [(await gym.step(InteractCall(*call))).reward for call in calls]


async def test_a_held_preference_is_rewarded_once_and_revealed_implicitly():
    gym = make_gym()
    result = await gym.step(InteractCall("action", "P1"))
    assert (result.observation, result.reward, result.terminated) == ("hint beds", 0.2, False)
    assert result.info == {"utterance": "held", "preference": "P1", "elicited": "active"}
    again = await gym.step(InteractCall("action", "P1"))
    assert (again.reward, again.info["utterance"]) == (0.0, "not_held")


@pytest.mark.parametrize("kind", ["not_held", "too_vague", "other"])
async def test_the_other_kinds_of_utterance_earn_nothing_and_have_replies_of_their_own(kind: str):
    gym = make_gym()
    result = await gym.step(InteractCall("action", kind))
    assert (result.reward, result.info["utterance"]) == (0.0, kind)
    assert "hint" not in result.observation


async def test_a_judgement_with_an_unknown_preference_elicits_nothing():
    gym = make_gym()
    assert await step(gym, ("action", "P99")) == [0.0]
    assert gym.progress.active == []


async def test_after_three_messages_without_elicitation_the_user_volunteers_a_preference_without_reward():
    gym = make_gym()
    results = [(await gym.step(InteractCall("action", "other"))) for _ in range(4)]
    assert [result.info.get("elicited") for result in results] == [None, None, None, "passive"]
    assert results[3].observation.startswith("hint")
    assert results[3].reward == 0.0
    assert len(gym.progress.passive) == 1


async def test_a_volunteered_preference_is_counted_once():
    gym = make_gym()
    for _ in range(4):
        await gym.step(InteractCall("action", "too_vague"))
    (volunteered,) = gym.progress.passive
    assert await step(gym, ("action", volunteered)) == [0.0]
    assert gym.progress.active == []


async def test_an_elicitation_resets_the_interval():
    gym = make_gym()
    kinds = ["other", "other", "other", "P1", "other", "other", "other"]
    infos = [(await gym.step(InteractCall("action", kind))).info for kind in kinds]
    assert [info.get("elicited") for info in infos] == [None, None, None, "active", None, None, None]


async def test_nothing_is_volunteered_once_every_preference_is_revealed():
    gym = make_gym(make_task(["hotel"]))
    await step(gym, ("action", "P1"), ("action", "P2"))
    infos = [(await gym.step(InteractCall("action", "other"))).info for _ in range(6)]
    assert not any("elicited" in info for info in infos)


async def test_what_is_volunteered_depends_on_the_gyms_seed_alone():
    async def volunteered(seed: int) -> str:
        gym = gyms.make("travel", make_task(), ScriptedUser())
        gym.reset(seed=seed)
        random.seed(0)
        for _ in range(4):
            result = await gym.step(InteractCall("action", "other"))
        return str(result.info["preference"])

    assert [await volunteered(s) for s in range(8)] == [await volunteered(s) for s in range(8)]
    assert len({await volunteered(s) for s in range(20)}) > 1


async def test_a_search_is_rewarded_once_per_aspect():
    gym = make_gym()
    assert await step(gym, ("search", "hotel"), ("search", "hotel"), ("search", "flight")) == [0.2, 0.0, 0.2]


@pytest.mark.parametrize("query", ["wrong", "unrelated", "restaurant"])
async def test_a_search_with_other_arguments_returns_nothing(query: str):
    gym = make_gym()
    result = await gym.step(InteractCall("search", query))
    assert result.reward == 0.0
    assert "H1" not in result.observation


async def test_every_fifth_search_fails():
    gym = make_gym()
    infos = [(await gym.step(InteractCall("search", query))).info["search"] for query in ["wrong"] * 4 + ["hotel"] * 2]
    assert infos == ["wrong"] * 4 + ["failed", "match"]


async def test_a_search_shows_every_option_without_its_type():
    task = gyms.tasks("travel", "test", tier="22")[0]
    gym = gyms.make("travel", task)
    gym.reset(seed=0)
    calls = [call for call in TravelGym.gold(task) if call.choice == "search"]
    text = (await gym.step(calls[0])).observation
    assert text.count('"id"') == 18
    assert not any(word in text for word in ("correct", "wrong", "noise", "reason", "best"))


async def test_best_correct_and_wrong_options_earn_their_rewards():
    for option, reward, score in (("H1", 1.0, 0.5), ("H2", 0.8, 0.4), ("H4", 0.0, 0.0)):
        gym = make_gym()
        assert await step(gym, ("answer", option)) == [reward]
        assert gym.score() == score


@pytest.mark.parametrize(("end_when", "ended"), [("all_best", False), ("all_chosen", True)])
async def test_the_first_choice_per_aspect_counts_and_the_last_aspect_ends_the_episode_where_that_is_the_rule(
    end_when: str, ended: bool
):
    gym = make_gym(end_when=end_when)
    assert await step(gym, ("answer", "H2"), ("answer", "H1")) == [0.8, 0.0]
    result = await gym.step(InteractCall("answer", "F1"))
    assert (result.reward, result.terminated) == (1.0, ended)
    assert gym.score() == pytest.approx(0.9)
    assert not gym.succeeded


async def test_the_best_option_of_every_aspect_is_a_success():
    gym = make_gym()
    await step(gym, ("answer", "H1"), ("answer", "F1"))
    assert gym.done
    assert gym.succeeded
    assert gym.score() == 1.0


async def test_irrelevant_ids_do_not_count_toward_the_end():
    gym = make_gym()
    results = [await gym.step(InteractCall("answer", option_id)) for option_id in ("C1", "R3", "A7")]
    assert [(r.reward, r.terminated) for r in results] == [(0.0, False)] * 3
    assert await step(gym, ("answer", "H1"), ("answer", "F1")) == [1.0, 1.0]


@pytest.mark.parametrize("content", ["", "hotel 1", "X1", "H", "1", "H1 F1", "H1;F1", "H12345", "H-1", "the first"])
async def test_an_invalid_id_is_refused_and_nothing_is_recorded(content: str):
    gym = make_gym()
    assert await step(gym, ("answer", content)) == [0.0]
    assert gym.progress.chosen == {}


async def test_several_ids_in_one_message_are_recorded_together_or_not_at_all():
    gym = make_gym()
    assert await step(gym, ("answer", "H1, junk"), ("answer", "H1, H2")) == [0.0, 0.0]
    assert gym.progress.chosen == {}
    assert await step(gym, ("answer", "h1, F2")) == [1.0]
    assert not gym.done  # F2 is not the best: the paper ends only where all best are chosen
    assert gym.score() == pytest.approx(0.9)
    assert await step(make_gym(turn_cap=None), ("answer", "H1, F2")) == [1.8]


async def test_an_id_that_occurs_twice_in_a_message_keeps_its_first_verdict():
    gym = make_gym(one_choice_per_aspect=False)
    result = await gym.step(InteractCall("answer", "H1, H2, H1"))
    assert result.info["choices"] == {"H1": "best", "H2": "correct"}


async def test_the_multi_choice_setting_continues_until_all_best_options_are_chosen():
    gym = make_gym(one_choice_per_aspect=False)
    calls = [("answer", option_id) for option_id in ("H4", "H2", "H2", "H1", "F1")]
    assert await step(gym, *calls) == [0.0, 0.8, 0.0, 1.0, 1.0]
    assert gym.done
    assert gym.score() == 1.0


async def test_in_the_multi_choice_setting_the_best_of_all_choices_is_scored():
    gym = make_gym(one_choice_per_aspect=False)
    await step(gym, ("answer", "H4"), ("answer", "H3"))
    assert gym.score() == pytest.approx(0.4)


async def test_preferences_of_a_chosen_aspect_are_no_longer_rewarded():
    gym = make_gym()
    assert await step(gym, ("answer", "H1"), ("action", "P1"), ("action", "P3")) == [1.0, 0.0, 0.2]


async def test_a_penalty_for_wrong_options_never_makes_a_turn_negative():
    gym = make_gym(wrong_penalty=0.5)
    assert await step(gym, ("answer", "H4")) == [0.0]
    assert await step(make_gym(wrong_penalty=0.3, turn_cap=None), ("answer", "H1, F4")) == [0.7]


async def test_the_strength_of_the_budget_reward_is_a_config_field():
    gym = make_gym(correct_reward=0.3)
    assert await step(gym, ("answer", "H2")) == [0.3]
    assert gym.score() == pytest.approx(0.15)


def test_the_published_settings_are_presets_and_given_fields_override_them():
    assert TravelConfig(preset="userrl_train").preference_reward == 0.8
    assert TravelConfig(preset="userrl_train").search_reward == 0.0
    assert TravelConfig(preset="userrl_eval", search_reward=0.1).search_reward == 0.1
    assert TravelConfig(preset="userrl_eval").preference_reward == 0.6
    assert make_gym(preset="userrl_train").config.preference_reward == 0.8
    with raises("gym.bad_option"):
        make_gym(preset="usual")


def test_the_tiny_tier_has_its_own_defaults_and_a_given_field_overrides_them():
    tiny = gyms.tasks("travel", "train", tier="tiny")[0]
    config = gyms.make("travel", tiny, best_reward=0.7).config
    assert (config.best_reward, config.preference_reward, config.terse) == (0.7, 0.1, True)


async def test_the_error_of_a_user_that_is_down_passes_through():
    class FailingUser(ScriptedUser):
        async def judge(self, *_: Any) -> MessageReading:
            raise UserError("user.no_reply", "the model is down")

    gym = gyms.make("travel", make_task(), FailingUser())
    gym.reset(seed=0)
    with pytest.raises(UserError):
        await gym.step(InteractCall("action", "P1"))


# The tiny tier.


def tiny_gym(task: Task) -> TravelGym:
    gym = gyms.make("travel", task)
    gym.reset(seed=0)
    assert isinstance(gym, TravelGym)
    return gym


async def test_four_turns_solve_a_tiny_task_and_earn_one_in_total():
    task = gyms.tasks("travel", "test", tier="tiny")[0]
    gym = tiny_gym(task)
    assert gyms.min_turns(task) == 4
    assert gym.brief() == f"book a hotel by {' and '.join(p.category for p in gym.world.preferences.values())}"
    results = [await gym.step(call) for call in TravelGym.gold(task)]
    assert [r.reward for r in results] == [0.1, 0.1, 0.0, 0.8]
    assert [r.terminated for r in results] == [False, False, False, True]
    assert results[3].observation == "right"
    assert gym.succeeded


async def test_a_tiny_search_narrows_only_when_both_preferences_are_stated_and_nothing_else():
    task = gyms.tasks("travel", "test", tier="tiny")[0]
    first, second = (p["preference"] for p in task.payload["aspects"]["hotel"]["preferences"])
    all_values = "cheap fair high centre beach hills vegan meat fish"
    for query, options in (
        (f"{first} {second}", 1), (f"{second} {first} hotel", 1), (first, 3), ("hotel", 3), (all_values, 3), ("", 3),
    ):  # fmt: skip
        text = (await tiny_gym(task).step(InteractCall("search", query))).observation
        assert len(text.split()) == 1 + options
        assert text.startswith("found ")


async def test_a_wrong_tiny_answer_ends_the_episode():
    task = gyms.tasks("travel", "test", tier="tiny")[0]
    best = task.payload["aspects"]["hotel"]["best"]
    for content in ("H1" if best != "H1" else "H2", "cheap", ""):
        gym = tiny_gym(task)
        result = await gym.step(InteractCall("answer", content))
        assert (result.observation, result.reward, result.terminated) == ("wrong", 0.0, True)


async def test_a_tiny_preference_asked_for_again_is_revealed_again_without_reward():
    task = gyms.tasks("travel", "test", tier="tiny")[0]
    gym = tiny_gym(task)
    question = InteractCall("action", question_for(next(iter(gym.world.preferences.values())), "tiny"))
    first, second = await gym.step(question), await gym.step(question)
    assert (first.observation, first.reward, second.reward) == (second.observation, 0.1, 0.0)


async def test_the_reply_to_a_question_without_a_tiny_preference_is_any():
    task = gyms.tasks("travel", "test", tier="tiny")[0]
    other = {"price", "area", "meal"} - {p["category"] for p in task.payload["aspects"]["hotel"]["preferences"]}
    result = await tiny_gym(task).step(InteractCall("action", f"{other.pop()}?"))
    assert (result.observation, result.reward) == ("any", 0.0)


def test_every_wrong_tiny_option_violates_a_preference():
    for task in gyms.tasks("travel", "train", tier="tiny")[::100]:
        hotel = task.payload["aspects"]["hotel"]
        preferred = {p["category"]: p["preference"] for p in hotel["preferences"]}
        matching = [o["id"] for o in hotel["options"] if all(o[c] == v for c, v in preferred.items())]
        assert matching == hotel["correct"] == [hotel["best"]]


@pytest.mark.parametrize(("skill", "questions"), [(0.0, 0), (1.0, 2)])
async def test_a_skill_in_the_gyms_config_replaces_the_demonstrators(skill: float, questions: int) -> None:
    chosen = tasks("train", "tiny")[:5]
    settings = {"travel": {"wording": "english", "demonstrator_skill": skill}}
    played = await run_episodes(chosen, ScriptedPolicy(0.5), horizon=6, user="rule", gym_config=settings)
    asked = [sum(turn.choice == "action" for turn in trajectory.turns) for trajectory in played]
    assert asked == [questions] * len(chosen)
