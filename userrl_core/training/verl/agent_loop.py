"""verl's agent loop around our episode: the same gyms, users, horizon rule and records as everywhere else.

verl creates one `GymAgentLoop` per trajectory. It plays the trajectory through verl's continuous-token calls: history
is appended to and never rendered again. It places each turn's raw reward on the turn's last token, and logs every
turn from its own process.

A trajectory whose scoring did not run is not admitted. Its response mask is all zero, which keeps it out of the loss.
The estimator finds no turn in it, which keeps it out of its group's mean. If a served user was down, the trajectory
waits until the user answers and is played again. Any other error is written to the stage's ``fatal`` file. Without it
verl would silently train on the rest of the group.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from uuid import uuid4

import torch
from pydantic import Field
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from userrl_core.distill import tools_for
from userrl_core.episode import Episode, EpisodeRules
from userrl_core.errors import ConfigError, PolicyError, TrainingError
from userrl_core.json_files import append_line
from userrl_core.judging.intervention import StepVerifier
from userrl_core.judging.judge import TurnJudge
from userrl_core.records import Judgement, Message, Phase, PolicyReply, RolloutContext, Task, Trajectory
from userrl_core.rewards import assign_credit
from userrl_core.rewards.judge import UNJUDGED
from userrl_core.rewards.optional import adjusted_rewards
from userrl_core.rollout import build_episode
from userrl_core.served.client import ChatServer, shown_address
from userrl_core.served.health import served_user, turn_seconds, until_it_answers, user_was_down
from userrl_core.training.local.text.calls import CallStyle, style_of
from userrl_core.training.local.text.chat import control_tokens, harmless
from userrl_core.training.verl.credit_actor import TrajectorySummary, find_credit_actor, record_step
from userrl_core.training.verl.estimator import signature
from userrl_core.training.verl.job import HEARTBEATS, OUTAGES, StageFile, read_stage_file
from userrl_core.training.verl.machine.heartbeat import start_heartbeat
from userrl_core.training.verl.newlines import known_type
from userrl_core.training.verl.step_plan import Decision, decided, tasks_by_key
from userrl_core.training.waits import waits

NAME = "userrl"
"""Name of this loop in the parquet column ``agent_name`` and in the agents file."""

REPLAYS = 3
"""Maximum replays of a trajectory: a user that answers probes but not this conversation is not an outage."""

QUICK = 5.0
"""Seconds after which a user that does not answer is reported as down."""

GROUP_PAUSE = 0.1
"""Seconds between two checks for a complete group."""

DECISION = 600.0
"""Maximum seconds to wait for the horizon of a step."""

GREEDY = {"temperature": 0.0, "top_p": 1.0, "top_k": -1}
"""Greedy sampling parameters of the engine."""

STEP_FIELDS = ("min_global_steps", "max_global_steps")


class TurnRewards(AgentLoopOutput):  # type: ignore[misc]  # verl has no types
    """One trajectory with a reward at the end of each turn.

    turn_ends: index into the response of each turn's last token. turn_rewards: the rewards at these tokens.
    """

    turn_ends: list[int] = Field(default_factory=list)
    turn_rewards: list[float] = Field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return verl's fields, with dense ``rm_scores`` instead of one number on the last token."""
        output: dict[str, Any] = super().as_dict()
        output.pop("turn_ends", None)
        output.pop("turn_rewards", None)
        scores = torch.zeros(len(self.response_ids), dtype=torch.float32)
        for end, reward in zip(self.turn_ends, self.turn_rewards, strict=True):
            scores[end] += reward
        output["rm_scores"] = scores
        return output


@dataclass(slots=True)
class _Tokens:
    """The conversation so far. ids: prompt and response. mask and logprobs cover the response only.

    ends, counts, turns: for each reply, its last index in the response, its number of tokens, and its turn number.
    """

    ids: list[int]
    messages: list[Message]
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    generating: float = 0.0


