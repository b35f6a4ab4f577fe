"""One conversation as a state machine, independent of how tokens are generated.

The caller (an HTTP client, the local model in lock-step, verl's agent loop) calls `begin` (or `start`) once. It then
calls `submit` with each reply and passes the returned messages to its model. The episode parses the reply, steps the
gym, counts turns against the horizon, logs, and decides when and why the conversation ends. A failure of user, judge
or gym becomes a null reward, never a zero.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, Protocol

from userrl_core.errors import ConfigError, GymError, JudgeError, PolicyError, UserError, first_line, place
from userrl_core.gyms.base import Gym, finite
from userrl_core.gyms.prompt import EpisodeStyle, opening_messages, turns_left_note
from userrl_core.interact import ParsedReply, parse_text, parse_tool_calls
from userrl_core.records import Flag, Message, ModelCall, PolicyReply, RolloutContext, StopReason, Trajectory, Turn
from userrl_core.seeding import derive_seed
from userrl_core.sink import Sink


@dataclass(frozen=True, slots=True)
class EpisodeRules:
    """A recipe's settings for every episode.

    horizon: maximum number of turns; all are executed. on_format_error: ``end`` as published, or
    ``continue``. step_timeout: maximum seconds of gym and user for one turn. prompt_style: see `gyms.prompt`. turns_left:
    show the agent before each turn how many it has left.
    """

    horizon: int
    on_format_error: Literal["end", "continue"] = "end"
    step_timeout: float = 120.0
    prompt_style: EpisodeStyle = "full"
    turns_left: bool = False

    def __post_init__(self) -> None:
        # Checked here, because 2.5 turns or a text would fail only in the middle of a conversation.
        horizon: object = self.horizon
        if not isinstance(horizon, Integral):
            raise ConfigError(
                "argument.out_of_range", f"Horizon {horizon!r} is not a number of turns. Give an integer of 1 or more."
            )
        if self.horizon < 1:
            raise ConfigError("argument.out_of_range", f"Horizon {self.horizon} allows no turn. Give 1 or more.")


GYM_FAULTS = (Exception, SystemExit, asyncio.CancelledError)
"""What a gym may raise. Its own request to end the process, or a task that it cancelled, fails one conversation only."""


def is_cancellation(error: BaseException) -> bool:
    """Return whether the error is the cancellation of the task that runs, and not of one that a gym waits for."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


