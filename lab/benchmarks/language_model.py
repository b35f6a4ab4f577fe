"""Speed of a pretrained language model on this machine's CPU: this trainer beside plain transformers.

    python -m lab.benchmarks.language_model [--conversations 16] [--turns 6] [--threads 1 2] [--dtypes float32 bfloat16]

Needs `userrl model fetch smollm2-135m`. Each row is a process of its own, and its memory is that process's peak.

- forward: log-probabilities of 16 conversations of 100 tokens, without gradients;
- update: loss, gradients and one step of AdamW on the same conversations. ours trains on every fourth token (the agent's).
  plain takes logits of all tokens and torch's AdamW, in bfloat16 without master weights;
- decoding: 16 replies of 24 tokens to a prompt of 64;
- step: one RL step. Conversations of an opening of 40 tokens, then turns of 6 sampled and 8 read tokens, and an update on
  them. plain sends the whole conversation through `generate` each turn.

An update's forward passes are its seconds divided by the seconds of a forward pass of the same tokens. A share of its products is
the time of the matrix products alone, measured in the same process, divided by the time of the whole.

A second table has single operations: a product of 1,600 x 576 x 1,536; attention of 16 conversations of 100 tokens with its
backward pass, in the model's format and as the trainer computes it; drawing a token for 48 rows, by torch.multinomial and as the
trainer does; an update of a group of 8 whose first 46 tokens are the same, with that opening computed for each and once; and the
gradient of six such groups, one after the other and as many at a time as there are threads.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from userrl_core.training.local.threads import quiet_threads

MODEL, BATCH, LENGTH, PROMPT, REPLY = "smollm2-135m", 16, 100, 64, 24
OPENING, SAMPLED, READ, MICRO_BATCH = 40, 6, 8, 16
OUR_MICRO_BATCH = 8
"""As in profile laptop-lm: with two threads, each has half of the conversations."""
HEAD = (
    "number format | threads | loop | forward | of its products | update | forward passes of an update | decoding | "
    "of its products | step, s | memory, GB"
)
OPERATIONS = (
    "number format | threads | product, GFLOP/s | attention and backward, ms | ours, ms | multinomial, ms | ours, ms | "
    "opening for each, s | once, s | six groups in turn, s | side by side, s"
)


def main() -> None:
    """Measure each combination in its own process and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=16)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        quiet_threads()
        dtype, threads, loop = arguments.child
        print(json.dumps(measured(dtype, int(threads), loop, arguments.conversations, arguments.turns)))
        return
    print(f"| {HEAD} |\n| --- |{' ---: |' * 10}")
    for dtype, threads, loop in product(arguments.dtypes, arguments.threads, ("ours", "plain")):
        row = child(dtype, threads, loop, arguments)
        passes = row["forward"] / row["update"]
        print(
            f"| {dtype} | {threads} | {loop} | {row['forward']:,.0f} | {row['forward_share']:.2f} | {row['update']:,.0f} | "
            f"{passes:.1f} | {row['decoding']:,.0f} | {row['decoding_share']:.2f} | {row['step']:.1f} | {row['memory']:.1f} |",
            flush=True,
        )
    print("\nforward, update and decoding in tokens per second; the best of three\n")
    print(f"| {OPERATIONS} |\n| --- |{' ---: |' * 10}")
    for dtype, threads in product(arguments.dtypes, arguments.threads):
        row = child(dtype, threads, "operations", arguments)
        print(
            f"| {dtype} | {threads} | {row['product']:.0f} | {1e3 * row['attention']:.0f} | "
            f"{1e3 * row['our_attention']:.0f} | {1e3 * row['multinomial']:.0f} | {1e3 * row['our_draw']:.0f} | "
            f"{row['each']:.2f} | {row['once']:.2f} | {row['in_turn']:.1f} | {row['side_by_side']:.1f} |",
            flush=True,
        )


