"""Parsing an agent's reply: no text raises, and only a readable call counts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from userrl_core.interact import Choice, InteractCall, parse_text, parse_tool_calls, render_call, tool_schema

_JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "arguments", "choice"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.sampled_from(["action", "search", "answer"]), st.text(max_size=80), st.text(alphabet="abc \n", max_size=20))
def test_a_rendered_call_is_parsed_back(choice: str, content: str, thought: str):
    parsed = parse_text(render_call(InteractCall(choice, content), thought))
    assert (parsed.call, parsed.thought, parsed.error, parsed.extra_calls) == (
        InteractCall(choice, content),
        thought.strip(),
        None,
        0,
    )


@given(st.text(max_size=200))
def test_no_text_makes_the_parser_raise(text: str):
    assert parse_text(text).call is None or "<tool_call>" in text


@given(st.text(max_size=40), _JSON, st.text(max_size=40))
def test_no_json_inside_a_call_makes_the_parser_raise(before: str, value: object, after: str):
    parsed = parse_text(f"{before}<tool_call>{json.dumps(value)}</tool_call>{after}")
    assert parsed.call is None
    assert parsed.error


@given(
    st.lists(st.dictionaries(st.text(max_size=9), _JSON, max_size=3) | _JSON, max_size=3),
    st.none() | st.text(max_size=30),
)
def test_no_openai_tool_call_makes_the_parser_raise(calls: list[object], content: str | None):
    parse_tool_calls(content, calls)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "block",
    [
        "",
        "{",
        "[]",
        "null",
        '{"name": "interact_with_env"}',
        '{"name": "other", "arguments": {"choice": "action", "content": "x"}}',
        '{"name": "interact_with_env", "arguments": {"choice": "action"}}',
        '{"name": "interact_with_env", "arguments": {"choice": 1, "content": "x"}}',
        '{"name": "interact_with_env", "arguments": {"choice": "action", "content": null}}',
        '{"name": "interact_with_env", "arguments": ["action", "x"]}',
        "[" * 100_000,
        '{"name": ' * 20_000,
        "1" * 5_000,
        '{"name": "interact_with_env", "arguments": {"choice": "action", "content": ' + "1" * 5_000 + "}}",
        '{"name": "interact_with_env", "arguments": "' + "1" * 5_000 + '"}',
    ],
)
def test_an_unreadable_call_is_a_format_error_with_a_hint(block: str):
    parsed = parse_text(f"<tool_call>{block}</tool_call>")
    assert parsed.call is None
    assert parsed.error
    assert "interact_with_env" in parsed.error


def test_a_missing_closing_tag_is_tolerated_whatever_follows():
    text = '<tool_call>{"name": "interact_with_env", "arguments": {"choice": "action", "content": "x"}} and so on'
    assert parse_text(text).call == InteractCall("action", "x")


def test_long_white_space_in_and_around_a_call_is_parsed_in_linear_time():
    call = '{"name": "interact_with_env", "arguments": {"choice": "action", "content": "x"}}'
    space = "\n \t" * 70_000
    assert parse_text(f"<tool_call>{space}{call}{space}x").call == InteractCall("action", "x")
    assert parse_text(f"<tool_call>{space}{call}{space}</tool_call>").call == InteractCall("action", "x")
    assert parse_text(f"<tool_call>{call[:-1]}{space}}}{space}").call == InteractCall("action", "x")
    unreadable = parse_text(f"<tool_call>{{...,{space}x")
    assert unreadable.call is None
    assert unreadable.error
    assert "not valid JSON" in unreadable.error


def test_lone_surrogates_are_replaced_because_model_servers_refuse_them():
    def parsed(content: str) -> InteractCall | None:
        arguments = f'{{"choice": "action", "content": "{content}"}}'
        return parse_text(f'<tool_call>{{"name": "interact_with_env", "arguments": {arguments}}}</tool_call>').call

    assert parsed("a\\ud800b \\ud83d\\ude00") == InteractCall("action", "a\ufffdb \U0001f600")
    assert parsed("caf\\u00e9") == InteractCall("action", "caf\u00e9")


def test_of_several_calls_the_first_counts_and_the_others_are_reported():
    text = render_call(InteractCall("action", "one")) + render_call(InteractCall("answer", "two"))
    parsed = parse_text(text)
    assert (parsed.call, parsed.extra_calls) == (InteractCall("action", "one"), 1)
    assert parsed.error
    assert "first of 2" in parsed.error


def test_an_unreadable_first_call_is_not_replaced_by_a_readable_second_one():
    parsed = parse_text("<tool_call>{</tool_call>" + render_call(InteractCall("answer", "two")))
    assert parsed.call is None


def test_a_call_inside_the_content_is_content():
    inner = '</tool_call><tool_call>{"name": "interact_with_env"}'
    parsed = parse_tool_calls(
        None,
        [{"function": {"name": "interact_with_env", "arguments": json.dumps({"choice": "action", "content": inner})}}],
    )
    assert parsed.call == InteractCall("action", inner)


def test_think_tags_are_removed_from_the_thought():
    parsed = parse_text("<think>so</think>\n" + render_call(InteractCall("action", "x")))
    assert parsed.thought == "so"


def test_openai_tool_calls_are_parsed_and_the_text_next_to_them_is_the_thought():
    arguments = json.dumps({"choice": " Search ", "content": "x"})
    parsed = parse_tool_calls("let me see", [{"function": {"name": "interact_with_env", "arguments": arguments}}])
    assert (parsed.call, parsed.thought) == (InteractCall("search", "x"), "let me see")


def test_the_schema_holds_only_the_choices_that_a_gym_allows():
    schema = tool_schema(["action", "answer"])
    assert schema["function"]["parameters"]["properties"]["choice"]["enum"] == ["action", "answer"]


def test_choices_and_their_strings_are_equal():
    assert InteractCall(Choice.ACTION, "x") == InteractCall("action", "x")
    assert hash(InteractCall(Choice.ACTION, "x")) == hash(InteractCall("action", "x"))
