"""A tokenizer for a model from scratch: byte-level BPE over the run's own demonstrations, with a ChatML template.

Every byte is a token, so that any text can be encoded. One unusual rule: the fixed parts of a tool call and of a tool
response are pre-tokens, so that BPE learns each as one token; a turn then costs about 14 tokens instead of 60. Special tokens
and template follow Qwen: small models learn the same format as large ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from userrl_core.errors import CheckpointError, TrainingError
from userrl_core.interact import InteractCall, render_call

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- '# Tools\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
{{- '\\n</tools><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- elif not (tools and loop.first and message.role == 'system') %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
"""ChatML with Hermes tools; a rendered conversation equals the concatenated increments of `chat`."""


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE with at most vocab_size entries, the same for the same texts.

    texts: rendered conversations. Raises TrainingError when there is none.
    """
    corpus = list(texts)
    if not corpus:
        raise TrainingError("There are no demonstrations to train a tokenizer on; distil some first.")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_split_pattern()), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def render(chats: Iterable[Mapping[str, Any]]) -> list[str]:
    """Chats (`userrl_core.distill.to_chat`) as texts for `train_tokenizer`."""
    renderer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), chat_template=TEMPLATE)
    return [
        str(renderer.apply_chat_template(chat["messages"], tools=chat.get("tools") or None, tokenize=False))
        for chat in chats
    ]


def load_tokenizer(path: str | Path) -> Any:
    """The tokenizer of a checkpoint or Hugging Face name. Raises CheckpointError when there is none with a chat template."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(path), trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"No tokenizer can be loaded from {path}; give a Hugging Face checkpoint folder or name."
        ) from error
    if not tokenizer.chat_template:
        raise CheckpointError(f"The tokenizer in {path} has no chat template; take an instruction-tuned checkpoint.")
    return tokenizer


def _split_pattern() -> str:
    """The pre-tokens: fixed parts of calls and responses first, then words, single digits, punctuation, white space."""
    call = render_call(InteractCall("CHOICE", "CONTENT"))
    head, middle, tail = (re.escape(part) for part in re.split("CHOICE|CONTENT", call))
    fixed = [head, middle, tail, r"user\n<tool_response>\n", r"\n</tool_response>", r"(?:system|user|assistant)\n"]
    return "|".join([*fixed, r" ?[A-Za-z]+", r" ?[0-9]", r" ?[^\sA-Za-z0-9\"]+", r"\"", r"\s+"])
