"""What is trained on is what the chat template renders for the whole conversation, and the mask is the agent's tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from tests.llama import TEMPLATE as SMOLLM
from tests.userrl_core.training.test_chat_tokens import REASONING, SWITCH, TOKENIZER
from tests.userrl_core.training.toys import chats
from userrl_core.errors import TrainingError
from userrl_core.interact import InteractCall, render_call, tool_schema
from userrl_core.training.local.text.calls import style_of
from userrl_core.training.local.text.chat import ChatFormat
from userrl_core.training.local.text.tokenizer import (
    LINE_MARK,
    PLAIN,
    TEMPLATE,
    render,
    set_thinking,
    train_tokenizer,
)

NO_TOOL_ROLE = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('unknown role') }}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
IN_TURN = (
    "{% for m in messages %}{% if m.role != ('user' if loop.index0 % 2 == 0 else 'assistant') %}"
    "{{ raise_exception('user and assistant must take turns') }}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# One message of the user for several results of tools, as Qwen's templates render them.
GROUPED = """\
{%- for m in messages %}
{%- if m.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- else %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
EMPTY_THOUGHT = "<think>\n\n</think>\n\n"


def made(template: str) -> Any:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(TOKENIZER.backend_tokenizer.to_str()),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )
    set_thinking(tokenizer, False if SWITCH in template else None)
    return tokenizer


FORMATS = {
    "chatml": ChatFormat(TOKENIZER),
    "lean": ChatFormat(train_tokenizer(render(chats(), "lean"), 400, "lean")),
    **{
        name: ChatFormat(made(template))
        for name, template in {
            "plain": PLAIN,
            "line": LINE_MARK + PLAIN,
            "smollm": SMOLLM,
            "reasoning": REASONING,
            "no thinking": TEMPLATE.replace(
                "{{- '<|im_start|>assistant\\n' }}", "{{- '<|im_start|>assistant\\n' }}" + SWITCH
            ),
            "no tool role": NO_TOOL_ROLE,
            "grouped": GROUPED,
        }.items()
    },
}

WORDS = st.text(alphabet='ab é{}"\\<>|\n\t', max_size=8)
REPLIES = st.one_of(
    WORDS, st.builds(render_call, st.builds(InteractCall, st.sampled_from(["action", "answer"]), WORDS), WORDS)
)
MESSAGES = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "tool", "system"]), "content": WORDS}),
    st.fixed_dictionaries({"role": st.just("assistant"), "content": REPLIES}, optional={"train": st.booleans()}),
)


def rendered(chat_format: ChatFormat, messages: list[Any], tools: list[Any]) -> str:
    """Return the template's text of the whole conversation, in the model's form of calls and roles."""
    style = style_of(chat_format.tokenizer)
    first = next((i for i, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
    opening, offered = style.opening(messages[:first], tools)
    whole = [*opening, *map(style.following, messages[first:])]
    if chat_format.tokenizer.chat_template in (NO_TOOL_ROLE, SMOLLM):
        whole = [{**m, "role": "user"} if m["role"] == "tool" else m for m in whole]
    text = chat_format.tokenizer.apply_chat_template(whole, tools=offered or None, tokenize=False)
    return str(text).replace(EMPTY_THOUGHT, "")  # it is in each head of a reply or in none, as in rollouts


def marked(chat_format: ChatFormat, encoded: Any, turns: int) -> Iterator[str]:
    for turn in range(turns):
        yield chat_format.tokenizer.decode([i for i, t in zip(encoded.ids, encoded.turns, strict=True) if t == turn])


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=40, deadline=None)
@given(st.lists(MESSAGES, min_size=1, max_size=7), st.booleans())
def test_the_trained_text_is_the_templates_and_the_mask_is_the_replies(
    name: str, messages: list[Any], with_tools: bool
) -> None:
    chat_format = FORMATS[name]
    replies = [message for message in messages if message["role"] == "assistant"]
    if not replies:
        return
    tools = [tool_schema(["action", "answer"])] if with_tools else []
    encoded = chat_format.chat({"messages": messages, "tools": tools})
    text = chat_format.tokenizer.decode(encoded.ids).replace(EMPTY_THOUGHT, "")
    whole = rendered(chat_format, messages, tools)
    if messages[-1]["role"] == "assistant":
        assert whole.removeprefix(text) in ("", "\n")
        assert text.endswith("<|im_end|>")
    else:
        assert text == whole
    written = [f"{style_of(chat_format.tokenizer).written(reply['content'])}<|im_end|>" for reply in replies]
    trained = [reply.get("train", True) for reply in replies]
    assert list(marked(chat_format, encoded, len(replies))) == [
        reply if on else "" for reply, on in zip(written, trained, strict=True)
    ]
    assert set(encoded.turns) <= {-1, *range(len(replies))}


@pytest.mark.parametrize("name", FORMATS)
def test_a_prompt_continues_as_the_trained_text_does(name: str) -> None:
    agent, result = (
        {"role": "assistant", "content": render_call(InteractCall("action", "x"))},
        {"role": "tool", "content": "o"},
    )
    messages = [{"role": "user", "content": "q"}, agent, result, result, {"role": "user", "content": "go"}, agent]
    for start in (1, 2, 3, 4, 5):
        if messages[start]["role"] == "assistant":
            ids = FORMATS[name].chat({"messages": messages}).ids
            prompt = FORMATS[name].prompt(messages[:start])
            assert ids[: len(prompt)] == prompt
    assert FORMATS[name].chat({"messages": messages[:1]}).agent_tokens == 0


def test_where_a_template_wants_turns_neighbours_become_one_message() -> None:
    chat_format = ChatFormat(made(IN_TURN))
    roles = [
        ("user", "a"),
        ("user", "b"),
        ("assistant", "c"),
        ("tool", "d"),
        ("tool", "e"),
        ("user", "f"),
        ("assistant", "g"),
    ]
    encoded = chat_format.chat({"messages": [{"role": role, "content": content} for role, content in roles]})
    assert chat_format.tokenizer.decode(encoded.ids) == (
        "<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\nc<|im_end|>\n"
        "<|im_start|>user\nd\ne\nf<|im_end|>\n<|im_start|>assistant\ng<|im_end|>"
    )
    refused = [{"role": "system", "content": "a"}, {"role": "assistant", "content": "b"}]
    with pytest.raises(
        TrainingError, match=r"refuses messages with the roles system \(user and assistant must take turns\)"
    ):
        chat_format.chat({"messages": refused})
