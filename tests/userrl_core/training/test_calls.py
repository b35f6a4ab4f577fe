"""Calls of pretrained models whose chat template knows no tools, in three forms; what is stored is the same for all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.llama import llama, tokenizer
from userrl_core.interact import InteractCall, parse_text, render_call, tool_schema
from userrl_core.training.config import CallForm, ModelConfig
from userrl_core.training.local.model import load_model
from userrl_core.training.local.state import load_to_train, save_model
from userrl_core.training.local.text.calls import from_line, ignores_tools, set_form, to_line
from userrl_core.training.local.text.chat import ChatFormat
from userrl_core.training.local.text.tokenizer import load_tokenizer, render, train_tokenizer

OPENING = [{"role": "system", "content": "Help."}, {"role": "user", "content": "I need a coat."}]
CALL = render_call(InteractCall("action", "coat"))
FORMS: tuple[CallForm, ...] = ("json", "lean", "line")


def checkpoint(tmp_path: Path, form: CallForm) -> tuple[torch.nn.Module, ChatFormat]:
    folder = tmp_path / form
    if not folder.exists():
        llama(folder)
    model, loaded = load_to_train(folder, ModelConfig(path=str(folder), calls=form), "cpu")
    return model, ChatFormat(loaded)


def test_a_template_that_ignores_tools_gets_the_syntax_in_its_system_message() -> None:
    chat_format = ChatFormat(tokenizer())
    assert ignores_tools(chat_format.tokenizer)
    text = chat_format.tokenizer.decode(chat_format.opening(OPENING, [tool_schema(["action", "answer"])]))
    assert text.startswith(
        "<|im_start|>system\nHelp.\n\n# Calls\nWrite a call like this, with choice action or answer:"
    )
    assert text.endswith("<|im_start|>user\nI need a coat.<|im_end|>\n<|im_start|>assistant\n")


def test_a_template_that_shows_tools_is_left_as_it_was() -> None:
    own = train_tokenizer(render([{"messages": OPENING}]), 400)
    assert not ignores_tools(own)
    tools = [tool_schema()]
    wanted = own.apply_chat_template(OPENING, tools=tools, add_generation_prompt=True, tokenize=False)
    assert own.decode(ChatFormat(own).opening(OPENING, tools)) == wanted


def test_a_brief_prompt_has_no_syntax() -> None:
    chat_format = ChatFormat(tokenizer())
    assert "# Calls" not in chat_format.tokenizer.decode(chat_format.opening(OPENING[1:]))


def test_observations_are_user_messages_where_the_template_has_no_tool_role() -> None:
    chat_format = ChatFormat(tokenizer())
    between = chat_format.tokenizer.decode(chat_format.after_reply("red"))
    assert between == "\n<|im_start|>user\nred<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_back_the_call_that_is_stored(tmp_path: Path, form: CallForm) -> None:
    _, chat_format = checkpoint(tmp_path, form)
    for call in (InteractCall("action", "coat"), InteractCall("answer", 'é "nobody" said {this}')):
        ids = chat_format.reply(render_call(call))
        assert ids[-1] == chat_format.end_id
        assert chat_format.text(ids) == render_call(call)


def test_the_lean_form_costs_three_tokens_and_the_line_far_fewer_than_json(tmp_path: Path) -> None:
    json, lean, line = (len(checkpoint(tmp_path, form)[1].reply(CALL)) for form in FORMS)
    content = len(tokenizer().encode("coat"))
    assert lean == content + 2
    assert lean < line < json


def test_a_lean_embedding_is_the_mean_of_the_tokens_that_it_replaces(tmp_path: Path) -> None:
    folder = llama(tmp_path / "model")
    before = load_model(folder, ModelConfig(path="-")).get_input_embeddings().weight
    model, loaded = load_to_train(folder, ModelConfig(path=str(folder), calls="lean"), "cpu")
    old = load_tokenizer(folder)
    replaced = old.encode('<tool_call>\n{"name": "interact_with_env", "arguments": {"choice": "search", "content": "')
    new = loaded.encode('<tool_call>\n{"name": "interact_with_env", "arguments": {"choice": "search", "content": "')
    assert len(new) == 1
    assert torch.allclose(model.get_input_embeddings().weight[new[0]], before[replaced].mean(0))
    assert torch.equal(model.get_input_embeddings().weight[: len(before)], before)
    assert model.config.eos_token_id == loaded.eos_token_id


@pytest.mark.parametrize("form", ["lean", "line"])
def test_a_saved_model_says_its_form_itself(tmp_path: Path, form: CallForm) -> None:
    model, chat_format = checkpoint(tmp_path, form)
    save_model(model, chat_format.tokenizer, tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    assert ChatFormat(again).reply(CALL) == chat_format.reply(CALL)
    vocabulary = len(again)
    set_form(model, again, form)
    assert len(again) == vocabulary
    assert ChatFormat(again).opening(OPENING) == chat_format.opening(OPENING)


def test_a_reply_that_was_cut_in_its_line_is_no_call(tmp_path: Path) -> None:
    _, chat_format = checkpoint(tmp_path, "line")
    cut = chat_format.reply(CALL)[:-1]
    assert parse_text(chat_format.text(cut)).call is None


@given(st.sampled_from(["action", "search", "answer"]), st.text(max_size=30), st.text(max_size=20))
@settings(max_examples=200, deadline=None)
def test_a_line_comes_back_as_the_reply_it_was_or_is_not_made(choice: str, content: str, thought: str) -> None:
    reply = render_call(InteractCall(choice, content), thought)
    line = to_line(reply)
    assert line == reply or from_line(line) == reply


def test_text_without_a_call_stays() -> None:
    assert to_line("I think so.") == "I think so."
    assert from_line("I think so.") == "I think so."
    assert from_line("Let me ask.\naction: coat") == f"Let me ask.\n{CALL}"


def test_other_forms_are_for_checkpoints() -> None:
    with pytest.raises(ValueError, match=r"model\.path"):
        ModelConfig(calls="lean")
