"""The same RL work three ways: this trainer, a plain loop over Hugging Face's `generate`, and TRL's GRPOTrainer.

    python -m lab.benchmarks.plain_loops [--tokens 60000] [--loops ours plain trl] [--seed 0]

Errand of depths 1 to 3 at 16 turns, the laptop's model (0.1 M parameters), 16 tasks x 8 conversations per step, two
updates per step, one thread, all from one cold start. Each loop runs in its own process until it has played the given
number of tokens. Prints processor time per 1,000 tokens of the steps after the first. So imports, the cold start and
TRL's preparations are excluded.

The plain loop is the obvious implementation: the whole conversation goes through `generate` each turn in one padded
batch, then one forward and backward pass per minibatch. TRL plays through the same function, its `rollout_func`; the
update is TRL's. TRL has its own environment (--trl-env), which this script creates, and which borrows our torch and
transformers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from userrl_core.training.local.threads import quiet_threads

TRL = "trl==1.16.0"
HORIZON, TASKS, GROUP, MINIBATCHES, LR = 16, 16, 8, 2, 1e-3
MAX_TOKENS, MAX_CONTEXT = 8, 256


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=60_000)
    parser.add_argument("--loops", nargs="+", default=["ours", "plain", "trl"], choices=["ours", "plain", "trl"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trl-env", type=Path, default=Path(tempfile.gettempdir()) / "userrl-trl")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        quiet_threads()
        loop, folder = arguments.child
        print(json.dumps(LOOPS[loop](Path(folder), arguments.tokens, arguments.seed)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        _child(sys.executable, "start", folder, arguments)
        rows = {}
        for loop in arguments.loops:
            python = str(trl_environment(arguments.trl_env)) if loop == "trl" else sys.executable
            rows[loop] = _child(python, loop, folder, arguments)
    head = "loop | tokens | steps | CPU-s | CPU-s per 1,000 tokens | times ours | playing | updating"
    print(f"| {head} | mean reward, first and last third |")
    print("| --- |" + " ---: |" * 8)
    for loop, row in rows.items():
        per = row["cpu"] / row["tokens"] * 1000
        ours = rows.get("ours", row)
        rewards = row["rewards"]
        third = max(len(rewards) // 3, 1)
        first, last = sum(rewards[:third]) / third, sum(rewards[-third:]) / third
        print(
            f"| {loop} | {row['tokens']:,} | {len(rewards)} | {row['cpu']:.1f} | {per:.3f} | "
            f"{per / (ours['cpu'] / ours['tokens'] * 1000):.1f} | {row['playing']:.1f} | {row['cpu'] - row['playing']:.1f} | "
            f"{first:.2f}, {last:.2f} |"
        )
    return 0


def _child(python: str, loop: str, folder: str, arguments: argparse.Namespace) -> dict[str, Any]:
    command = [
        python,
        "-m",
        "lab.benchmarks.plain_loops",
        "--tokens",
        str(arguments.tokens),
        "--seed",
        str(arguments.seed),
    ]
    root = str(Path(__file__).parents[2])
    offline = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": root, "OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    done = subprocess.run(
        [*command, "--child", loop, folder],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, **offline},
        cwd=root,
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    for name, first in result.pop("first", {}).items():
        result[name] -= first
    return result


def trl_environment(folder: Path) -> Path:
    """Create an environment with TRL that borrows this one's packages, and return its Python."""
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        packages = next(folder.glob("lib/python*/site-packages"))
        borrowed = dict.fromkeys(p for p in (*site.getsitepackages(), *sys.path) if p.endswith("site-packages"))
        (packages / "borrowed.pth").write_text("\n".join(borrowed))
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", TRL], check=True)
        (folder / "ready").touch()
    return python


def start(folder: Path, tokens: int, seed: int) -> dict[str, Any]:
    """Train the common cold start of all loops, in `folder`/start."""
    from userrl_core.distill import select_top_k, write_chats
    from userrl_core.policies.scripted import ScriptedPolicy
    from userrl_core.rollout import run_episodes
    from userrl_core.training.config import SftConfig
    from userrl_core.training.jobs import SftJob
    from userrl_core.training.local.sft import train_sft

    shown = asyncio.run(
        run_episodes(_tasks(1, 2)[:600], ScriptedPolicy(0.5), horizon=8, seed=seed, prompt_style="brief")
    )
    write_chats(folder / "chats.jsonl", select_top_k(shown, 400).kept)
    job = SftJob(
        model=_model(), sft=SftConfig(steps=150, lr=2e-3, batch=32), chats=folder / "chats.jsonl", out_dir=folder / "sft",
        seed=seed, threads=1, checkpoint_every=1000,
    )  # fmt: skip
    cold = train_sft(job)
    (folder / "start").symlink_to(cold.checkpoint)
    return {}


