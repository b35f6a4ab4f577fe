"""One episode as a state machine, and many at once: turn counts, null rewards, time-outs, logging."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.makers import raises
from userrl_core import gyms
from userrl_core.episode import Episode, EpisodeRules
from userrl_core.errors import JudgeError, LogError, PolicyError, UserError
from userrl_core.gyms.base import Gym, GymConfig, Reply
from userrl_core.interact import InteractCall, render_call
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Flag, Message, ModelCall, PolicyReply, Task, Trajectory, Turn
from userrl_core.rollout import build_episode, drive, run_episodes

FUNCTION = Task("function", "t", "train", {"rule": "a + b + c + d", "test_case": [1, 1, 1, 1], "expected": 4.0})
CALL = render_call(InteractCall("action", "1 2 3 4"))
HERE = " at test_episode.py:N"


def reason_of(trajectory: Trajectory) -> str | None:
    """Return why a trajectory is rejected, with N for the number of a line."""
    return trajectory.reject_reason and re.sub(r"py:\d+", "py:N", trajectory.reject_reason)


class ObedientGym(Gym[GymConfig]):
    """Does what the content of a call says: raises, waits, gives a null reward, ends."""

    name = "obedient"
    metric = "sum"

    def opening(self) -> str:
        return "go"

    async def action(self, content: str) -> Reply:
        self.ledger.append(ModelCall("user", "m", prompt_tokens=7))
        if content == "user":
            raise UserError("user.no_reply", "the model is down\nsecret body")
        if content == "judge":
            raise JudgeError("judge.no_reply", "unreadable")
        if content == "bug":
            raise KeyError("oops")
        if content == "null":
            return Reply("?", None, info={"reject_reason": "judge: no verdict"})
        if content == "wait":
            await asyncio.sleep(60)
        if content == "end":
            return Reply("bye", 0.25, done=True)
        return Reply(f"heard {content}", 0.5)


def make_episode(horizon: int = 3, gym: Gym[Any] | None = None, **rules: Any) -> Episode:
    task = Task("obedient", "s", "train", {})
    return Episode(gym or ObedientGym(task), EpisodeRules(horizon, **rules))


async def play(episode: Episode, *contents: str) -> Trajectory:
    episode.start()
    for content in contents:
        await episode.submit(PolicyReply(render_call(InteractCall("action", content))))
    return episode.trajectory


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20))
def test_a_horizon_of_h_executes_exactly_h_turns(horizon: int):
    async def run() -> Trajectory:
        episode = make_episode(horizon)
        messages: Sequence[Message] = episode.start()
        while messages:
            messages = await episode.submit(PolicyReply(CALL))
        return episode.trajectory

    trajectory = asyncio.run(run())
    assert [turn.number for turn in trajectory.turns] == list(range(1, horizon + 1))
    assert trajectory.stop_reason == "horizon"
    assert trajectory.rewards == [0.5] * horizon
    assert trajectory.score == trajectory.return_sum == 0.5 * horizon


async def test_the_last_turn_of_the_horizon_can_succeed():
    episode = Episode(gyms.make("function", FUNCTION), EpisodeRules(1))
    episode.start()
    assert await episode.submit(PolicyReply(render_call(InteractCall("answer", "4")))) == []
    assert (episode.trajectory.stop_reason, episode.trajectory.score) == ("success", 1.0)


@pytest.mark.parametrize("horizon", [2.5, "3", None])
def test_a_horizon_that_is_not_an_integer_is_refused(horizon: Any):
    with raises("argument.out_of_range"):
        EpisodeRules(horizon)


def test_a_horizon_of_zero_is_refused():
    with raises("argument.out_of_range"):
        EpisodeRules(0)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("user", "user: the model is down"),
        ("judge", "judge: unreadable"),
        ("bug", f"gym: KeyError: 'oops'{HERE}"),
        ("null", "judge: no verdict"),
    ],
)
async def test_an_unscored_turn_is_null_and_the_trajectory_not_admitted(content: str, reason: str):
    trajectory = await play(make_episode(), "hello", content)
    assert trajectory.rewards == [0.5, None]
    assert (trajectory.stop_reason, trajectory.admitted, reason_of(trajectory)) == ("error", False, reason)
    assert trajectory.score is None
    assert trajectory.return_sum is None


async def test_a_turn_that_takes_too_long_is_null_and_not_repeated():
    gym = ObedientGym(Task("obedient", "s", "train", {}))
    trajectory = await play(make_episode(gym=gym, step_timeout=0.02), "wait")
    assert gym.turns == 1
    assert trajectory.turns[0].reward is None
    assert trajectory.turns[0].flags & Flag.TIMEOUT
    assert trajectory.reject_reason == "user: no answer within 0.02 s"


async def test_model_calls_are_logged_with_their_turn_even_when_it_fails():
    trajectory = await play(make_episode(), "hello", "user")
    assert [len(turn.model_calls) for turn in trajectory.turns] == [1, 1]


async def test_a_reply_without_a_call_ends_the_episode_with_reward_zero_not_null():
    episode = make_episode()
    episode.start()
    assert await episode.submit(PolicyReply("I think so")) == []
    turn = episode.trajectory.turns[0]
    assert (turn.reward, turn.flags, turn.choice) == (0.0, int(Flag.FORMAT_ERROR), None)
    assert (episode.trajectory.stop_reason, episode.trajectory.admitted) == ("format", True)
    assert "No tool call" in turn.observation


async def test_with_on_format_error_continue_the_episode_continues():
    episode = make_episode(2, on_format_error="continue")
    episode.start()
    assert await episode.submit(PolicyReply("I think so"))
    assert await episode.submit(PolicyReply(CALL)) == []
    assert episode.trajectory.rewards == [0.0, 0.5]
    assert episode.trajectory.stop_reason == "horizon"


async def test_a_truncated_reply_without_a_call_stops_for_length():
    episode = make_episode()
    episode.start()
    await episode.submit(PolicyReply("I think", truncated=True))
    assert episode.trajectory.stop_reason == "length"
    assert episode.trajectory.turns[0].flags == int(Flag.FORMAT_ERROR | Flag.LENGTH)


async def test_a_choice_that_the_gym_does_not_allow_earns_zero_and_is_not_a_format_error():
    episode = make_episode()
    episode.start()
    assert await episode.submit(PolicyReply(render_call(InteractCall("answer", "x"))))
    turn = episode.trajectory.turns[0]
    assert (turn.reward, turn.flags) == (0.0, int(Flag.DISALLOWED))
    assert turn.observation == "'answer' is not possible here; choose action."


async def test_only_the_first_of_several_calls_is_executed():
    gym = ObedientGym(Task("obedient", "s", "train", {}))
    episode = make_episode(gym=gym)
    episode.start()
    messages = await episode.submit(PolicyReply(CALL + CALL))
    assert gym.turns == 1
    assert episode.trajectory.turns[0].flags == int(Flag.EXTRA_CALLS)
    assert (
        messages[0]["content"] == "heard 1 2 3 4\nOnly the first of 2 calls was carried out; make one call per message."
    )


async def test_an_episode_that_the_gym_ends_below_full_score_gave_up():
    trajectory = await play(make_episode(), "end")
    assert (trajectory.stop_reason, trajectory.score) == ("gave_up", 0.25)


async def test_a_finished_episode_refuses_a_reply():
    episode = make_episode(1)
    await play(episode, "hello")
    with raises("gym.misused"):
        await episode.submit(PolicyReply(CALL))


def test_a_gym_is_reset_exactly_once_before_its_first_step():
    gym = ObedientGym(Task("obedient", "s", "train", {}))
    with raises("gym.misused"):
        asyncio.run(gym.step(InteractCall("action", "x")))
    gym.reset()
    with raises("gym.misused"):
        gym.reset()


def test_the_choices_of_a_gym_are_the_methods_it_defines():
    assert ObedientGym.choices() == ("action",)
    assert gyms.gym_class("function").choices() == ("action", "search", "answer")


async def test_an_episode_out_of_tokens_keeps_its_score_so_far():
    episode = make_episode()
    await play(episode, "hello")
    episode.out_of_tokens()
    assert (episode.trajectory.stop_reason, episode.trajectory.score) == ("length", 0.5)


class FailingPolicy:
    """A policy without a reply."""

    name = "failing"

    def session(self, gym: Gym[Any], seed: int) -> Any:
        return self

    async def act(self, new: Sequence[Message]) -> PolicyReply:
        raise PolicyError("policy.no_reply", "503 after 3 attempts")


async def test_a_policy_without_a_reply_rejects_the_trajectory_and_raises_nothing():
    trajectories = await run_episodes([FUNCTION] * 3, FailingPolicy(), horizon=4)
    assert [(t.stop_reason, t.admitted, t.reject_reason) for t in trajectories] == [
        ("error", False, "policy: 503 after 3 attempts")
    ] * 3


@pytest.mark.parametrize("where", ["session", "act"])
async def test_a_bug_in_a_policy_fails_only_its_own_rollout(where: str):
    class BuggyPolicy(ScriptedPolicy):
        """Raises in one of three episodes."""

        def session(self, gym: Gym[Any], seed: int) -> Any:
            if gym.task.id != "bad":
                return super().session(gym, seed)
            if where == "session":
                raise KeyError("no such gym")
            return self

        async def act(self, new: Sequence[Message]) -> PolicyReply:
            raise KeyError("no such gym")

    bad = Task("function", "bad", "train", FUNCTION.payload)
    trajectories = await run_episodes([FUNCTION, bad, FUNCTION], BuggyPolicy(), horizon=4)
    assert [(t.stop_reason, reason_of(t)) for t in trajectories] == [
        ("success", None),
        ("error", f"policy: KeyError: 'no such gym'{HERE}"),
        ("success", None),
    ]


async def test_a_gym_that_fails_at_its_opening_is_logged_as_a_rejected_trajectory():
    class BrokenGym(ObedientGym):
        def opening(self) -> str:
            raise KeyError("no such field")

    sink = CallRecorder()
    gym = BrokenGym(Task("obedient", "s", "train", {}))
    episode = Episode(gym, EpisodeRules(3), sink=sink)  # type: ignore[arg-type]
    await drive(episode, FailingPolicy(), 60)
    assert sink.calls == [("begin", 0), ("end", 0)]
    assert (episode.trajectory.admitted, episode.trajectory.reject_reason) == (
        False,
        "gym: TaskError: Task obedient/s cannot be opened: there is no 'no such field'. Its payload has nothing.",
    )


def replying(reply: Any) -> ObedientGym:
    class StrangeGym(ObedientGym):
        async def action(self, content: str) -> Reply:
            return reply if reply is None or isinstance(reply, Reply) else Reply("heard", reply)

    return StrangeGym(Task("obedient", "s", "train", {}))


GAVE, REPLIED = "gym: GymError: Gym 'obedient' gave the", "gym: GymError: Gym 'obedient' replied with"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (math.nan, f"{GAVE} reward nan. Give a finite number or None."),
        (math.inf, f"{GAVE} reward inf. Give a finite number or None."),
        (np.array([0.5]), f"{GAVE} reward array([0.5]). Give a finite number or None."),
        ("1", f"{GAVE} reward '1'. Give a finite number or None."),
        (None, "gym: GymError: A method of gym 'obedient' returned None. Return a Reply."),
        (Reply(None), f"{REPLIED} observation None. Correct its method."),  # type: ignore[arg-type]
        (Reply("a", 1.0, done="no"), f"{REPLIED} done 'no'. Correct its method."),  # type: ignore[arg-type]
        (Reply("a", 1.0, True, success="False"), f"{REPLIED} success 'False'. Correct its method."),  # type: ignore[arg-type]
        (Reply("a", 1.0, info=["x"]), f"{REPLIED} info ['x']. Correct its method."),  # type: ignore[arg-type]
    ],
)
async def test_what_no_gym_may_reply_is_not_scored_and_not_admitted(reply: Any, reason: str):
    trajectory = await play(make_episode(gym=replying(reply)), "x")
    assert (trajectory.admitted, trajectory.score, trajectory.reject_reason) == (False, None, reason)
    assert [turn.reward for turn in trajectory.turns] == [None]


async def test_numbers_and_truth_values_of_numpy_become_those_of_python():
    reply = Reply("a", np.float32(0.5), np.bool_(True), np.bool_(True))  # type: ignore[arg-type]
    trajectory = await play(make_episode(gym=replying(reply)), "x")
    values = (trajectory.turns[0].reward, trajectory.score, trajectory.turns[0].info["success"])
    assert values == (0.5, 0.5, True)
    assert [type(value) for value in values] == [float, float, bool]


@pytest.mark.parametrize(
    ("score", "reason"),
    [(math.nan, f"{GAVE} score nan. Give a finite number or None."), (None, f"gym: KeyError: 'no total'{HERE}")],
)
async def test_a_score_that_fails_rejects_its_own_trajectory_only(score: float | None, reason: str):
    class Unscorable(ObedientGym):
        def score(self) -> float | None:
            if score is None:
                raise KeyError("no total")
            return score

    trajectory = await play(make_episode(1, Unscorable(Task("obedient", "s", "train", {}))), "x")
    assert (trajectory.stop_reason, trajectory.admitted, trajectory.score) == ("error", False, None)
    assert reason_of(trajectory) == reason


async def test_an_opening_that_is_no_text_is_rejected():
    class Mute(ObedientGym):
        def opening(self) -> Any:
            return None

    trajectory = await play(make_episode(gym=Mute(Task("obedient", "s", "train", {}))))
    expected = "gym: GymError: Gym 'obedient' opens with None. Return a text from opening()."
    assert trajectory.reject_reason == expected


async def test_a_time_out_of_the_gyms_own_is_not_the_users():
    class Socket(ObedientGym):
        async def action(self, content: str) -> Reply:
            raise TimeoutError("timed out")

    trajectory = await play(make_episode(gym=Socket(Task("obedient", "s", "train", {}))), "x")
    assert reason_of(trajectory) == f"gym: TimeoutError: timed out{HERE}"
    assert trajectory.turns[0].flags == Flag.NONE


class Talkative:
    """A policy that says the same thing always."""

    name = "talkative"

    def session(self, gym: Gym[Any], seed: int) -> Any:
        return self

    async def act(self, new: Sequence[Message]) -> PolicyReply:
        return PolicyReply(CALL)


class Textless(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("where", ["opening", "action", "score", "aclose"])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SystemExit("bye"), "SystemExit: bye"),
        (asyncio.CancelledError(), "CancelledError: CancelledError"),
        (Textless(), "Textless: Textless"),
    ],
)
@pytest.mark.filterwarnings("ignore:A obedient gym did not close")
async def test_whatever_a_gym_raises_ends_its_own_conversation_only(where: str, error: BaseException, reason: str):
    async def fail(*_: object) -> None:
        raise error

    def fail_at_once(*_: object) -> None:
        raise error

    failing = ObedientGym(Task("obedient", "s", "train", {}))
    setattr(failing, where, fail if where in ("action", "aclose") else fail_at_once)
    first, second = make_episode(1, failing), make_episode(1)
    for episode in (first, second):
        await drive(episode, Talkative(), 10.0)
    assert second.trajectory.admitted
    assert (first.trajectory.admitted, reason_of(first.trajectory)) == (
        (True, None) if where == "aclose" else (False, f"gym: {reason}{HERE}")
    )


async def test_the_cancellation_of_a_batch_is_none_of_a_gym_s_faults():
    entered = asyncio.Event()

    class Slow(ObedientGym):
        async def action(self, content: str) -> Reply:
            entered.set()
            await asyncio.Event().wait()
            raise AssertionError

    episode = make_episode(gym=Slow(Task("obedient", "s", "train", {})))
    playing = asyncio.create_task(drive(episode, Talkative(), 10.0))
    await entered.wait()
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    rejected = (episode.trajectory.admitted, episode.trajectory.reject_reason)
    assert rejected == (False, "policy: the conversation was cancelled")


async def test_an_error_while_closing_a_gym_is_only_a_warning():
    class UnclosableGym(ObedientGym):
        async def aclose(self) -> None:
            raise OSError("the socket is gone")

    episode = Episode(UnclosableGym(Task("obedient", "s", "train", {})), EpisodeRules(3))
    with pytest.warns(RuntimeWarning, match="obedient gym did not close: OSError: the socket is gone"):
        await drive(episode, FailingPolicy(), 60)
    assert episode.trajectory.reject_reason == "policy: 503 after 3 attempts"


async def test_trajectories_are_returned_in_the_order_of_tasks_and_attempts():
    tasks = gyms.tasks("function", "train")[:5]
    trajectories = await run_episodes(tasks, ScriptedPolicy(0.5), horizon=4, n=3, concurrency=2)
    assert [(t.task.id, t.attempt) for t in trajectories] == [(task.id, a) for task in tasks for a in range(3)]


async def test_the_order_of_execution_does_not_change_a_trajectory():
    tasks = gyms.tasks("travel", "train", tier="tiny")[:20]

    def turns_of(trajectories: list[Trajectory]) -> list[list[tuple[str, str, float | None]]]:
        return [[(turn.message, turn.observation, turn.reward) for turn in t.turns] for t in trajectories]

    parallel = turns_of(await run_episodes(tasks, ScriptedPolicy(0.3), horizon=5, n=2, concurrency=64, seed=7))
    sequential = turns_of(await run_episodes(tasks, ScriptedPolicy(0.3), horizon=5, n=2, concurrency=1, seed=7))
    other_seed = turns_of(await run_episodes(tasks, ScriptedPolicy(0.3), horizon=5, n=2, concurrency=1, seed=8))
    assert parallel == sequential != other_seed


async def test_progress_is_called_once_per_trajectory():
    reported: list[Trajectory] = []
    trajectories = await run_episodes([FUNCTION] * 4, ScriptedPolicy(), horizon=4, progress=reported.append)
    assert sorted(map(id, reported)) == sorted(map(id, trajectories))


async def test_an_episode_that_takes_too_long_is_not_admitted():
    class SlowPolicy(FailingPolicy):
        async def act(self, new: Sequence[Message]) -> PolicyReply:
            await asyncio.sleep(60)
            return PolicyReply(CALL)

    episode = build_episode(FUNCTION, 0, EpisodeRules(4))
    await drive(episode, SlowPolicy(), 0.02)
    assert episode.trajectory.reject_reason == "policy: the conversation took longer than 0.02 s"
    assert episode.gym.done


class CallRecorder:
    """A sink that records its calls, and may fail at a turn."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.calls: list[tuple[str, int]] = []
        self.fail_at = fail_at

    def begin(self, trajectory: Trajectory) -> int:
        self.calls.append(("begin", 0))
        return len(self.calls)

    def turn(self, trajectory: Trajectory, turn: Turn) -> None:
        if turn.number == self.fail_at:
            raise LogError("log.cannot_write", "the disk is full")
        self.calls.append(("turn", turn.number))

    def end(self, trajectory: Trajectory) -> None:
        self.calls.append(("end", len(trajectory.turns)))


async def test_a_sink_gets_begin_then_every_turn_then_end_once():
    sink = CallRecorder()
    await run_episodes([FUNCTION], ScriptedPolicy(), horizon=4, sink=sink)  # type: ignore[arg-type]
    assert sink.calls == [("begin", 0), ("turn", 1), ("turn", 2), ("end", 2)]


async def test_a_log_that_cannot_be_written_stops_the_batch():
    with pytest.raises(LogError, match="disk is full"):
        await run_episodes([FUNCTION] * 3, ScriptedPolicy(), horizon=4, sink=CallRecorder(fail_at=2))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"), [({"n": 0}, "n is the number"), ({"concurrency": 0}, "start no episode")]
)
async def test_numbers_below_one_are_refused(options: dict[str, int], message: str):
    with raises("argument.out_of_range", message):
        await run_episodes([FUNCTION], ScriptedPolicy(), horizon=4, **options)