class GymAgentLoop(AgentLoopBase):  # type: ignore[misc]  # verl has no types
    """A player of one trajectory. The agents file names it with ``stage_file``, the path of a `StageFile`."""

    def __init__(self, *, stage_file: str, **keywords: Any) -> None:
        self._style, model_type = _of_tokenizer(keywords["tokenizer"], keywords.pop("hf_model_type", None))
        super().__init__(hf_model_type=model_type, **keywords)
        self.stage: StageFile = read_stage_file(stage_file)
        start_heartbeat(str(self.stage.folder / HEARTBEATS))
        self.room: int = int(self.rollout_config.response_length)
        self._control = control_tokens(self.tokenizer)
        judge = self.stage.job.judge
        self._judge = None if judge is None else TurnJudge(judge, self.stage.job.gym_config)
        watched = self.stage.job.intervention
        self._verifier = None if watched is None else StepVerifier(watched, self.stage.job.gym_config)

    async def run(self, sampling_params: dict[str, Any], **columns: Any) -> TurnRewards:
        """Play the trajectory of a parquet row at verl's step; always returns exactly one output."""
        try:
            return await self._run(sampling_params, columns)
        except Exception as error:
            _write_fatal(self.stage, error)
            raise

    async def _run(self, sampling_params: dict[str, Any], columns: dict[str, Any]) -> TurnRewards:
        row = json.loads(columns["userrl"])
        where = RolloutContext(self.stage.job.stage, int(columns["global_steps"]), _phase(row), self.stage.job.policy)
        attempt = int(columns["session_id"])
        decision, uid = await self._decision(where), str(columns["uid"])
        horizon, key = decision.turns, row["task"]
        if decision.tasks:  # rows go through a step in order, so a row's index is its place in every step
            key = decision.tasks[int(columns["extra_info"]["index"]) % len(decision.tasks)]
        task = tasks_by_key(row["tasks"])[key]
        conversation = self._conversation(task, attempt, where, horizon, sampling_params)
        if self.stage.greedy_baseline and where.phase == "train" and attempt == 0:
            baseline = self._leave_baseline(uid, task, replace(where, phase="baseline"), horizon, sampling_params)
            (trajectory, tokens), _ = await asyncio.gather(conversation, baseline)
        else:
            trajectory, tokens = await conversation
        await self._announce(uid, trajectory, tokens)
        rewards = await self._placed(uid, trajectory)
        return self._output(trajectory, tokens, _per_reply(rewards, tokens.turns))

    async def _conversation(
        self, task: Task, attempt: int, where: RolloutContext, horizon: int, sampling_params: dict[str, Any]
    ) -> tuple[Trajectory, _Tokens]:
        """Play one conversation to its end, again if a served user was down, and have its turns judged."""
        for replay in range(REPLAYS + 1):
            episode = self._episode(task, attempt, where, horizon)
            try:
                tokens = await self._play(episode, sampling_params)
            finally:
                await episode.gym.aclose()
            server = served_user(self.stage.job.users, task.gym)
            if replay == REPLAYS or server is None or not user_was_down(episode.trajectory):
                break
            await self._wait_for(server)
        await self._judge_turns(episode.trajectory)
        return episode.trajectory, tokens

    async def _leave_baseline(
        self, uid: str, task: Task, where: RolloutContext, horizon: int, sampling_params: dict[str, Any]
    ) -> None:
        """Play the group's task greedily, and send the score to the credit actor before verl sees the group."""
        trajectory, tokens = await self._conversation(task, 0, where, horizon, sampling_params | GREEDY)
        rewards = _per_reply(_turn_rewards(trajectory, self.stage), tokens.turns)
        score = float(assign_credit([rewards], [uid], self.stage.job.credit).scores[0])
        actor = find_credit_actor()
        if actor is not None:
            await actor.baseline.remote(uid, None if math.isnan(score) else score)

    async def _wait_for(self, server: ChatServer) -> None:
        """Wait until a served user answers again. Raises TrainingError when it does not within the stage's patience."""
        began, address = time.monotonic(), shown_address(server.base_url or "") or "its default address"
        if await until_it_answers(server, began + min(QUICK, self.stage.job.patience)):  # one lost answer is no outage
            return
        self.stage.folder.mkdir(parents=True, exist_ok=True)
        append_line(self.stage.folder / OUTAGES, {"model": server.model, "address": address})
        if not await until_it_answers(server, began + self.stage.job.patience):
            raise TrainingError(
                "model.server_down",
                f"The user model {server.model} at {address} has not answered for {self.stage.job.patience:g} s. "
                "Restart its server and start the run again.",
            )

    async def _judge_turns(self, trajectory: Trajectory) -> None:
        if self._judge is None or trajectory.context.phase not in ("train", "baseline"):
            return
        trajectory.judgement = await self._judgement(self._judge, trajectory)
        if self.stage.sink is not None:
            self.stage.sink.open().judgement(trajectory)

    async def _judgement(self, judge: TurnJudge, trajectory: Trajectory) -> Judgement | None:
        """Return the judgement. Wait for a judge that is down, and ask it once more."""
        judged = await judge.judge(trajectory)
        if judged is None or judged.category != UNJUDGED or judge.served is None:
            return judged
        if not await until_it_answers(judge.served.server, time.monotonic() + self.stage.job.patience):
            return judged
        second = await judge.judge(trajectory)
        return second and replace(second, calls=[*judged.calls, *second.calls])

    async def _decision(self, where: RolloutContext) -> Decision:
        """Return the horizon of this step, and its tasks if they are chosen. Wait until the launcher announces what depends on
        the previous step.

        Raises TrainingError when the launcher does not.
        """
        stage = self.stage
        if where.phase == "validate":
            return Decision(stage.job.validation_horizon)
        if not stage.decided:
            return Decision(stage.horizon(where.step))
        deadline = time.monotonic() + DECISION
        while (decision := decided(stage.folder, where.step)) is None:
            if time.monotonic() > deadline:
                raise TrainingError(
                    "process.stalled",
                    f"The horizon of step {where.step} was not decided within {DECISION:g} s. Start the run again.",
                )
            await asyncio.sleep(GROUP_PAUSE)
        return decision

    def _episode(self, task: Task, attempt: int, where: RolloutContext, horizon: int) -> Episode:
        stage = self.stage
        episode = build_episode(
            task,
            attempt,
            EpisodeRules(
                horizon,
                stage.job.on_format_error,
                stage.job.step_timeout or turn_seconds(stage.job.users),
                stage.job.model.prompt_style,
                stage.job.model.turns_left,
            ),
            sink=stage.sink.open() if stage.sink is not None else None,
            user=stage.job.users,
            context=where,
            seed=stage.job.seed,
            gym_config=stage.job.gym_config,
        )
        if where.phase in ("train", "baseline"):
            episode.verifier = self._verifier
        return episode

    async def _play(self, episode: Episode, sampling_params: dict[str, Any]) -> _Tokens:
        # A gym that breaks at its opening has no messages; verl needs a prompt even for a trajectory that is rejected.
        opening = self._harmless(await episode.begin() or [{"role": "user", "content": "."}])
        opening, offered = self._style.opening(opening, tools_for(episode.trajectory.task.gym, opening))
        tools = [dict(tool) for tool in offered] or None
        tokens = _Tokens(await self.ct_build_initial_tokens(opening, tools=tools), opening)
        request = uuid4().hex
        while not episode.finished:
            room = min(self.stage.job.algorithm.max_tokens, self.room - len(tokens.mask))
            if room < 1:
                episode.out_of_tokens()
                break
            tokens.turns.append(len(episode.trajectory.turns) + 1)
            started = time.perf_counter()
            try:
                reply = await self._reply(tokens, request, {**sampling_params, "max_tokens": room})
            except PolicyError as error:
                episode.fail(error)
                break
            new = self._harmless(await episode.submit(reply, time.perf_counter() - started))
            if new and not await self._listen(tokens, reply.text, new, tools):
                episode.out_of_tokens()
        return tokens

    async def _reply(self, tokens: _Tokens, request: str, sampling: dict[str, Any]) -> PolicyReply:
        prompt = len(tokens.ids)
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self.stage.job.policy_timeout):
                out = await self.server_manager.generate(
                    request_id=request, prompt_ids=tokens.ids, sampling_params=sampling
                )
        except TimeoutError as error:
            raise PolicyError(
                "policy.no_reply", f"The rollout engine gave no reply within {self.stage.job.policy_timeout:g} s."
            ) from error
        finally:
            tokens.generating += time.perf_counter() - began
        _keep_steps(tokens.extra, out.extra_fields)
        reply_ids = list(out.token_ids)[: sampling["max_tokens"]]
        if not reply_ids:
            raise PolicyError("policy.no_reply", f"The rollout engine returned no token ({out.stop_reason}).")
        logprobs = list(out.log_probs)[: len(reply_ids)] if out.log_probs else None
        merged, tokens.mask, aligned = await self.ct_merge_assistant_token(
            tokens.ids,
            reply_ids,
            tokens.mask,
            tokens.logprobs if logprobs is not None else None,
            assistant_logprobs=logprobs,
        )
        tokens.ids, tokens.logprobs = merged.token_ids, aligned or []
        tokens.ends.append(len(tokens.mask) - 1)
        tokens.counts.append(len(reply_ids))
        return PolicyReply(
            text=self._text(reply_ids),
            prompt_tokens=prompt,
            completion_tokens=len(reply_ids),
            token_ids=reply_ids,
            logprobs=logprobs,
            truncated=len(reply_ids) >= sampling["max_tokens"] and reply_ids[-1] != self.tokenizer.eos_token_id,
        )

    async def _listen(
        self, tokens: _Tokens, reply: str, new: list[Message], tools: list[dict[str, Any]] | None
    ) -> bool:
        """Add the observation. Return False, and add nothing, when no reply would fit after it."""
        before: list[Message] = [*tokens.messages, {"role": "assistant", "content": reply}]
        after = [*before, *map(self._style.following, new)]
        merged, mask, logprobs = await self.ct_merge_context_msg(
            before, after, tokens.ids, tokens.mask, tokens.logprobs or None, tools=tools
        )
        if len(mask) >= self.room:
            return False
        tokens.ids, tokens.mask, tokens.logprobs = merged.token_ids, mask, logprobs or []
        tokens.messages = after
        return True

    async def _placed(self, uid: str, trajectory: Trajectory) -> list[float]:
        """Return verl's reward per turn: `_turn_rewards`, or under assignment group the normalised score on the last
        turn and 0 elsewhere.

        The normalised score needs the rest of the group, so it waits for it. verl plays a whole batch at once, so the
        other trajectories never wait for this one's slot.
        """
        rewards = _turn_rewards(trajectory, self.stage)
        actor = find_credit_actor()
        if self.stage.assignment != "group" or trajectory.context.phase != "train" or actor is None:
            return rewards
        attempt_index = await actor.offer.remote(uid, rewards)
        while (group := await actor.offered.remote(uid, self.stage.job.algorithm.group)) is None:
            if (self.stage.folder / "fatal").exists():
                raise TrainingError(
                    "process.failed",
                    "Another conversation of the group could not be played. The log contains its error.",
                )
            await asyncio.sleep(GROUP_PAUSE)
        z = assign_credit(group, [uid] * len(group), self.stage.job.credit).z[attempt_index]
        return [0.0] * (len(rewards) - 1) + [float(z)] if rewards else []

    def _output(self, trajectory: Trajectory, tokens: _Tokens, rewards: list[float]) -> TurnRewards:
        mask, ids = tokens.mask, tokens.ids
        response = ids[len(ids) - len(mask) :] if mask else []
        logprobs = tokens.logprobs or None
        if not response:  # the engine failed at once; verl needs a token, and the mask keeps it out of everything
            response, mask, logprobs = [self.tokenizer.eos_token_id], [0], [0.0]
        prompt = ids[: len(ids) - len(tokens.mask)]
        trains = _is_trained(trajectory, self.stage)
        if not trains:
            mask = [0] * len(response)
        ends = tokens.ends if trains else []
        score = trajectory.score if trajectory.admitted else None
        tokens.extra["reward_extra_info"] = {
            "score": score,
            "success": float(trajectory.stop_reason == "success") if trajectory.admitted else None,
            "turns": float(len(trajectory.turns)),
            "admitted": float(trajectory.admitted),
        }
        return TurnRewards(
            prompt_ids=prompt,
            response_ids=response,
            response_mask=mask,
            response_logprobs=logprobs,
            reward_score=sum(rewards),
            num_turns=2 * len(trajectory.turns),
            metrics=AgentLoopMetrics(
                generate_sequences=tokens.generating, tool_calls=sum(turn.env_seconds for turn in trajectory.turns)
            ),
            extra_fields=tokens.extra,
            turn_ends=ends,
            turn_rewards=rewards,
        )

    async def _announce(self, uid: str, trajectory: Trajectory, tokens: _Tokens) -> None:
        """Send this trajectory's summary to the credit actor, before verl can see its output.

        The last trajectory of a step that none of our estimators sees also records the step.
        """
        credit_actor = find_credit_actor()
        if credit_actor is None or trajectory.context.phase != "train":
            return
        rewards = _per_reply(_turn_rewards(trajectory, self.stage), tokens.turns)
        complete_step = await credit_actor.put.remote(
            uid,
            TrajectorySummary(
                signature=signature(rewards, tokens.counts) if _is_trained(trajectory, self.stage) else (),
                traj_id=trajectory.traj_id,
                step=trajectory.context.step,
                task=trajectory.task.key,
                admitted=trajectory.admitted,
                success=trajectory.stop_reason == "success",
                score=trajectory.score,
                return_sum=trajectory.return_sum,
                turns=len(trajectory.turns),
                waits=sum(waits(turn.message) for turn in trajectory.turns),
                reply_tokens=sum(turn.completion_tokens for turn in trajectory.turns),
                interruptions=sum(len(turn.info.get("interrupted", ())) for turn in trajectory.turns),
                last_replies=tuple(_last_replies(tokens.turns)),
            ),
            self.stage.attempts,
        )
        if complete_step is not None:
            record_step(self.stage, complete_step)

    def _cap_text_prompt_length(self, prompt_ids: list[int]) -> list[int]:
        """Raise ConfigError for an opening that is too long. verl would cut off its beginning with only a warning."""
        max_tokens = self.rollout_config.prompt_length
        if len(prompt_ids) > max_tokens:
            raise ConfigError(
                "recipe.invalid_value",
                f"An opening has {len(prompt_ids):,} tokens, and algorithm.max_prompt_tokens is {max_tokens:,}. Raise it.",
            )
        return prompt_ids

    def _text(self, ids: Sequence[int]) -> str:
        is_complete = bool(ids) and ids[-1] == self.tokenizer.eos_token_id
        body = ids[:-1] if is_complete else ids
        text = str(self.tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False))
        return self._style.read(text) if is_complete else text

    def _harmless(self, messages: Sequence[Message]) -> list[Message]:
        return [{**message, "content": harmless(str(message["content"]), self._control)} for message in messages]


