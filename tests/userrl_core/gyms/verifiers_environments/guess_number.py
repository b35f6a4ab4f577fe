"""A multi-turn environment of verifiers: guess a number, with a reward for each turn that helps, and two stop conditions.

A reply counts as the last number in it, so that a language model may answer in a sentence.
"""

import re

import verifiers as vf
from datasets import Dataset


def guess(message):
    """Return the last number in a reply, or ""."""
    return next(iter(re.findall(r"\d+", str(message.content))[::-1]), "")


class GuessEnv(vf.MultiTurnEnv):
    async def setup_state(self, state):
        state["found"], state["asked"] = False, set()
        return state

    async def add_trajectory_step(self, state, trajectory_step):
        await super().add_trajectory_step(state, trajectory_step)
        number = guess(trajectory_step["completion"][-1])
        state["found"] = number == state["answer"]
        fresh = number and number not in state["asked"]
        state["asked"].add(number)
        trajectory_step["reward"] = 0.6 if state["found"] else 0.1 if fresh else 0.0

    @vf.stop
    async def found(self, state):
        return state["found"]

    async def env_response(self, messages, state, **kwargs):
        number = guess(messages[-1])
        if not number:
            return [{"role": "user", "content": "Say a number."}]
        return [{"role": "user", "content": "higher" if int(number) < int(state["answer"]) else "lower"}]


def total(state):
    return sum(step["reward"] for step in state["trajectory"])


def load_environment(size: int = 8, max_turns: int = 4):
    def rows(start, stop):
        return Dataset.from_list(
            [{"question": f"Guess {i}: 0 to {size - 1}?", "answer": str(i * 5 % size)} for i in range(start, stop)]
        )

    return GuessEnv(
        dataset=rows(0, 60), eval_dataset=rows(60, 80), rubric=vf.Rubric(funcs=[total]), max_turns=max_turns,
        system_prompt="Find the number.",
    )  # fmt: skip
