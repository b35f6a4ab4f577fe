"""Rules over four numbers (UserRL appendix C, FunctionGym), read by Python's own parser and limited to arithmetic.

Nothing is ever passed to ``eval``. A rule holds numbers, the letters a to d, brackets, + - * / // % ** and abs, sqrt, round,
min, max, with Python's precedence and associativity. All arithmetic is in floats: with integers of unlimited length a rule
could run without end.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache

from userrl_core.errors import TaskError

VARIABLES = "abcd"
Numbers = Sequence[float]
Rule = Callable[[Numbers], float]
"""Maps four numbers to a value. Raises ArithmeticError or ValueError if the rule has no real value."""

_MAX_DEPTH = 200
_BINARY: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.AST], Callable[[float], float]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
_FUNCTIONS: dict[str, tuple[Callable[..., float], int, int]] = {
    "abs": (abs, 1, 1),
    "sqrt": (math.sqrt, 1, 1),
    "round": (round, 1, 1),
    "min": (min, 2, 8),
    "max": (max, 2, 8),
}
"""Function, fewest and most arguments."""


@lru_cache(maxsize=4096)
def compile_rule(text: str) -> Rule:
    """Compile the rule to a function of four numbers. Raises TaskError with the part that is not arithmetic."""
    try:
        return _compiled(ast.parse(" ".join(text.split()), mode="eval").body, 0)
    except (SyntaxError, ValueError, OverflowError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise TaskError("task.invalid_field", f"The rule '{text[:80]}' cannot be read: {reason}.") from None
    except (RecursionError, MemoryError):
        raise TaskError(
            "task.invalid_field", f"The rule '{text[:80]}' cannot be read. Write a shallower expression."
        ) from None


def evaluate(rule: Rule, numbers: Numbers) -> float | None:
    """Return the rule's value; None if it is undefined (division by zero, not real, beyond the range of floats)."""
    try:
        value = rule(numbers)
    except (ArithmeticError, ValueError, TypeError):
        # TypeError: a negative base with a fractional exponent gives a complex number, which // and % do not accept.
        return None
    if isinstance(value, complex) or not math.isfinite(value):
        return None
    return value


def _compiled(node: ast.expr, depth: int) -> Rule:
    if depth > _MAX_DEPTH:
        raise RecursionError
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            constant = float(number)
            return lambda x: constant
        case ast.Name(id=name) if name in VARIABLES and len(name) == 1:
            return operator.itemgetter(VARIABLES.index(name))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            unary, inner = _UNARY[type(op)], _compiled(operand, depth + 1)
            return lambda x: unary(inner(x))
        case ast.BinOp(op=op, left=a, right=b) if type(op) in _BINARY:
            binary, left, right = _BINARY[type(op)], _compiled(a, depth + 1), _compiled(b, depth + 1)
            return lambda x: binary(left(x), right(x))
        case ast.Call(func=ast.Name(id=name), args=given, keywords=[]) if name in _FUNCTIONS:
            function, min_arguments, max_arguments = _FUNCTIONS[name]
            if not min_arguments <= len(given) <= max_arguments:
                raise ValueError(f"{name} takes {min_arguments} to {max_arguments} arguments")
            arguments = [_compiled(argument, depth + 1) for argument in given]
            return lambda x: float(function(*[argument(x) for argument in arguments]))
    allowed = f"numbers, the letters a to d, brackets, + - * / // % ** and {', '.join(_FUNCTIONS)}"
    raise ValueError(f"'{ast.unparse(node)[:40]}' is none of {allowed}")