@lru_cache(maxsize=1)
def _of_tokenizer(tokenizer: Any, model_type: str | None) -> tuple[CallStyle, str | None]:
    """Return the style of calls, and the model type for verl. Rendered once: all trajectories of a process share a tokenizer."""
    return style_of(tokenizer), known_type(tokenizer, model_type)


def _phase(row: dict[str, Any]) -> Phase:
    return "validate" if row["phase"] == "validate" else "train"


def _is_trained(trajectory: Trajectory, stage: StageFile) -> bool:
    """Return True if the trajectory has a score, and marks where a recipe leaves out what its judge could not judge."""
    return trajectory.admitted and None not in adjusted_rewards(trajectory, stage.job.credit.terms)


def _turn_rewards(trajectory: Trajectory, stage: StageFile) -> list[float]:
    """Return the reward per turn with the recipe's optional terms, all on the last turn under assignment trajectory.

    Empty without a score.
    """
    adjusted = adjusted_rewards(trajectory, stage.job.credit.terms)
    rewards = [r for r in adjusted if r is not None]
    if not trajectory.admitted or len(rewards) != len(trajectory.turns):
        return []
    if stage.assignment == "trajectory" and rewards:
        return [0.0] * (len(rewards) - 1) + [sum(rewards)]
    return rewards


