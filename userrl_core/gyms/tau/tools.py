"""What the domains of TauGym share: how a tool call is read, checked and carried out, and the tools that all of them have."""

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

Tool = Callable[..., Any]
TRANSFER = "transfer_to_human_agents"


class ToolError(ValueError):
    """A tool cannot do what was asked; the message goes to the agent and the database stays as it was."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A service desk: its tools, their schemas (OpenAI function JSON), its policy and its data.

    writes: names of the tools that change the database.
    """

    name: str
    tools: Mapping[str, Tool]
    writes: frozenset[str]
    schemas: tuple[dict[str, Any], ...]
    policy: str
    base: Tables
    checkers: dict[str, Any] = field(default_factory=dict)

    def call(self, database: Database, name: str, arguments: Mapping[str, Any]) -> str:
        """Carry out one tool; returns what it says as text. Raises ToolError, always before anything has changed."""
        result = self.carry_out(database, name, arguments)
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)

    def carry_out(self, database: Database, name: str, arguments: Mapping[str, Any]) -> Any:
        """The same with the tool's own result: a record must be read only."""
        tool = self.tools.get(name)
        if tool is None:
            raise ToolError(f"there is no tool '{name}'; search 'tools' for a list")
        problem = self._problem(name, arguments)
        if problem:
            raise ToolError(problem)
        # A copy: what a tool keeps of its arguments must not be the task's own gold actions.
        return tool(database, **duplicate(dict(arguments)))

    def _problem(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        if name not in self.checkers:
            self.checkers[name] = jsonschema.Draft202012Validator(_parameters(self.schemas, name))
        for error in self.checkers[name].iter_errors(arguments):
            place = ".".join(str(part) for part in error.absolute_path)
            return f"the arguments of {name} do not fit{f' at {place}' if place else ''}: {error.message[:200]}"
        return None


def read_call(text: str) -> tuple[str, dict[str, Any]]:
    """A tool call from its JSON, ``{"name": ..., "arguments": {...}}``. Raises ToolError."""
    try:
        value = json.loads(text, parse_float=_finite, parse_constant=_finite)
        orjson.dumps(value)  # numbers beyond 64 bits, halves of characters, 255 levels: no record could hold them
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
    try:
        if len(expression) > 200:
            raise ToolError("the expression is too long")
        return str(round(float(_value(ast.parse(expression.strip(), mode="eval").body)), 2))
    except (SyntaxError, ArithmeticError, RecursionError, MemoryError, ValueError) as error:
        if isinstance(error, ToolError):
            raise
        raise ToolError("the expression cannot be calculated") from None


def think(database: Database, thought: str) -> str:
    """Nothing happens."""
    return ""


def transfer(database: Database, summary: str) -> str:
    """Hand the user over to a person; ends the attempt."""
    return "Transfer successful"


COMMON: dict[str, Tool] = {"calculate": calculate, "think": think, TRANSFER: transfer}

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
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
    raise ToolError("an expression may hold numbers, + - * / and brackets only")


def _parameters(schemas: tuple[dict[str, Any], ...], name: str) -> dict[str, Any]:
    for schema in schemas:
        if schema["function"]["name"] == name:
            return {"additionalProperties": False, **schema["function"]["parameters"]}
    return {}


def need(database: Database, table: str, key: str, what: str) -> dict[str, Any]:
    """The record, to read. Raises ToolError when there is none."""
    record = database.get(table, key)
    if record is None:
        raise ToolError(f"{what} not found")
    return record
