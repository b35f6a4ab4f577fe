"""A chat completion's request in OpenAI's protocol: what is served, and what is refused and why.

A field that would change the reply is read or refused, never dropped. Null means absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

WITHOUT_EFFECT = frozenset(
    {"metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "store", "user"}
)
"""Fields of a request that change nothing about its reply."""
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "min_p": (0,),
    "modalities": (["text"],),
    "n": (1,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "stream": (False,),
    "top_k": (0, -1),
}
"""Fields that are not served, with the values that ask for nothing."""
MESSAGE_FIELDS = frozenset({"role", "content", "name", "refusal", "tool_calls", "tool_call_id", "function_call"})

_Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]


def _without_nulls(value: Any) -> Any:
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any) -> Any:
        return _without_nulls(value)


class Function(_Strict):
    """A function that the model may call."""

    name: _Name
    description: str = ""
    parameters: dict[str, Any] = {}
    strict: Literal[False] = False


class Tool(_Strict):
    """A tool: a function alone."""

    type: Literal["function"] = "function"
    function: Function


class _FunctionName(_Strict):
    name: _Name


class NamedChoice(_Strict):
    """A choice of one tool."""

    type: Literal["function"] = "function"
    function: _FunctionName


class ChatRequest(_Strict):
    """The fields of a chat completion that are read."""

    model: str
    messages: list[dict[str, Any]] = Field(min_length=1, max_length=1000)
    tools: list[Tool] = Field(default=[], max_length=128)
    tool_choice: Literal["auto", "none", "required"] | NamedChoice = "auto"
    parallel_tool_calls: bool = True
    stop: Annotated[list[_Name], BeforeValidator(_listed), Field(max_length=16)] = []
    temperature: FiniteFloat = Field(default=1.0, ge=0.0, le=10.0)
    top_p: FiniteFloat = Field(default=1.0, gt=0.0, le=1.0)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = None
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=20)

    @model_validator(mode="before")
    @classmethod
    def _only_served(cls, value: Any) -> Any:
        """Remove the fields without effect, and refuse those that would have one."""
        if not isinstance(value, dict):
            return value
        served = {name: item for name, item in _without_nulls(value).items() if name not in WITHOUT_EFFECT}
        for name in [name for name in served if name not in cls.model_fields]:
            if served.pop(name) not in NEUTRAL.get(name, ()):
                raise ValueError(
                    f"the field '{name}' is not served, and the reply would differ without it; leave it out"
                )
        return served

    @field_validator("messages")
    @classmethod
    def _only_text(cls, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        cleaned = [_without_nulls(message) for message in messages]
        for message in cleaned:
            _check_message(message)
        return cleaned

    @model_validator(mode="after")
    def _consistent(self) -> ChatRequest:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs: true")
        names = [tool.function.name for tool in self.tools]
        if self.tool_choice == "required" and not names:
            raise ValueError("tool_choice needs tools")
        if self.tool is not None and self.tool not in names:
            raise ValueError(f"tool_choice names the tool '{self.tool}', which is not among tools")
        return self

    @property
    def tool(self) -> str | None:
        """The only tool that may be called, where tool_choice names one."""
        return self.tool_choice.function.name if isinstance(self.tool_choice, NamedChoice) else None


def _check_message(message: Mapping[str, Any]) -> None:
    if not isinstance(message.get("role"), str):
        raise ValueError("a message needs a role")
    if unknown := sorted(message.keys() - MESSAGE_FIELDS):
        raise ValueError(f"the field '{unknown[0]}' of a message is not served; leave it out")
    content = message.get("content", "")
    parts = content if isinstance(content, list) else []
    if not isinstance(content, (str, list)) or not all(_is_text(part) for part in parts):
        raise ValueError("the content of a message is a text, or parts of type text; nothing else is served")
    calls = message.get("tool_calls", [])
    if not isinstance(calls, list) or not all(_is_call(call) for call in calls):
        raise ValueError("tool_calls is a list of objects, each with function: {name, arguments}")


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type", "text") == "text" and isinstance(part.get("text"), str)


def _is_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str) and "arguments" in function


def refusal(error: ValidationError) -> tuple[str, str | None]:
    """Return what is wrong with a request as a sentence, and the field it concerns."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = ".".join(
        str(part) for part in first["loc"] if part not in ("NamedChoice", "literal['auto','none','required']")
    )
    message = first["msg"].removeprefix("Value error, ")
    if not field:
        return f"{message[:1].upper()}{message[1:]}.", None
    return f"{field}: {message}.", field
