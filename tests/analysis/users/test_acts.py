"""Words are read by a reader of acts, and facts by rules: what the audit does with acts that a test gives it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from analysis.measure.interval import corrected_share
from analysis.users.audit import audit
from analysis.users.grounding import new_claim, unknown_facts
from tests.analysis.users.faulty import WRONG_DATE, converse, moving_tasks
from userrl_core.judging.acts import Act, Utterance
from userrl_core.records import Task, Trajectory, Turn


class Given:
    """A reader that knows the acts of some texts."""

    name = "given"

    def __init__(self, **acts: tuple[str, Act]) -> None:
        self.acts = dict(acts.values())

    def read(self, utterances: Sequence[Utterance]) -> list[frozenset[Act]]:
        return [frozenset({self.acts[u.text]}) if u.text in self.acts else frozenset() for u in utterances]


@pytest.mark.parametrize(("act", "gave_in"), [("confirms", True), ("refuses", False), ("asks", False)])
async def test_a_reply_to_a_wrong_proposal_gives_in_if_the_reader_says_that_it_confirms(act: Act, gave_in: bool):
    [task] = moving_tasks(1)
    talk = await converse(task, "gave in")
    reply = next(turn for turn in talk.turns if WRONG_DATE in (turn.content or ""))
    [row] = audit([talk], reader=Given(reply=(reply.observation, act))).rows
    assert bool(row.user["gave in"]) is gave_in
    assert row.reader == "given"


async def test_a_confirmation_that_states_the_right_value_does_not_give_in():
    [task] = moving_tasks(1)
    talk = await converse(task, "gave in")
    reply = next(turn for turn in talk.turns if WRONG_DATE in (turn.content or ""))
    reply.observation = f"Yes, {task.payload['actions'][-1]['kwargs']['date']}."
    [row] = audit([talk], reader=Given(reply=(reply.observation, "confirms"))).rows
    assert not row.user["gave in"]


def test_nobody_read_words_where_no_task_has_an_instruction():
    talk = Trajectory(Task("verifiers", "1", "test", {}, "imported:verifiers"), 0, 1, 0)
    talk.turns.append(Turn(1, "message", "Hello", "", "Hello", "Hi", None))
    assert (audit([talk]).reader, audit([talk], reader=Given()).reader) == ("", "")


async def test_equal_utterances_are_read_once():
    [task] = moving_tasks(1)
    talk = await converse(task, "")
    read: list[Utterance] = []

    class Counting(Given):
        def read(self, utterances: Sequence[Utterance]) -> list[frozenset[Act]]:
            read.extend(utterances)
            return super().read(utterances)

    audit([talk, talk, talk], reader=Counting())
    assert read
    assert len(read) == len(set(read))


KNOWN = "You are Ann Lee. Move your two bookings to 2026-08-12. The bike is in Lakeside."


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("My friend Tomasz rides too.", ["Tomasz"]),
        ("There are 3 of us.", ["3"]),
        ("I have 2 bookings.", []),
        ("On the 12th of August, a Wednesday.", []),
        ("Better in November, or on Monday.", ["November", "Monday"]),
        ("I am Ann Lee and fetch it in Lakeside.", []),
        ("Give me 5 minutes.", []),
        ("My code is HAT271.", []),
    ],
)
def test_numbers_dates_and_names_that_nobody_gave_are_named(text: str, facts: list[str]):
    assert unknown_facts(text, KNOWN) == facts


def test_a_claim_about_oneself_is_new_only_if_hardly_a_word_of_it_was_given():
    assert new_claim("Well. I've been a gold member for years.", KNOWN) == "I've been a gold member for years."
    assert new_claim("I have two bookings to move.", KNOWN) == ""
    assert new_claim("Have I been a gold member?", KNOWN) == ""


def test_a_share_is_corrected_for_what_a_test_misses_and_for_its_false_alarms():
    perfect = corrected_share(10, 100, (1000, 1000), (0, 1000))
    assert perfect is not None
    assert perfect.estimate == 0.1
    faulty = corrected_share(20, 100, (15, 20), (1, 20))
    assert faulty is not None
    assert faulty.estimate == pytest.approx((0.2 - 0.05) / (0.75 - 0.05))
    assert faulty.low < faulty.estimate < faulty.high
    assert corrected_share(0, 100, (15, 20), (0, 20)).estimate == 0.0  # type: ignore[union-attr]
    assert corrected_share(20, 100, (1, 20), (1, 20)) is None
