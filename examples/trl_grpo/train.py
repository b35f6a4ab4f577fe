"""TRL's GRPOTrainer on TextCraft's tiny tier, in TRL's own environment; lab/checks/trl_grpo.py makes that and starts this.

    python train.py CHECKPOINT OUT [--steps 100] [--seed 0]

CHECKPOINT is a cold start of ours (template `lean`). OUT gets the trained model and rewards.jsonl: a line for each step with the
rewards of every task's conversations.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from environment import GymEnvironment
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from userrl_core.episode import EpisodeRules
from userrl_core.gyms.registry import tasks

TASKS, GROUP, HORIZON, TOKENS = 16, 8, 16, 112
"""Tasks a step, conversations a task, turns and tokens a conversation, as in the laptop's recipe on TextCraft."""

TEMPLATE = """\
{%- for message in messages %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- (call.function.arguments | tojson) + '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>' if message.role == 'assistant' else '<|im_start|>' }}
{%- endfor %}
"""
"""The checkpoint's own template, and calls, which TRL renders to find out what comes between two replies."""

CALLS = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}
"""How transformers reads a call: Qwen's form, after the mark that the agent's turn begins with here."""


class Rewards(TrainerCallback):  # type: ignore[misc]
    """Writes the rewards of a step's conversations, task by task."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.trainer: Any = None

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """A step is one batch of conversations and one update."""
        rewards = [environment.get_reward() for environment in self.trainer.environments]
        rows = [rewards[at : at + GROUP] for at in range(0, len(rewards), GROUP)]
        with self.file.open("a") as lines:
            print(json.dumps({"step": state.global_step, "rewards": rows}), file=lines)


def main() -> None:
    """Train, and save the model as a checkpoint that our own commands read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True)
    torch.set_num_threads(1)
    known = list(tasks("textcraft", "train", tier="tiny"))
    rules = EpisodeRules(HORIZON, prompt_style="brief")
    tokenizer = AutoTokenizer.from_pretrained(arguments.checkpoint)
    own = tokenizer.chat_template
    tokenizer.chat_template, tokenizer.response_template = TEMPLATE, CALLS
    settings = GRPOConfig(
        output_dir=str(arguments.out / "trl"),
        per_device_train_batch_size=TASKS * GROUP,
        num_generations=GROUP,
        max_completion_length=TOKENS,
        max_tool_calling_iterations=HORIZON,
        max_steps=arguments.steps,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        beta=0.0,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        seed=arguments.seed,
    )
    rewards = Rewards(arguments.out / "rewards.jsonl")
    rewards.trainer = trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(arguments.checkpoint, dtype=torch.float32),
        args=settings,
        environment_factory=lambda: GymEnvironment("textcraft", known, rules),
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(
            [{"prompt": [{"role": "user", "content": ""}], "task": number} for number in range(len(known))]
        ),
        callbacks=[rewards],
    )
    trainer.train()
    trainer.model.save_pretrained(arguments.out / "model")
    tokenizer.chat_template = own
    tokenizer.save_pretrained(arguments.out / "model")


if __name__ == "__main__":
    main()
