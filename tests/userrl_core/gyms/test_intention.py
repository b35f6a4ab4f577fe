"""IntentionGym: rewards, the knowledge of its prompts, our tasks and the published ones."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars
import pytest

from tests.makers import raises
from tests.published import published
from userrl_core.errors import UserError
from userrl_core.gyms import load_published, make, tasks
from userrl_core.gyms.intention.gym import Detail, Exchange, IntentionGym, details_of
from userrl_core.gyms.intention.rule_user import RuleIntentionUser
from userrl_core.gyms.validate import validate
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class ScriptedUser:
    """A user with given judgements and a given reply or error."""

    def __init__(self, *judgements: Sequence[Any], reply: str | Exception = "Well.") -> None:
        self.judgements = list(judgements)
        self.answer = reply
        self.questions: list[str] = []
        self.conversations: list[Sequence[Exchange]] = []

    async def reply(self, question: str, conversation: Sequence[Exchange]) -> str:
        self.conversations.append(conversation)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def covered(self, question: str, remaining: Sequence[Detail]) -> Sequence[int]:
        self.questions.append(question)
        return self.judgements.pop(0)


def make_task(*importances: int) -> Task:
    details = [
        {
            "description": f"thing {i}",
            "importance": imp,
            "inquiry": f"What about thing number {i}?",
            "options": ["a", "b"],
        }
        for i, imp in enumerate(importances)
    ]
    return Task("intention", "t", "train", {"category": "Things", "task": "Do it.", "details": details})


def make_gym(user: ScriptedUser, *importances: int, **config: Any) -> IntentionGym:
    gym = make("intention", make_task(*importances), user, **config)
    assert isinstance(gym, IntentionGym)
    gym.reset(seed=0)
    return gym


def ask(gym: IntentionGym, text: str = "Which?") -> Any:
    return asyncio.run(gym.step(InteractCall("action", text)))


@pytest.mark.parametrize(("importance", "reward"), [(3, 1.0), (2, 0.7), (1, 0.4)])
def test_a_question_earns_the_base_reward_of_its_importance(importance: int, reward: float) -> None:
    assert ask(make_gym(ScriptedUser([0]), importance)).reward == reward


@pytest.mark.parametrize(
    ("indices", "reward"),
    [([], 0.0), ([0, 1], 0.8), ([1, 2], 0.5), ([0, 1, 2], 0.6), ([2, 3], 0.2), ([2, 3, 4], 0.0), ([2, 3, 4, 5], 0.0)],
)
def test_the_highest_importance_counts_less_a_fifth_per_further_detail_but_never_below_zero(
    indices: list[int], reward: float
) -> None:
    assert ask(make_gym(ScriptedUser(indices), 3, 2, 1, 1, 1, 1)).reward == pytest.approx(reward, abs=1e-12)


def test_duplicate_indices_count_once() -> None:
    gym = make_gym(ScriptedUser([1, 1, 1], [0]), 3, 2)
    assert ask(gym).reward == 0.7
    assert [detail.description for detail in gym.remaining] == ["thing 0"]
    assert ask(gym).terminated


def test_a_covered_detail_is_never_rewarded_again() -> None:
    gym = make_gym(ScriptedUser([0], []), 3, 2)
    assert [ask(gym).reward, ask(gym).reward] == [1.0, 0.0]


@pytest.mark.parametrize("indices", [[2], [-1], [True], ["0"], [0.0], [None]])
def test_an_index_that_is_not_on_the_list_is_a_failed_judgement_and_not_a_reward(indices: list[Any]) -> None:
    with raises("judge.no_reply"):
        ask(make_gym(ScriptedUser(indices), 3, 2))


def test_the_episode_ends_when_every_detail_is_covered_and_the_score_is_the_sum() -> None:
    gym = make_gym(ScriptedUser([1], [0], [0]), 3, 2, 1)
    results = [ask(gym) for _ in range(3)]
    assert [r.terminated for r in results] == [False, False, True]
    assert gym.score() == pytest.approx(2.1) == pytest.approx(gym.full_score)
    assert results[-1].info["success"] is True


def test_rewards_and_penalty_are_config_fields() -> None:
    gym = make_gym(ScriptedUser([0, 1]), 3, 1, high=2.0, multi_penalty=0.5)
    assert ask(gym).reward == 1.5


def test_reply_and_judgement_run_concurrently() -> None:
    class WaitingUser(ScriptedUser):
        def __init__(self) -> None:
            super().__init__([0])
            self.replying, self.judging = asyncio.Event(), asyncio.Event()

        async def reply(self, question: str, conversation: Sequence[Exchange]) -> str:
            self.replying.set()
            await asyncio.wait_for(self.judging.wait(), 60)
            return "both ran"

        async def covered(self, question: str, remaining: Sequence[Detail]) -> Sequence[int]:
            self.judging.set()
            await asyncio.wait_for(self.replying.wait(), 60)
            return [0]

    async def play() -> str:
        gym = make("intention", make_task(3), WaitingUser())
        gym.reset(seed=0)
        return (await gym.step(InteractCall("action", "?"))).observation

    assert asyncio.run(play()) == "both ran"


def test_when_one_of_the_two_calls_fails_its_own_error_is_raised() -> None:
    with pytest.raises(UserError, match="down"):
        ask(make_gym(ScriptedUser([0], reply=UserError("user.no_reply", "down")), 3))


def test_the_replying_side_is_given_only_earlier_questions_and_answers() -> None:
    user = ScriptedUser([0], [0])
    gym = make_gym(user, 3, 2)
    ask(gym, "First?")
    ask(gym, "Second?")
    assert user.conversations == [(), (Exchange("First?", "Well."),)]


def test_the_opening_names_no_detail() -> None:
    for split in ("train", "validation", "test"):
        for task in tasks("intention", split):
            opening = make("intention", task).reset(seed=0)
            assert task.payload["task"] in opening
            for detail in details_of(task):
                assert detail.inquiry not in opening
                assert detail.description.lower() not in opening.lower()


def test_only_action_is_allowed_and_another_choice_earns_nothing() -> None:
    gym = make_gym(ScriptedUser(), 3)
    assert gym.choices() == ("action",)
    assert asyncio.run(gym.step(InteractCall("answer", "x"))).reward == 0.0


def test_the_rule_user_recognises_a_question_in_other_words() -> None:
    task = next(t for t in tasks("intention", "train") if len(details_of(t)) >= 3)
    user = RuleIntentionUser(task, random.Random(0))
    details = details_of(task)
    for i, detail in enumerate(details):
        for question in (
            f"Could you tell me about the {detail.description.lower()}?",
            f"{detail.inquiry.upper()} Thanks!",
        ):
            assert i in asyncio.run(user.covered(question, details))
    assert asyncio.run(user.covered("How are you today?", details)) == []
    assert "no view" in asyncio.run(user.reply("How are you today?", ()))


def test_the_rule_users_reply_names_only_what_was_asked_for() -> None:
    task = next(t for t in tasks("intention", "train") if len(details_of(t)) >= 3)
    first, *others = details_of(task)
    reply = asyncio.run(RuleIntentionUser(task, random.Random(0)).reply(first.inquiry, ()))
    assert first.description in reply
    assert all(other.description not in reply for other in others)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"importance": "4"}, "entry 1: field 'missing_details[0].importance' is '4'"),
        ({"inquiry": None}, "entry 1, missing_details[0]: field 'inquiry'"),
        ({"options": "x"}, "entry 1: field 'missing_details[0].options'"),
    ],
)
def test_a_bad_published_row_names_its_file_index_and_field(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    root = write_sample(tmp_path, change)
    with raises("task.invalid_field", f"all_intentions_train.json, {message}"):
        load_published("intention", root)


def test_a_published_row_without_its_environment_entry_is_named(tmp_path: Path) -> None:
    root = write_sample(tmp_path, {})
    (root / "gyms/IntentionGym/intentiongym/data/all_intentions_train.json").write_text("[]")
    with raises("task.none_left", "all_intentions_train.json is empty"):
        load_published("intention", root)
    test = root / "gyms/IntentionGym/intentiongym/data/all_intentions_test.json"
    (root / "gyms/IntentionGym/intentiongym/data/all_intentions_train.json").write_text(test.read_text())
    with raises("task.file_unreadable", "1 of 2 entries that the table of released rows names", "such as 'a'"):
        load_published("intention", root)


def test_two_published_entries_with_one_id_are_refused_if_they_differ(tmp_path: Path) -> None:
    root = write_sample(tmp_path, {})
    path = root / "gyms/IntentionGym/intentiongym/data/all_intentions_train.json"
    entries = json.loads(path.read_text())
    path.write_text(json.dumps([*entries, entries[0]]))
    assert [task.id for task in load_published("intention", root)] == ["a", "c"]
    path.write_text(json.dumps([*entries, entries[0] | {"task": "Something else."}]))
    with raises("task.duplicate", f"entry {len(entries)}", "id 'a'"):
        load_published("intention", root)


def test_a_sample_in_the_published_format_loads(tmp_path: Path) -> None:
    loaded = load_published("intention", write_sample(tmp_path, {}))
    assert [(t.id, t.split, t.source) for t in loaded] == [
        ("a", "train", "published:userrl"),
        ("c", "test", "published:userrl"),
    ]
    assert details_of(loaded[0]) == (Detail("Where", 2, "Where to?", ("here",)),)


def write_sample(root: Path, change: dict[str, Any]) -> Path:
    """Four entries in the released format; the rows play two of them."""
    detail = {"description": "Where", "importance": "2", "inquiry": "Where to?", "options": ["here"]}
    env = root / "gyms/IntentionGym/intentiongym/data"
    env.mkdir(parents=True)

    def entry(key: str, **fields: Any) -> dict[str, Any]:
        return {"id": key, "category": "Trips", "task": f"Go {key}.", "missing_details": [{**detail, **fields}]}

    (env / "all_intentions_train.json").write_text(json.dumps([entry("a"), entry("b", **change)]))
    (env / "all_intentions_test.json").write_text(json.dumps([entry("c"), entry("d")]))
    rows = root / "data/intention_multiturn"
    rows.mkdir(parents=True)
    for split, key in (("train", "a"), ("test", "c")):
        polars.DataFrame({"reward_model": [{"id": key, "env_name": "IntentionGym"}]}).write_parquet(
            rows / f"{split}.parquet"
        )
    return root


def test_all_published_tasks_load_with_the_counts_of_table_2_and_their_gold_reaches_the_full_score() -> None:
    published_tasks = load_published("intention", published("userrl"))
    assert sum(t.split == "test" for t in published_tasks) == 40
    assert sum(t.split != "test" for t in published_tasks) == 380
    assert all(validate(task).ok for task in published_tasks)