class Episode:
    """One trajectory in progress, from the opening messages to the final score. Single-use."""

    def __init__(
        self,
        gym: Gym[Any],
        rules: EpisodeRules,
        *,
        attempt: int = 0,
        seed: int = 0,
        context: RolloutContext | None = None,
        group: str = "",
        user: str = "rule",
        sink: Sink | None = None,
    ) -> None:
        self.gym = gym
        self.rules = rules
        self.finished = False
        self.on_end: Callable[[Trajectory], None] | None = None
        """Called once, when the trajectory is complete and logged."""
        self.verifier: Verifier | None = None
        """An optional check that may interrupt a step before it is executed."""
        self._sink = sink
        self._interruptions = Interruptions()
        self.trajectory = Trajectory(
            task=gym.task,
            attempt=attempt,
            horizon=rules.horizon,
            seed=seed,
            context=context or RolloutContext(),
            group=group or gym.task.key,
            user=user,
        )

    def start(self) -> list[Message]:
        """Reset the gym and return the opening messages. A failure of the gym returns none and ends the episode
        without a score.
        """
        return self._begun(*self._reset())

    async def begin(self) -> list[Message]:
        """Do the same as `start`, but let other episodes run while a gym's reset waits for another process."""
        if not self.gym.blocking:
            return self.start()
        resetting = asyncio.ensure_future(asyncio.to_thread(self._reset))
        try:
            return self._begun(*await asyncio.shield(resetting))
        except asyncio.CancelledError:
            await asyncio.wait([resetting])  # else what it opens would be opened after the gym was closed
            raise

    def _reset(self) -> tuple[list[Message], BaseException | None]:
        try:
            # Gym and policy draw from different seeds, both derived from the episode's.
            opening = self.gym.reset(seed=derive_seed("gym", self.trajectory.seed))
            messages = opening_messages(self.gym, opening, self.rules.horizon, self.rules.prompt_style)
            if self.rules.turns_left:
                messages[-1]["content"] += self._note(self.rules.horizon)
            for message in messages:
                if not isinstance(message["content"], str):
                    raise GymError(
                        "gym.bad_package",
                        f"Gym '{self.gym.name}' opens with {message['content']!r:.80}. Return a text from opening().",
                    )
            return messages, None
        except GYM_FAULTS as error:  # a bug in one gym must not end the batch, as in _step
            return [], error

    def _begun(self, messages: list[Message], failure: BaseException | None) -> list[Message]:
        self.trajectory.messages = list(messages)
        if self._sink is not None:
            # Logged before the failure is: a conversation that could not begin has a row and a reason.
            self.trajectory.traj_id = self._sink.begin(self.trajectory)
        if failure is not None:
            self._finish("error", _reason("gym", failure))
        return messages

    async def submit(self, reply: PolicyReply, policy_seconds: float = 0.0) -> list[Message]:
        """Execute one agent message. Return the new messages for the agent, empty when the episode has ended."""
        if self.finished:
            raise GymError(
                "gym.misused", f"The episode of {self.trajectory.task.key} is over. Start a new one to submit a reply."
            )
        parsed = parse_tool_calls(reply.text, reply.tool_calls) if reply.tool_calls else parse_text(reply.text)
        turn = self._new_turn(reply, parsed, policy_seconds)
        verifier = self.verifier
        if verifier is not None and await self._interruptions.stop(verifier, self.trajectory, turn):
            note = self._note(self.rules.horizon - turn.number + 1) if self.rules.turns_left else ""
            return [{"role": "tool", "content": verifier.text + note}]
        try:
            stop_reason, reject_reason = await self._step(turn, parsed, reply)
        except BaseException:  # cancelled: the turn never came about, its calls were paid for
            self.trajectory.unfinished_calls.extend(turn.model_calls)
            raise
        # The last allowed turn is executed like any other. Only then the horizon ends the episode.
        if stop_reason is None and turn.number >= self.rules.horizon:
            stop_reason = "horizon"
        self._record(turn)
        if stop_reason is not None:
            self._finish(stop_reason, reject_reason)
            return []
        message: Message = {"role": "tool", "content": self.shown(turn)}
        if message["content"] != turn.observation:
            message["observation"] = turn.observation  # for demonstrators, which read the gym's own words
        audio = turn.info.get("audio")
        if isinstance(audio, dict) and audio.get("path"):
            message["audio"] = audio["path"]
        return [message]

    def shown(self, turn: Turn) -> str:
        """Return the text shown to the agent after a turn."""
        # The released trainer appends the reward to every observation; the released evaluation does not.
        in_training = self.trajectory.context.phase != "evaluate"
        rewarded = self.rules.prompt_style == "released" and in_training and turn.reward is not None
        text = f"{turn.observation}\nReward: {turn.reward}" if rewarded else turn.observation
        return text + self._note(self.rules.horizon - turn.number) if self.rules.turns_left else text

    def _note(self, left: int) -> str:
        return turns_left_note(left, brief=self.rules.prompt_style == "brief")

    def fail(self, error: Exception, calls: Sequence[ModelCall] = ()) -> None:
        """End without a score because the policy gave no reply. The turns so far stay in the log; the trajectory is
        not admitted.

        calls: the cost of the missing reply.
        """
        if not self.finished:
            self.trajectory.unfinished_calls.extend(calls)
            self._finish("error", _reason("policy", error))

    def out_of_tokens(self) -> None:
        """End with the score so far because the conversation has reached the model's context limit."""
        if self.finished:
            return
        if (turn := self._interruptions.unfinished(self.verifier)) is not None:
            self._record(turn)
        # Scored as it stands: nobody failed to answer, the model has no room left.
        self._finish("length", None)

    def _new_turn(self, reply: PolicyReply, parsed: ParsedReply, policy_seconds: float) -> Turn:
        flags = Flag.TURNS_LEFT if self.rules.turns_left else Flag.NONE
        if parsed.call is None:
            flags |= Flag.FORMAT_ERROR
        if parsed.extra_calls:
            flags |= Flag.EXTRA_CALLS
        if reply.truncated:
            flags |= Flag.LENGTH
        return Turn(
            number=len(self.trajectory.turns) + 1,
            choice=str(parsed.call.choice) if parsed.call else None,
            content=parsed.call.content if parsed.call else None,
            thought=parsed.thought,
            message=reply.text,
            observation="",
            # 0.0 and not null: an unreadable reply earns nothing, and that is known.
            reward=0.0,
            flags=int(flags),
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            policy_seconds=policy_seconds,
            token_ids=reply.token_ids,
            logprobs=reply.logprobs,
            model_calls=list(reply.model_calls),
        )

    async def _step(self, turn: Turn, parsed: ParsedReply, reply: PolicyReply) -> tuple[StopReason | None, str | None]:
        if parsed.call is None:
            turn.observation = parsed.error or "The reply could not be read."
            # The published gyms end here.
            if self.rules.on_format_error == "continue":
                return None, None
            # A call that was cut off at the token limit is not the model's format error.
            return ("length" if reply.truncated else "format"), None
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self.rules.step_timeout) as limit:
                result = await self.gym.step(parsed.call)
        except TimeoutError as error:
            if not limit.expired():  # raised by the gym itself, for example by a socket
                return self._unscored(turn, _reason("gym", error))
            turn.flags |= int(Flag.TIMEOUT)
            return self._unscored(turn, f"user: no answer within {self.rules.step_timeout:g} s")
        except UserError as error:
            return self._unscored(turn, _reason("user", error))
        except JudgeError as error:
            return self._unscored(turn, _reason("judge", error))
        except GYM_FAULTS as error:  # a bug in a gym fails one rollout; the batch continues
            if is_cancellation(error):
                raise
            return self._unscored(turn, _reason("gym", error))
        finally:
            turn.env_seconds = time.perf_counter() - started
            # In any case: calls of users and judges were paid for, also where the turn has no score.
            turn.model_calls.extend(self.gym.ledger)
            self.gym.ledger.clear()
        turn.reward, turn.info = result.reward, result.info
        turn.observation = f"{result.observation}\n{parsed.error}" if parsed.error else result.observation
        if result.info.get("disallowed"):
            turn.flags |= int(Flag.DISALLOWED)
        # Null means that scoring did not run. Such a conversation is recorded and never trained on.
        if result.reward is None:
            return "error", str(result.info.get("reject_reason", "judge: the turn was not scored"))
        if result.terminated:
            return ("success" if self.gym.succeeded else "gave_up"), None
        return None, None

    def _unscored(self, turn: Turn, reason: str) -> tuple[StopReason, str]:
        turn.reward = None
        turn.observation = ""
        return "error", reason

    def _record(self, turn: Turn) -> None:
        self._interruptions.add_to(turn)
        self.trajectory.turns.append(turn)
        if self._sink is not None:
            self._sink.turn(self.trajectory, turn)

    def _finish(self, stop_reason: StopReason, reject_reason: str | None) -> None:
        self.finished = True
        # Null and not 0: a user model that is down says nothing about the agent.
        self.trajectory.score = None
        if reject_reason is None:
            try:
                self.trajectory.score = finite(self.gym.score(), self.gym.name, "score")
            except GYM_FAULTS as error:  # as in _step
                stop_reason, reject_reason = "error", _reason("gym", error)
        self.trajectory.stop_reason = stop_reason
        self.trajectory.admitted = reject_reason is None
        self.trajectory.reject_reason = reject_reason
        if self._sink is not None:
            self._sink.end(self.trajectory)
        if self.on_end is not None:
            self.on_end(self.trajectory)


