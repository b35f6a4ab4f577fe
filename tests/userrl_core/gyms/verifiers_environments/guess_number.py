"""A multi-turn environment of verifiers: guess a number, with a reward for each turn that helps, and two stop conditions."""

import verifiers as vf
from datasets import Dataset


class GuessEnv(vf.MultiTurnEnv):
    async def setup_state(self, state):
        state["found"], state["asked"] = False, set()
        return state

    async def add_trajectory_step(self, state, trajectory_step):
        await super().add_trajectory_step(state, trajectory_step)
        text = str(trajectory_step["completion"][-1].content).strip()
        state["found"] = text == state["answer"]
        fresh = text.isdigit() and text not in state["asked"]
        state["asked"].add(text)
        trajectory_step["reward"] = 0.6 if state["found"] else 0.1 if fresh else 0.0

    @vf.stop
    async def found(self, state):
        return state["found"]

    async def env_response(self, messages, state, **kwargs):
        text = str(messages[-1].content).strip()
        if not text.isdigit():
            return [{"role": "user", "content": "Say a number."}]
        return [{"role": "user", "content": "higher" if int(text) < int(state["answer"]) else "lower"}]


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