def child(dtype: str, threads: int, loop: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Return the measurements of one process."""
    sizes = ["--conversations", str(arguments.conversations), "--turns", str(arguments.turns)]
    command = [sys.executable, "-m", "lab.benchmarks.language_model", *sizes, "--child", dtype, str(threads), loop]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    row: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return row


def measured(dtype: Any, threads: int, loop: str, conversations: int, turns: int) -> dict[str, float]:
    """Measure one loop in this process. Rates are tokens per second."""
    import torch

    from userrl.machine.pretrained import model_path
    from userrl_core.training.config import ModelConfig
    from userrl_core.training.local.model import load_model

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = load_model(model_path(MODEL), ModelConfig(path=MODEL, dtype=dtype))
    if loop == "operations":
        return operations(model)
    speed = (Ours if loop == "ours" else Plain)(model)
    ids = torch.randint(1000, 40_000, (BATCH, LENGTH)).tolist()
    prompts = torch.randint(1000, 40_000, (BATCH, PROMPT)).tolist()
    agent = [[0 if column % 4 == 1 else -1 for column in range(LENGTH)]] * BATCH
    forward = best(lambda: speed.forward(ids, agent))
    update = best(lambda: speed.update(ids, agent))
    decoding = best(lambda: speed.replies(prompts, REPLY))
    step = best(lambda: rl_step(speed, conversations, turns), times=2)
    limit = products(model, BATCH * LENGTH, BATCH * LENGTH // 4)
    reply_limit = products(model, BATCH * PROMPT, BATCH) + (REPLY - 1) * products(model, BATCH, BATCH)
    return {
        "forward": BATCH * LENGTH / forward,
        "forward_share": limit / forward,
        "update": BATCH * LENGTH / update,
        "decoding": BATCH * REPLY / decoding,
        "decoding_share": reply_limit / decoding,
        "step": step,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def products(model: Any, tokens: int, predicted: int) -> float:
    """Return the seconds of the matrix products alone: all layers for the tokens, the output layer for the predicted ones."""
    import torch

    inputs = {width: torch.randn(tokens, width, dtype=model.dtype) for width in (576, 1536)}
    weights = [parameter for parameter in model.model.layers.parameters() if parameter.ndim == 2]

    def multiply() -> None:
        for weight in weights:
            torch.nn.functional.linear(inputs[weight.shape[1]], weight)
        torch.nn.functional.linear(inputs[576][:predicted], model.lm_head.weight)

    with torch.inference_mode():
        return best(multiply)


def operations(model: Any) -> dict[str, float]:
    """Measure single operations. Seconds, and GFLOP/s of a product."""
    import torch

    from userrl_core.training.local.attention import attend as our_attention
    from userrl_core.training.local.logprobs import token_logprobs
    from userrl_core.training.local.micro_batches import add_gradients
    from userrl_core.training.local.samples import draw_tokens

    a, b = torch.randn(1600, 576, dtype=model.dtype), torch.randn(1536, 576, dtype=model.dtype)
    heads = torch.randn(BATCH, 9, LENGTH, 64, dtype=model.dtype, requires_grad=True)

    layer = torch.nn.Module()

    def attend() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)

    def attend_as_we_do() -> Any:
        return our_attention(layer, heads, heads, heads, None, is_causal=True)[0]

    probabilities = torch.randn(48, model.config.vocab_size).softmax(-1)

    opening = torch.randint(1000, 40_000, (46,)).tolist()
    ids = [opening + torch.randint(1000, 40_000, (20 + 20 * (row % 3),)).tolist() for row in range(8)]
    agent = [[-1] * 46 + [0 if column % 4 == 0 else -1 for column in range(len(row) - 46)] for row in ids]

    def update(share: bool) -> None:
        logprobs, _ = token_logprobs(model, ids, agent, share=share)
        logprobs.mean().backward()

    groups = [[[*first, *row[46:]] for row in ids] for first in torch.randint(1000, 40_000, (6, 46)).tolist()]

    def gradient(batches: Sequence[Sequence[Sequence[Sequence[int]]]]) -> None:
        model.zero_grad()
        for batch in batches:
            add_gradients(model, batch, lambda rows: (token_logprobs(model, rows, agent, share=True)[0].mean(), 0))

    return {
        "product": 2 * 1600 * 576 * 1536 / best(lambda: a @ b.T) / 1e9,
        "attention": best(lambda: attend().sum().backward()),
        "our_attention": best(lambda: attend_as_we_do().sum().backward()),
        "multinomial": best(lambda: torch.multinomial(probabilities, 1)),
        "our_draw": best(lambda: draw_tokens(probabilities, 1.0, None)),
        "each": best(lambda: update(share=False)),
        "once": best(lambda: update(share=True)),
        "in_turn": best(lambda: gradient([[group] for group in groups])),
        "side_by_side": best(lambda: gradient([groups])),
    }


def best(work: Callable[[], object], times: int = 3) -> float:
    """Return the fewest seconds that the work took, after one call that does not count."""
    seconds = []
    for _ in range(times + 1):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def rl_step(speed: Any, conversations: int, turns: int) -> None:
    """Play conversations and train on them. What the user says is random."""
    import torch

    opening = torch.randint(1000, 40_000, (conversations, OPENING)).tolist()
    user_turns = torch.randint(1000, 40_000, (turns, conversations, READ)).tolist()
    ids = speed.play(opening, user_turns)
    turn = [0] * SAMPLED + [-1] * READ
    agent = [([-1] * OPENING + turn * turns)[: len(row)] for row in ids]
    speed.update(ids, agent)


class Ours:
    """The trainer's own functions."""

    def __init__(self, model: Any) -> None:
        from userrl_core.training.local.optimizer import adamw

        self.model, self.optimizer = model, adamw(model, 1e-6, (0.9, 0.95), 0.0)

    def forward(self, ids: Sequence[Sequence[int]], agent: Sequence[Sequence[int]]) -> None:
        """Compute log-probabilities of the agent's tokens."""
        from userrl_core.training.local.logprobs import reference_logprobs

        reference_logprobs(self.model, ids, agent, 1.0, MICRO_BATCH)

    def update(self, ids: Sequence[Sequence[int]], agent: Sequence[Sequence[int]]) -> None:
        """Take one step on the agent's tokens."""
        from userrl_core.training.local.logprobs import token_logprobs
        from userrl_core.training.local.micro_batches import add_gradients
        from userrl_core.training.local.optimizer import clip_and_step

        self.model.train()
        parts = [slice(first, first + OUR_MICRO_BATCH) for first in range(0, len(ids), OUR_MICRO_BATCH)]
        add_gradients(
            self.model, parts, lambda rows: (-token_logprobs(self.model, ids[rows], agent[rows])[0].mean(), 0)
        )
        clip_and_step(self.optimizer, self.model.parameters(), 1.0)
        self.model.eval()

    def replies(self, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
        """Return one sampled reply of `count` tokens for each prompt."""
        from userrl_core.training.local.decode import make_decoder

        decoder = make_decoder(self.model, len(prompts), len(prompts[0]) + count)
        return self._sampled(decoder, prompts, count)

    def play(self, opening: Sequence[Sequence[int]], user_turns: Sequence[Sequence[Sequence[int]]]) -> list[list[int]]:
        """Return whole conversations. No token is read twice."""
        from userrl_core.training.local.decode import make_decoder

        decoder = make_decoder(self.model, len(opening), len(opening[0]) + 64)
        ids, unread = [list(row) for row in opening], [list(row) for row in opening]
        for turn in user_turns:
            replies = self._sampled(decoder, unread, SAMPLED)
            unread = [[*reply[-1:], *user_ids] for reply, user_ids in zip(replies, turn, strict=True)]
            ids = [[*row, *reply, *user_ids] for row, reply, user_ids in zip(ids, replies, turn, strict=True)]
        return ids

    @staticmethod
    def _sampled(decoder: Any, unread: Sequence[Sequence[int]], count: int) -> list[list[int]]:
        import torch

        from userrl_core.training.local.samples import draw_tokens

        fed, columns = torch.tensor(unread), []
        for _ in range(count):
            logits = decoder.feed(fed, torch.ones_like(fed, dtype=torch.bool))
            fed = draw_tokens(torch.softmax(logits, -1), 1.0, None)[:, None]
            columns.append(fed)
        replies: list[list[int]] = torch.cat(columns, 1).tolist()
        return replies


class Plain:
    """The obvious implementation with transformers."""

    def __init__(self, model: Any) -> None:
        import torch

        self.model, self.optimizer = model, torch.optim.AdamW(model.parameters(), lr=1e-6)

    def forward(self, ids: Sequence[Sequence[int]], agent: Sequence[Sequence[int]]) -> None:
        """Compute log-probabilities of all tokens."""
        import torch

        with torch.no_grad():
            self._logprobs(torch.tensor(ids))

    def update(self, ids: Sequence[Sequence[int]], agent: Sequence[Sequence[int]]) -> None:
        """Take one step on the agent's tokens."""
        import torch

        self.model.train()
        for first in range(0, len(ids), MICRO_BATCH):
            logprobs = self._logprobs(torch.tensor(ids[first : first + MICRO_BATCH]))
            mask = torch.tensor(agent[first : first + MICRO_BATCH])[:, 1:] >= 0
            (-(logprobs * mask).sum() / mask.sum()).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.model.eval()

    def replies(self, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
        """Return one sampled reply of `count` tokens for each prompt."""
        import torch

        ids = torch.tensor(prompts)
        written = self.model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, min_new_tokens=count, max_new_tokens=count,
            pad_token_id=0,
        )  # fmt: skip
        replies: list[list[int]] = written[:, ids.shape[1] :].tolist()
        return replies

    def play(self, opening: Sequence[Sequence[int]], user_turns: Sequence[Sequence[Sequence[int]]]) -> list[list[int]]:
        """Return whole conversations. Each turn reads its conversation again."""
        ids = [list(row) for row in opening]
        for turn in user_turns:
            replies = self.replies(ids, SAMPLED)
            ids = [[*row, *reply, *user_ids] for row, reply, user_ids in zip(ids, replies, turn, strict=True)]
        return ids

    def _logprobs(self, ids_BL: Any) -> Any:
        import torch

        logits = self.model(input_ids=ids_BL).logits[:, :-1].float()
        return torch.log_softmax(logits, -1).gather(2, ids_BL[:, 1:, None])[..., 0]


if __name__ == "__main__":
    main()