class Verifier(Protocol):
    """A check of each step before it is executed. most: interruptions per turn. text: shown to the agent instead of
    an observation.
    """

    most: int
    text: str

    async def objects(self, trajectory: Trajectory, step: Turn, ledger: list[ModelCall]) -> bool:
        """Return True if the verifier objects to the step. The agent must then replace the step before it is executed."""


class Interruptions:
    """The attempts at the current turn that a verifier stopped. Without a verifier there are none."""

    def __init__(self) -> None:
        self._attempts: list[Turn] = []

    async def stop(self, verifier: Verifier, trajectory: Trajectory, turn: Turn) -> bool:
        """Return whether the verifier objects to the step, which is then not executed."""
        if turn.choice is None or len(self._attempts) >= verifier.most:
            return False
        objects = await verifier.objects(trajectory, turn, turn.model_calls)
        if objects:
            self._attempts.append(turn)
        return objects

    def add_to(self, turn: Turn) -> None:
        """Add the tokens, seconds and calls of the stopped attempts to the turn that came about."""
        if self._attempts:
            turn.info = {**turn.info, "interrupted": [attempt.message for attempt in self._attempts]}
            turn.completion_tokens += sum(attempt.completion_tokens for attempt in self._attempts)
            turn.policy_seconds += sum(attempt.policy_seconds for attempt in self._attempts)
            turn.model_calls = [call for attempt in (*self._attempts, turn) for call in attempt.model_calls]
            self._attempts = []

    def unfinished(self, verifier: Verifier | None) -> Turn | None:
        """Return the last stopped attempt as a turn, None without one: its tokens were sampled, and no step replaced it."""
        if not self._attempts:
            return None
        turn = self._attempts.pop()
        turn.flags |= int(Flag.LENGTH)
        turn.observation = verifier.text if verifier is not None else ""
        return turn


def _reason(source: str, error: BaseException) -> str:
    prefix = "" if isinstance(error, (UserError, JudgeError, PolicyError)) else f"{type(error).__name__}: "
    return f"{source}: {prefix}{first_line(error)}{place(error)}"
