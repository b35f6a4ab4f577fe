"""A tokenizer for a model from scratch, trained on the run's own demonstrations. Every byte is a token, so any text
can be encoded.

``chatml``: byte-level BPE with Qwen's special tokens and template, the format of large models. The fixed parts of a
  tool call and of a tool response are pre-tokens, so BPE learns each as one token. A turn then costs about 14 tokens
  instead of 60.

``lean``: about 5 tokens a turn, for experiments with many turns and few words. A call is three tokens: the part
  before its content (one token per choice), the content, and the part after it, which also ends the turn. An
  observation is its words and the token that begins the agent's turn. The text of a call is the same as in
  `userrl_core.interact.render_call`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from userrl_core.errors import CheckpointError, TrainingError, first_line
from userrl_core.interact import CHOICES, InteractCall, render_call
from userrl_core.training.chat_template import SECONDS, refuse_endless, within
from userrl_core.training.config import Template

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

LEAN = """\
{%- for message in messages %}
{{- message.content + ('<|im_end|>' if message.role == 'assistant' else '<|im_start|>') }}
{%- endfor %}
"""
"""A template that marks only the change of speaker. The start token hands the turn to the agent; the end token takes it back."""

PLAIN = """\
{%- for message in messages %}
{{- '<|im_start|>' + ('user' if message.role == 'tool' else message.role) + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
"""ChatML without tools and without a default system message, for pretrained models whose template knows no tools."""

LINE_MARK = "{#- calls: line -#}\n"
"""First line of a chat template whose model writes calls in one line (see `calls`)."""

TEMPLATES: Mapping[Template, str] = {"chatml": TEMPLATE, "lean": LEAN}
OURS = frozenset({TEMPLATE, LEAN, PLAIN, LINE_MARK + PLAIN})
"""Templates that end, so that no watch is needed."""


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, template: Template = "chatml", numbers: Sequence[str] = ()
) -> PreTrainedTokenizerFast:
    """Return a tokenizer with at most vocab_size entries, the same for the same texts.

    texts: conversations rendered in this template. numbers: words that are one token of the lean template with the space before
    them, also where the texts lack them. Raises TrainingError without texts.
    """
    corpus = list(texts)
    if not corpus:
        raise TrainingError(
            "demonstrations.too_few", "There are no demonstrations to train a tokenizer on. Distil some first."
        )
    tokenizer = _bpe(corpus, vocab_size) if template == "chatml" else _words(corpus, vocab_size, numbers)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END if template == "chatml" else call_parts()[2] + END,
        pad_token=PAD,
        chat_template=TEMPLATES[template],
        clean_up_tokenization_spaces=False,
    )


def _bpe(corpus: list[str], vocab_size: int) -> Tokenizer:
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
    return tokenizer


def _words(corpus: list[str], vocab_size: int, numbers: Sequence[str]) -> Tokenizer:
    """Return a tokenizer of bytes, the heads of calls, the numbers, and the most frequent whole words. With few words
    BPE has nothing to merge.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={byte: index for index, byte in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    head, middle, tail = call_parts()
    tokenizer.add_special_tokens([PAD, START, END, tail + END])
    heads = [f"{head}{choice}{middle}" for choice in CHOICES]
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in heads])
    fixed = re.compile("|".join(re.escape(text) for text in (*heads, tail, START, END)))
    counts = Counter(word for text in corpus for word in re.findall(r"[A-Za-z]{2,}", fixed.sub("\n", text)))
    room = vocab_size - tokenizer.get_vocab_size()
    # With its space a number may also match the beginning of a longer word, where decoding gives the same text.
    tokenizer.add_tokens([AddedToken(f" {number}", normalized=False) for number in sorted(numbers)[:room]])
    room = max(vocab_size - tokenizer.get_vocab_size(), 0)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[:room]
    tokenizer.add_tokens([AddedToken(word, single_word=True, normalized=False) for word in sorted(ranked)])
    return tokenizer


def render(chats: Iterable[Mapping[str, Any]], template: Template = "chatml") -> list[str]:
    """Render chats (`userrl_core.distill.to_chat`) as texts for `train_tokenizer`."""
    renderer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), chat_template=TEMPLATES[template])
    return [
        str(renderer.apply_chat_template(chat["messages"], tools=chat.get("tools") or None, tokenize=False))
        for chat in chats
    ]


def load_tokenizer(path: str | Path, thinking: bool | None = None) -> Any:
    """Return the tokenizer of a checkpoint or Hugging Face name. Raises CheckpointError without a tokenizer that has
    one chat template.

    thinking: `ModelConfig.thinking`. It is set within the template, so that every reader of the checkpoints saved
    with this tokenizer uses it too.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(path), trust_remote_code=False)
    except Exception as error:
        raise CheckpointError(
            "checkpoint.bad_tokenizer",
            f"No tokenizer can be loaded from {path} ({first_line(error)}). Give the folder or the name of a Hugging Face "
            "checkpoint.",
        ) from error
    if not tokenizer.chat_template:
        raise CheckpointError(
            "checkpoint.bad_tokenizer",
            f"The tokenizer in {path} has no chat template. Use an instruction-tuned checkpoint.",
        )
    if not isinstance(tokenizer.chat_template, str):
        raise CheckpointError(
            "checkpoint.bad_tokenizer", f"The tokenizer in {path} has several chat templates. Leave it one."
        )
    _check_template(tokenizer, path)
    decode_each_token(tokenizer)
    set_thinking(tokenizer, thinking)
    return tokenizer


