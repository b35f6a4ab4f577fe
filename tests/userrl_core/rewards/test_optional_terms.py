"""The optional reward terms: decay of late rewards, and the penalty of unsupported answers."""

import pytest
from pydantic import ValidationError

from userrl_core.records import Task, Trajectory, Turn
from userrl_core.rewards.optional import OptionalTerms, adjusted_rewards, late_decay, unsupported_penalty


def make_trajectory(*turns):
    trajectory = Trajectory(Task("travel", "t", "train", {}), attempt=0, horizon=8, seed=0)
    for number, (choice, reward, elicited) in enumerate(turns, 1):
        turn = Turn(number, choice, "", "", "", "", reward, info={"elicited": elicited})
        trajectory.turns.append(turn)
    return trajectory


def test_both_terms_are_off_by_default():
    trajectory = make_trajectory(("answer", 1.0, 0), ("answer", None, 0))
    assert not OptionalTerms().active
    assert adjusted_rewards(trajectory, OptionalTerms()) == [1.0, None]


def test_late_rewards_decay_and_penalties_do_not():
    assert late_decay([0.8, 0.8, -1.0, None, 0.8], 0.5) == [0.8, 0.4, -1.0, None, 0.05]


def test_a_rewarded_answer_before_any_elicited_preference_is_penalised():
    adjusted = unsupported_penalty([0.8, 0.1, 0.8], [True, False, True], [0, 1, 0], penalty=0.3)
    assert adjusted == pytest.approx([0.5, 0.1, 0.8])


def test_an_answer_without_reward_is_not_penalised():
    assert unsupported_penalty([0.0, None], [True, True], [0, 0], penalty=0.3) == [0.0, None]


def test_terms_read_the_turns_of_a_trajectory():
    terms = OptionalTerms(late_decay=0.5, unsupported_penalty=0.4, support=2)
    trajectory = make_trajectory(
        ("action", 0.1, ["price"]), ("answer", 0.8, 0), ("action", 0.1, "active"), ("answer", 0.8, 0)
    )
    assert adjusted_rewards(trajectory, terms) == pytest.approx([0.1, 0.2, 0.025, 0.1])


def test_terms_out_of_range_are_refused():
    with pytest.raises(ValidationError):
        OptionalTerms(late_decay=0.0)
    with pytest.raises(ValidationError):
        OptionalTerms(unsupported_penalty=-1.0)