def ours(folder: Path, tokens: int, seed: int) -> dict[str, Any]:
    """Run `train_rl` as a stage of a run does."""
    from lab.benchmarks.local_training import Nowhere, Pool
    from userrl_core.training.config import AlgorithmConfig
    from userrl_core.training.jobs import RlJob
    from userrl_core.training.local.loop import train_rl

    class Enough(Exception):
        pass

    class Errands(Pool):
        def horizon(self, step: int, history: Any, group: int | None = None) -> int:
            return HORIZON

    algorithm = AlgorithmConfig(
        group=GROUP,
        batch=TASKS,
        minibatches=MINIBATCHES,
        lr=LR,
        max_tokens=MAX_TOKENS,
        max_response_tokens=224,
        micro_batch=128,
    )
    result: dict[str, Any] = {"tokens": 0, "cpu": 0.0, "playing": 0.0, "rewards": []}

    def progress(step: int, total: int, metrics: Mapping[str, float]) -> None:
        result["tokens"] += int(metrics["tokens/all/sum"])
        result["cpu"] += metrics["seconds/cpu/sum"]
        share = metrics["seconds/rollout/sum"] / (metrics["seconds/rollout/sum"] + metrics["seconds/update/sum"])
        result["playing"] += metrics["seconds/cpu/sum"] * share
        result["rewards"].append(metrics["rollout/return_sum/mean"])
        _note_first(result)
        if result["tokens"] >= tokens:
            raise Enough

    job = RlJob(
        model=_model(), out_dir=folder / "ours", seed=seed, threads=1, checkpoint_every=1000, algorithm=algorithm,
        init=folder / "start", last_step=1000,
    )  # fmt: skip
    try:
        train_rl(job, Errands(_tasks(1, 2, 3), seed), Nowhere(), progress)
    except Enough:
        return result
    raise AssertionError("1000 steps were not enough")


