"""A checkpoint behind a rollout engine as the policy: `LocalPolicy` with another decoder, the same ids in and out.

Conversations run independently, so the engine's batch stays full while users and gyms answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from userrl_core.distill import tools_for
from userrl_core.episode import Episode
from userrl_core.errors import PolicyError
from userrl_core.records import PolicyReply
from userrl_core.seeding import derive_seed
from userrl_core.served.tokens import TokenClient, TokenServer
from userrl_core.training.local.text.chat import ChatFormat


class EnginePolicy:
    """A policy that plays episodes on a served checkpoint (`BatchPolicy`).

    context: maximum tokens of a conversation, set by the engine. temperature: 0 is greedy. max_tokens: limit of one
    reply. max_response_tokens: limit of a conversation after its opening. concurrency: conversations at once.

    Samples depend on the episode's seed and its turn number, as far as the engine respects seeds.
    """

    def __init__(
        self,
        server: TokenServer,
        tokenizer: Any,
        *,
        context: int,
        max_tokens: int,
        max_response_tokens: int,
        temperature: float = 0.0,
        top_p: float = 1.0,
        concurrency: int,
        name: str = "engine",
    ) -> None:
        self.name = name
        self._server = server
        self._format = ChatFormat(tokenizer)
        self._context, self._max_tokens, self._max_response = context, max_tokens, max_response_tokens
        self._temperature, self._top_p = temperature, top_p
        self._concurrency = concurrency

    async def play(self, episodes: Sequence[Episode]) -> None:
        """Play every episode to its end. An episode without a reply from the engine is not scored; any other failure
        ends all.
        """
        free = asyncio.Semaphore(self._concurrency)
        engine = TokenClient(self._server)

        async def converse(episode: Episode) -> None:
            async with free:
                await self._converse(engine, episode)

        try:
            async with asyncio.TaskGroup() as group:
                for episode in episodes:
                    group.create_task(converse(episode))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            await engine.aclose()

    async def _converse(self, engine: TokenClient, episode: Episode) -> None:
        messages = await episode.begin()
        if episode.finished:
            return
        ids = self._format.opening(messages, tools_for(episode.gym.name, messages))
        limit = min(self._context, len(ids) + self._max_response)
        while not episode.finished:
            room = min(self._max_tokens, limit - len(ids))
            if room < 1:
                episode.out_of_tokens()
                return
            began = time.perf_counter()
            try:
                reply_ids = await engine.sample(
                    ids,
                    end_id=self._format.end_id,
                    most=room,
                    temperature=self._temperature,
                    top_p=self._top_p,
                    seed=derive_seed("policy", episode.trajectory.seed, len(episode.trajectory.turns)),
                )
            except PolicyError as error:
                episode.fail(error)
                return
            if not self._format.knows(reply_ids):
                place, token_id = next((n, i) for n, i in enumerate(reply_ids, 1) if not self._format.knows([i]))
                sentence = (
                    f"Token {place} of a reply of {self._server.model} has id {token_id}, which this vocabulary lacks."
                )
                episode.fail(PolicyError("policy.no_reply", f"{sentence} Serve the checkpoint that is evaluated."))
                return
            truncated = reply_ids[-1] != self._format.end_id
            reply = PolicyReply(
                text=self._format.text(reply_ids),
                prompt_tokens=len(ids),
                completion_tokens=len(reply_ids),
                token_ids=reply_ids,
                truncated=truncated,
            )
            observed = await episode.submit(reply, time.perf_counter() - began)
            if observed:
                closing_ids = [self._format.end_id] if truncated else []
                ids = [*ids, *reply_ids, *closing_ids, *self._format.after_reply(str(observed[0]["content"]))]
