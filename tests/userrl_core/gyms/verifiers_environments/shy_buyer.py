"""A user-simulating environment of verifiers: a buyer tells a wish when asked, and ends the conversation after an offer."""

import verifiers as vf
from datasets import Dataset

COLOURS = ("red", "blue", "green")


class BuyerEnv(vf.MultiTurnEnv):
    async def setup_state(self, state):
        state["told"] = False
        return state

    async def env_response(self, messages, state, **kwargs):
        text = str(messages[-1].content).strip()
        if text in COLOURS:
            state["offer"] = text
            state["final_env_response"] = [{"role": "user", "content": "Thank you, goodbye."}]
            return state["final_env_response"]
        state["told"] = True
        return [{"role": "user", "content": f"I like {state['answer']}."}]


async def sold(state):
    return float(state.get("offer") == state["answer"])


async def asked(state):
    return float(state["told"])


def load_environment():
    rows = [{"question": f"Customer {i}: do you have a scarf?", "answer": COLOURS[i % 3]} for i in range(90)]
    rubric = vf.Rubric(funcs=[sold])
    rubric.add_metric(asked)
    return BuyerEnv(dataset=Dataset.from_list(rows), rubric=rubric, max_turns=5)