def set_thinking(tokenizer: Any, thinking: bool | None) -> None:
    """Set `ModelConfig.thinking` within the chat template, once."""
    switch = "" if thinking is None else f"{{%- set enable_thinking = {str(thinking).lower()} -%}}\n"
    if not tokenizer.chat_template.startswith(switch):
        tokenizer.chat_template = switch + tokenizer.chat_template


def decode_each_token(tokenizer: Any) -> None:
    """Make a byte-level tokenizer decode token by token.

    A tokenizer from a GGUF file joins all tokens first. A token of the lean form contains a space. Text with such a token
    is then not decoded, and a space of the reply stays a letter (``WhichĠcolour?``).
    """
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    parts = json.loads(decoder.__getstate__()).get("decoders", []) if decoder is not None else []
    kinds = [part["type"] for part in parts]
    if kinds[-1:] == ["ByteLevel"] and "Fuse" in kinds:
        tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()


def _check_template(tokenizer: Any, path: str | Path) -> None:
    """Raise CheckpointError for a foreign template that does not end or cannot render one user message."""
    if tokenizer.chat_template in OURS:
        return
    refuse_endless(tokenizer.chat_template, str(path))
    try:
        rendered(tokenizer, [{"role": "user", "content": "Hi."}])
    except TrainingError:
        raise
    except Exception as error:
        raise CheckpointError(
            "checkpoint.bad_tokenizer",
            f"The chat template of {path} cannot be rendered ({first_line(error)}). Use another checkpoint.",
        ) from error


def rendered(tokenizer: Any, messages: Sequence[Mapping[str, Any]], tools: Any = None, *, prompt: bool = True) -> str:
    """Return a conversation. Raises TrainingError for a template that does not end.

    prompt: with the head of the agent's next turn.
    """
    too_long = TrainingError(
        "checkpoint.bad_tokenizer",
        f"The chat template of {tokenizer.name_or_path or 'the tokenizer'} did not finish within {SECONDS} s "
        f"on a conversation of {len(messages)} messages. Use another checkpoint.",
    )

    def render_once() -> str:
        return str(
            tokenizer.apply_chat_template(list(messages), tools=tools, add_generation_prompt=prompt, tokenize=False)
        )

    if tokenizer.chat_template in OURS:  # ours end, and are rendered too often for a watch
        return render_once()
    return within(SECONDS, too_long, render_once)


def _split_pattern() -> str:
    """Return the pattern of pre-tokens: fixed parts of calls and responses first, then words, single digits,
    punctuation, white space.
    """
    head, middle, tail = map(re.escape, call_parts())
    fixed = [head, middle, tail, r"user\n<tool_response>\n", r"\n</tool_response>", r"(?:system|user|assistant)\n"]
    return "|".join([*fixed, r" ?[A-Za-z]+", r" ?[0-9]", r" ?[^\sA-Za-z0-9\"]+", r"\"", r"\s+"])


def call_parts() -> list[str]:
    """Return a call's text before the choice, between choice and content, and after the content."""
    return re.split("CHOICE|CONTENT", render_call(InteractCall("CHOICE", "CONTENT")))
