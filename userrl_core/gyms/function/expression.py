"""Rules over four numbers as expression trees (UserRL appendix C, FunctionGym): parsed, never passed to ``eval``.

Grammar, with Python's precedence and associativity:
    sum     = product (("+" | "-") product)*
    product = unary (("*" | "/" | "//" | "%") unary)*
    unary   = ("+" | "-") unary | power
    power   = atom ("**" unary)?
    atom    = number | a | b | c | d | "(" sum ")" | name "(" sum ("," sum)* ")"
All arithmetic is in floats: integers of unlimited length would let a rule run without end.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from userrl_core.errors import TaskError

VARIABLES = "abcd"
Numbers = Sequence[float]
Rule = Callable[[Numbers], float]
"""Maps four numbers to a value; raises ArithmeticError or ValueError where the rule has no real value."""

_TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z_]+)|(\*\*|//|[-+*/%(),]))")
_MAX_DEPTH = 60
Binary = Callable[[float, float], float]
_SUM: dict[str, Binary] = {"+": operator.add, "-": operator.sub}
_PRODUCT: dict[str, Binary] = {
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
_FUNCTIONS: dict[str, tuple[Callable[..., float], int, int]] = {
    "abs": (abs, 1, 1),
    "sqrt": (math.sqrt, 1, 1),
    "round": (round, 1, 1),
    "min": (min, 2, 8),
    "max": (max, 2, 8),
}


@lru_cache(maxsize=4096)
def compile_rule(text: str) -> Rule:
    """The rule as a function of four numbers. Raises TaskError naming the token that cannot be parsed."""
    parser = _Parser(text)
    rule = parser.sum(0)
    if parser.token:
        raise parser.error("an operator or the end")
    return rule


def evaluate(rule: Rule, numbers: Numbers) -> float | None:
    """The rule's value, None where it is undefined (division by zero, not real, beyond the range of floats)."""
    try:
        value = rule(numbers)
    except (ArithmeticError, ValueError, TypeError):
        # TypeError: a negative base with a fractional exponent gives a complex number, which // and % do not accept.
        return None
    if isinstance(value, complex) or not math.isfinite(value):
        return None
    return value


class _Parser:
    """Recursive descent over the tokens; every method returns the parsed part as a closure."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.token = ""
        self.kind = ""
        self.advance()

    def advance(self) -> None:
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            if self.text[self.position :].strip():
                self.token = self.text[self.position :].strip()[0]
                raise self.error("a number, a letter a to d or an operator")
            self.token = self.kind = ""
            return
        number, name, sign = match.groups()
        self.kind = "number" if number else "name" if name else "sign"
        self.token = number or name or sign
        self.position = match.end()

    def error(self, expected: str) -> TaskError:
        token = f"'{self.token}'" if self.token else "the end"
        return TaskError(f"The rule '{self.text[:80]}' cannot be read: expected {expected}, found {token}.")

    def expect(self, sign: str) -> None:
        if self.token != sign:
            raise self.error(f"'{sign}'")
        self.advance()

    def sum(self, depth: int) -> Rule:
        left = self.product(depth)
        while self.kind == "sign" and self.token in _SUM:
            apply = _SUM[self.token]
            self.advance()
            left = _binary(apply, left, self.product(depth))
        return left

    def product(self, depth: int) -> Rule:
        left = self.unary(depth)
        while self.kind == "sign" and self.token in _PRODUCT:
            apply = _PRODUCT[self.token]
            self.advance()
            left = _binary(apply, left, self.unary(depth))
        return left

    def unary(self, depth: int) -> Rule:
        if depth > _MAX_DEPTH:
            raise self.error("a shallower expression")
        if self.token in ("+", "-"):
            negative = self.token == "-"
            self.advance()
            inner = self.unary(depth + 1)
            return (lambda x: -inner(x)) if negative else inner
        base = self.atom(depth)
        if self.token != "**":
            return base
        self.advance()
        return _binary(operator.pow, base, self.unary(depth + 1))

    def atom(self, depth: int) -> Rule:
        token, kind = self.token, self.kind
        if token == "(":
            self.advance()
            inner = self.sum(depth + 1)
            self.expect(")")
            return inner
        if kind == "number":
            self.advance()
            constant = float(token)
            return lambda x: constant
        if kind == "name" and token in VARIABLES and len(token) == 1:
            self.advance()
            return operator.itemgetter(VARIABLES.index(token))
        if kind == "name" and token in _FUNCTIONS:
            return self.call(token, depth)
        raise self.error("a number, a letter a to d, a bracket or one of " + ", ".join(_FUNCTIONS))

    def call(self, name: str, depth: int) -> Rule:
        function, fewest, most = _FUNCTIONS[name]
        self.advance()
        self.expect("(")
        arguments = [self.sum(depth + 1)]
        while self.token == ",":
            self.advance()
            arguments.append(self.sum(depth + 1))
        if not fewest <= len(arguments) <= most:
            raise self.error(f"{name} with {fewest} to {most} arguments")
        self.expect(")")
        return lambda x: float(function(*[argument(x) for argument in arguments]))


def _binary(apply: Binary, left: Rule, right: Rule) -> Rule:
    return lambda x: apply(left(x), right(x))