def plain(folder: Path, tokens: int, seed: int) -> dict[str, Any]:
    """Run the obvious implementation, with only transformers and a gym."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model, chat = _load(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.0)
    result: dict[str, Any] = {"tokens": 0, "cpu": 0.0, "playing": 0.0, "rewards": []}
    while result["tokens"] < tokens:
        began = time.process_time()
        chosen = _drawn(seed, len(result["rewards"]))
        ids, masks, rewards = play(
            model, chat, [task for task in chosen for _ in range(GROUP)], seed + result["tokens"]
        )
        result["playing"] += time.process_time() - began
        scores = torch.tensor(rewards).view(-1, GROUP)
        z = ((scores - scores.mean(1, keepdim=True)) / (scores.std(1, correction=0, keepdim=True) + 1e-6)).flatten()
        order = torch.randperm(len(ids)).tolist()
        model.train()
        for part in range(MINIBATCHES):
            rows = order[part::MINIBATCHES]
            longest = max(len(ids[row]) for row in rows)
            batch = torch.tensor([ids[row] + [0] * (longest - len(ids[row])) for row in rows])
            agent = torch.tensor([masks[row] + [0] * (longest - len(ids[row])) for row in rows])[:, 1:]
            real = torch.tensor([[1] * len(ids[row]) + [0] * (longest - len(ids[row])) for row in rows])
            logits = model(input_ids=batch, attention_mask=real).logits[:, :-1]
            logprobs = torch.log_softmax(logits, -1).gather(2, batch[:, 1:, None])[..., 0]
            per_row = (logprobs * agent).sum(1) / agent.sum(1).clamp(min=1)
            loss = -(per_row * z[rows]).mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        model.eval()
        result["cpu"] += time.process_time() - began
        result["tokens"] += sum(map(len, ids))
        result["rewards"].append(sum(rewards) / len(rewards))
        _note_first(result)
    return result


def trl(folder: Path, tokens: int, seed: int) -> dict[str, Any]:
    """Run TRL's GRPOTrainer, which plays through the plain loop's function."""
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    model, chat = _load(folder)
    known = {task.key: task for task in _tasks(1, 2, 3)}
    result: dict[str, Any] = {"tokens": 0, "cpu": 0.0, "playing": 0.0, "rewards": []}

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        began = time.process_time()
        ids, masks, rewards = play(model, chat, [known[prompt] for prompt in prompts], seed + result["tokens"])
        opening = [mask.index(1) if 1 in mask else len(mask) for mask in masks]
        result["playing"] += time.process_time() - began
        result["tokens"] += sum(map(len, ids))
        result["rewards"].append(sum(rewards) / len(rewards))
        return {
            "prompt_ids": [row[:at] for row, at in zip(ids, opening, strict=True)],
            "completion_ids": [row[at:] for row, at in zip(ids, opening, strict=True)],
            "env_mask": [mask[at:] for mask, at in zip(masks, opening, strict=True)],
            "logprobs": [[0.0] * (len(row) - at) for row, at in zip(ids, opening, strict=True)],
            "earned": rewards,
        }

    def earned(completions: Any, earned: list[float], **rest: Any) -> list[float]:
        return earned

    class Timed(TrainerCallback):  # type: ignore[misc]
        began = 0.0

        def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            self.began = time.process_time()

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            # Two updates belong to a batch; time is read when both are done.
            if state.global_step % MINIBATCHES == 0:
                result["cpu"] = time.process_time() - self.began
                _note_first(result)
                control.should_training_stop = result["tokens"] >= tokens

    settings = GRPOConfig(
        output_dir=str(folder / "trl"), per_device_train_batch_size=TASKS * GROUP // MINIBATCHES, num_generations=GROUP,
        generation_batch_size=TASKS * GROUP, learning_rate=LR, adam_beta2=0.95, lr_scheduler_type="constant", max_steps=2000,
        max_completion_length=224, beta=0.0, epsilon=0.2, temperature=1.0, max_grad_norm=1.0, use_cpu=True, report_to=[], seed=seed,
        save_strategy="no", logging_steps=10_000, disable_tqdm=True, bf16=False, gradient_checkpointing=False,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=model, args=settings, reward_funcs=earned, rollout_func=rollout, processing_class=chat.tokenizer,
        train_dataset=Dataset.from_dict({"prompt": list(known)}), callbacks=[Timed()],
    )  # fmt: skip
    trainer.train()
    return result


def play(
    model: Any, chat: Any, tasks: Sequence[Any], seed: int
) -> tuple[list[list[int]], list[list[int]], list[float]]:
    """Play one conversation per task through `generate`. Returns ids, a mask of the agent's ids, and the sums of rewards."""
    import torch

    from userrl_core.episode import EpisodeRules
    from userrl_core.records import PolicyReply
    from userrl_core.rollout import build_episode

    rules = EpisodeRules(HORIZON, prompt_style="brief")
    episodes = [build_episode(task, number, rules, seed=seed) for number, task in enumerate(tasks)]
    ids = [chat.opening(episode.start()) for episode in episodes]
    masks = [[0] * len(row) for row in ids]
    active = list(range(len(episodes)))
    while active:
        longest = max(len(ids[row]) for row in active)
        batch = torch.tensor([[0] * (longest - len(ids[row])) + ids[row] for row in active])
        real = torch.tensor([[0] * (longest - len(ids[row])) + [1] * len(ids[row]) for row in active])
        with torch.no_grad():
            written = model.generate(
                input_ids=batch, attention_mask=real, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
                max_new_tokens=MAX_TOKENS, eos_token_id=chat.end_id, pad_token_id=0,
            )[:, longest:].tolist()  # fmt: skip
        going: list[int] = []
        for row, reply in zip(active, written, strict=True):
            reply = reply[: reply.index(chat.end_id) + 1] if chat.end_id in reply else reply
            ids[row] += reply
            masks[row] += [1] * len(reply)
            truncated = reply[-1] != chat.end_id
            messages = asyncio.run(episodes[row].submit(PolicyReply(chat.text(reply), truncated=truncated)))
            if messages:
                seen = chat.after_reply(str(messages[0]["content"]))
                if len(ids[row]) + len(seen) + MAX_TOKENS < MAX_CONTEXT:
                    ids[row] += seen
                    masks[row] += [0] * len(seen)
                    going.append(row)
        active = going
    return ids, masks, [episode.trajectory.return_sum or 0.0 for episode in episodes]


def _note_first(result: dict[str, Any]) -> None:
    """Record the cost of the first step, which is excluded."""
    result.setdefault("first", {name: result[name] for name in ("tokens", "cpu", "playing")})


def _tasks(*depths: int) -> list[Any]:
    from userrl_core.gyms.registry import tasks

    return list(tasks("errand", "train", depths=list(depths)))


def _drawn(seed: int, step: int) -> list[Any]:
    import random

    return random.Random(f"{seed}/{step}").sample(_tasks(1, 2, 3), TASKS)


def _model() -> Any:
    from userrl_core.training.config import ModelConfig

    return ModelConfig(
        prompt_style="brief", template="lean", hidden_size=64, layers=2, heads=4, kv_heads=4, head_dim=16, mlp=192, vocab_size=400,
        max_context=MAX_CONTEXT,
    )  # fmt: skip


def _load(folder: Path) -> tuple[Any, Any]:
    from userrl_core.training.local.model import load_model
    from userrl_core.training.local.text.chat import ChatFormat
    from userrl_core.training.local.text.tokenizer import load_tokenizer

    return load_model(folder / "start", _model()), ChatFormat(load_tokenizer(folder / "start"))


LOOPS: dict[str, Callable[[Path, int, int], dict[str, Any]]] = {
    "start": start,
    "ours": ours,
    "plain": plain,
    "trl": trl,
}

if __name__ == "__main__":
    sys.exit(main())