def _last_replies(turns: Sequence[int]) -> list[int]:
    """Return the index of each turn's last reply, the one that was executed. turns: the turn number of each reply,
    ascending from 1.
    """
    return [i for i, turn in enumerate(turns) if i + 1 == len(turns) or turns[i + 1] != turn]


def _per_reply(rewards: Sequence[float], turns: Sequence[int]) -> list[float]:
    """Convert rewards of turns to rewards of replies; an interrupted attempt gets 0."""
    if not rewards:
        return []
    spread = [0.0] * len(turns)
    for reply_index, reward in zip(_last_replies(turns), rewards, strict=True):
        spread[reply_index] = reward
    return spread


def _keep_steps(extra: dict[str, Any], new: dict[str, Any]) -> None:
    """Keep the first and the last version of the weights that generated the conversation."""
    if not extra:
        extra.update(new)
    elif new.get(STEP_FIELDS[1]) is not None:
        extra[STEP_FIELDS[1]] = new[STEP_FIELDS[1]]


def _write_fatal(stage: StageFile, error: Exception) -> None:
    stage.folder.mkdir(parents=True, exist_ok=True)
    lines = str(error).splitlines() or [""]
    with (stage.folder / "fatal").open("a") as file:
        file.write(f"{type(error).__name__}: {lines[0][:300]} (process {os.getpid()})\n")
