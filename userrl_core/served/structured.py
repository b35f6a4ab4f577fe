"""JSON from a language model: by structured outputs where the server has them, else extracted from the text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from userrl_core.records import Message
from userrl_core.served.retry import Failure

_ANNOTATIONS = ("title", "default", "examples")


def response_format(schema: type[BaseModel]) -> dict[str, Any]:
    """Return the request field for structured outputs, in strict form: closed objects, every property required."""
    return {
        "type": "json_schema",
        "json_schema": {"name": schema.__name__, "schema": _strict(schema.model_json_schema()), "strict": True},
    }


def instruct(messages: Sequence[Message], schema: type[BaseModel]) -> list[Message]:
    """Add the schema to the prompt, for a server without structured outputs."""
    text = (
        "Reply with one JSON object and nothing around it. It must fit this JSON schema:\n"
        f"{json.dumps(_strict(schema.model_json_schema()), ensure_ascii=False)}"
    )
    if messages and messages[0]["role"] == "system":
        return [{**messages[0], "content": f"{messages[0]['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def fit(text: str, schema: type[BaseModel]) -> BaseModel:
    """Return the first JSON object in the text that fits the schema.

    Raises Failure (retryable, with a hint for the model) without a fitting object. The hint names fields, never values:
    text of the reply must not return to the model as if we had written it.
    """
    problem = "there is no JSON object in it"
    for value in objects(text):
        try:
            return schema.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            path = ".".join(str(part) for part in first["loc"]) or "the object"
            problem = f"{path} does not fit ({first['type']})"
    hint = f"Your reply could not be used: {problem}. Reply again with the JSON object alone."
    raise Failure("Unreadable", f"the reply is not the JSON that was asked for: {problem}", retryable=True, hint=hint)


def objects(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects in a text, in order."""
    decoder, found, start = json.JSONDecoder(), [], text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):  # ValueError, not JSONDecodeError: an integer of more than 4,300 digits
            end = start + 1
        else:
            if isinstance(value, dict):
                found.append(value)
        start = text.find("{", end)
    return found


def _strict(node: Any) -> Any:
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    schema = {key: _strict(value) for key, value in node.items() if key not in _ANNOTATIONS or isinstance(value, dict)}
    if schema.get("type") == "object" and "properties" in schema:
        schema["additionalProperties"] = False
        schema["required"] = list(schema["properties"])
    return schema
