"""A tool environment of verifiers: look prices up, add them, and say the sum. Its rubric has two weighted functions."""

import verifiers as vf
from datasets import Dataset

PRICES = {"tea": 3, "bread": 4, "milk": 2, "salt": 1, "oil": 7}


def price(item: str) -> int:
    """Return the price of an item."""
    return PRICES[item]


def add(a: int, b: int) -> int:
    """Return a + b."""
    return a + b


def right(completion, answer):
    return float(str(completion[-1].content).strip() == answer)


def looked_up(completion):
    calls = [call for message in completion for call in getattr(message, "tool_calls", None) or []]
    return min(sum(call.name == "price" for call in calls), 2) / 2


def load_environment():
    items = sorted(PRICES)
    rows = [
        {"question": f"What do {a} and {b} cost?", "answer": str(PRICES[a] + PRICES[b]), "info": {"items": [a, b]}}
        for a in items
        for b in items
    ]
    return vf.ToolEnv(
        tools=[price, add],
        max_turns=6,
        dataset=Dataset.from_list(rows),
        rubric=vf.Rubric(funcs=[right, looked_up], weights=[0.8, 0.2]),
    )
