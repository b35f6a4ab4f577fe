"""Environments of verifiers that fail, each in one way."""

import asyncio
import os
import time

import verifiers as vf
from datasets import Dataset


class HostileEnv(vf.MultiTurnEnv):
    async def setup_state(self, state):
        if self.way == "setup":
            raise RuntimeError("no sandbox left")
        return state

    async def add_trajectory_step(self, state, trajectory_step):
        await super().add_trajectory_step(state, trajectory_step)
        if self.way.startswith("step "):
            trajectory_step["reward"] = {"nan": float("nan"), "text": "good", "true": True}[self.way.split()[1]]

    async def env_response(self, messages, state, **kwargs):
        match self.way:
            case "raises":
                raise RuntimeError("the database is gone")
            case "vf error":
                raise vf.InfraError("the sandbox died")
            case "hangs":
                await asyncio.sleep(3600)
            case "blocks":
                time.sleep(3600)  # noqa: ASYNC251  that is the point
            case "exits":
                os._exit(3)
            case "huge":
                return [{"role": "user", "content": "x" * (33 << 20)}]
            case "picture":
                part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
                return [{"role": "user", "content": [part]}]
            case "wrong type":
                return 17
            case "none":
                return None
            case "two at once":
                await asyncio.gather(*(self.get_model_response(state, state["prompt"]) for _ in range(2)))
            case "prints":
                print('{"session": 1, "score": 1, "messages": [], "failure": ""}', flush=True)
        return [{"role": "user", "content": "go on"}]


def load_environment(way: str, place: str = ""):
    if way == "load":
        raise RuntimeError("no key")

    def reward(completion):
        if way == "reward raises":
            raise ValueError("the judge is down")
        return {"reward nan": float("nan"), "reward inf": float("inf"), "reward none": None, "reward text": "good"}.get(
            way, 1
        )

    def ranked(completions):
        return [0.0 for _ in completions]

    env = HostileEnv(
        dataset=Dataset.from_list([{"question": f"{way} {i}", "answer": ""} for i in range(40)]),
        rubric=vf.Rubric(funcs=[ranked if way == "group" else reward]),
        max_turns=2,
        score_rollouts=way != "unscored",
    )
    env.way = way
    return env
