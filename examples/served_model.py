"""A model behind any OpenAI-compatible server, on held-out tasks: `userrl evaluate --model` from Python.

python examples/served_model.py MODEL http://127.0.0.1:8000/v1 [GYM ...]
"""

from __future__ import annotations

import sys

from flows.evaluate import evaluate
from warehouse import open_warehouse


def main(model: str, base_url: str, *gyms: str) -> None:
    """Play four tasks of each gym and print the scores, with the reasons for missing scores."""
    # A run like any other: asked for again, it plays only what is missing. A key is read from OPENAI_API_KEY.
    done = evaluate(model=model, base_url=base_url, gyms=list(gyms or ("function", "telepathy")), tasks=4, horizon=4)
    with open_warehouse() as warehouse:
        print(
            warehouse.query("gym_scores", run=done["run"]).pl().select("policy", "gym", "n", "score", "standard_error")
        )
        print(warehouse.query("reject_reasons", run=done["run"]).pl())


if __name__ == "__main__":
    main(*sys.argv[1:])
