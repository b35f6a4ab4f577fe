"""TauGym's domains: parsing, checking and executing tool calls, and the tools that all domains have.

The docstrings of `COMMON` tools are their descriptions in the agent's prompt and part of the experiment.
"""

from __future__ import annotations

import ast
import json
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema
import orjson

from userrl_core.gyms.tau.database import Database, Tables, duplicate
from userrl_core.json_files import json_text

Tool = Callable[..., Any]
TRANSFER = "transfer_to_human_agents"


class ToolError(ValueError):
    """A failed tool call. The agent sees the message, and the database is unchanged."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain of customer service: its tools, their schemas (OpenAI function JSON), its policy and its data.

    writes: names of the tools that change the database. terse: calls are written ``name value`` and an error is the
    word no, for models of laptop size. checked: calls that do not fit the schemas are refused. If not, they are executed,
    as in tau-bench, and a tool's exception is the error.
    """

    name: str
    tools: Mapping[str, Tool]
    writes: frozenset[str]
    schemas: tuple[dict[str, Any], ...]
    policy: str
    base: Tables
    terse: bool = False
    checked: bool = True
    checkers: dict[str, Any] = field(default_factory=dict)

    def read(self, text: str) -> tuple[str, dict[str, Any]]:
        """Parse the call in a text. Raises ToolError."""
        if not self.terse or text.lstrip().startswith("{"):
            return read_call(text)
        name, *values = text.split() or [""]
        return name, dict(zip(_parameters(self.schemas, name).get("properties", {}), values, strict=False))

    def call(self, database: Database, name: str, arguments: Mapping[str, Any]) -> str:
        """Execute one tool and return its result as text. Raises ToolError, before any change but in `airline.book_reservation`."""
        result = self.execute(database, name, arguments)
        return result if isinstance(result, str) else json_text(result)

    def execute(self, database: Database, name: str, arguments: Mapping[str, Any]) -> Any:
        """Execute one tool and return its own result, which the caller must not change."""
        tool = self.tools.get(name)
        if tool is None:
            raise ToolError(f"there is no tool '{name}'; search 'tools' for a list")
        if self.checked:
            self._check(name, arguments)
        # A copy: a tool that stores its arguments must not share them with the task's gold actions.
        try:
            return tool(database, **duplicate(dict(arguments)))
        except (TypeError, AttributeError, LookupError, ValueError) as error:
            if self.checked or isinstance(error, ToolError):
                raise
            raise ToolError(str(error)) from error
        finally:
            database.commit()

    def _check(self, name: str, arguments: Mapping[str, Any]) -> None:
        if name not in self.checkers:
            self.checkers[name] = jsonschema.Draft202012Validator(_parameters(self.schemas, name))
        for error in self.checkers[name].iter_errors(arguments):
            path = ".".join(str(part) for part in error.absolute_path)
            raise ToolError(f"the arguments of {name} do not fit{f' at {path}' if path else ''}: {error.message[:200]}")


def read_call(text: str) -> tuple[str, dict[str, Any]]:
    """Parse a tool call, ``{"name": ..., "arguments": {...}}`` or, as in UserRL, ``name: {...}``. Raises ToolError."""
    name, colon, arguments_text = text.partition(":")
    is_named = colon and not text.lstrip().startswith("{")
    try:
        value = json.loads(arguments_text if is_named else text, parse_float=_finite, parse_constant=_finite)
        value = {"name": name.strip(), "arguments": value} if is_named else value
        orjson.dumps(value)  # records cannot hold numbers beyond 64 bits, lone surrogates or 255 levels of nesting
    except (ValueError, TypeError, RecursionError):
        raise ToolError('the tool call is not JSON; write {"name": "...", "arguments": {...}}') from None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ToolError('the tool call needs a name; write {"name": "...", "arguments": {...}}')
    arguments = value.get("arguments", value.get("kwargs", {}))
    if not isinstance(arguments, dict):
        raise ToolError("the arguments of a tool call are a JSON object")
    return value["name"], arguments


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def calculate(database: Database, expression: str) -> str:
    """The value of an expression of numbers, + - * / and brackets, rounded to two decimals."""
    if len(expression) > 200 or not {*expression} <= {*"0123456789+-*/(). "}:
        raise ToolError("an expression has at most 200 characters: digits, + - * / and brackets")
    try:
        return str(round(float(_value(ast.parse(expression.strip(), mode="eval").body)), 2))
    except (SyntaxError, ArithmeticError, RecursionError, MemoryError, ValueError, TypeError):
        raise ToolError("the expression cannot be calculated") from None


def think(database: Database, thought: str) -> str:
    """Nothing happens."""
    return ""


def transfer(database: Database, summary: str) -> str:
    """Hand the user over to a person; ends the attempt."""
    return "Transfer successful"


COMMON: dict[str, Tool] = {"calculate": calculate, "think": think, TRANSFER: transfer}


def with_common(*tools: Tool) -> dict[str, Tool]:
    """Return a domain's tools by name, after those that all domains have."""
    return COMMON | {tool.__name__: tool for tool in tools}


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def _value(node: ast.AST) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return float(_OPERATORS[type(node.op)](_value(node.left), _value(node.right)))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        return float(_OPERATORS[type(node.op)](_value(node.operand)))
    raise ValueError(node)


def schemas(tools: Mapping[str, Tool], parameters: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return the OpenAI function JSON of a domain's tools in the order of `parameters`. A tool's docstring is its
    description.

    parameters: each argument by tool, as a text for a string or as a JSON schema.
    """
    return tuple(_schema(name, str(tools[name].__doc__), about) for name, about in parameters.items())


def _schema(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    properties = {
        key: {"type": "string", "description": p} if isinstance(p, str) else p for key, p in parameters.items()
    }
    arguments = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": arguments}}


def _parameters(schemas: tuple[dict[str, Any], ...], name: str) -> dict[str, Any]:
    for schema in schemas:
        if schema["function"]["name"] == name:
            return {"additionalProperties": False, **schema["function"]["parameters"]}
    return {}


def need(database: Database, table: str, key: str, label: str) -> dict[str, Any]:
    """Return a record to read. Raises ToolError if missing."""
    record = database.get(table, key) if isinstance(key, str) else None
    if record is None:
        raise ToolError(f"{label} not found")
    return record
