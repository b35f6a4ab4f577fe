"""Texts of the released repositories, read from a person's own copy: constants of a source file, found with `ast`.

Nothing of a copy is imported or executed, and no text of it is part of this project. A folder of published data holds a
part per repository (``userrl``, ``userbench``, ``tau-bench``), each with the layout of that repository.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import orjson

from userrl_core.errors import ConfigError, MissingFileError
from userrl_core.user_path import open_file, read_text

Prompts = Literal["ours", "released"]
"""Whose texts users and judges get. ours: ours. released: those of the released code, from the person's copy."""

REPOSITORIES = {
    "userrl": "SalesforceAIResearch/UserRL (read at cf55a30)",
    "userbench": "SalesforceAIResearch/UserBench (read at b05d86b)",
    "tau-bench": "sierra-research/tau-bench (read at 59a200c)",
}
"""The repository of each part of a folder of published data, with the commit that this project was checked against."""

REMEDY = "Copy it there with userrl tasks import --from CLONE, or use prompts: ours."


@dataclass(frozen=True, slots=True)
class Template:
    """A text with named holes, from a constant, an f-string or a sum of both. parts: (is a hole, text or name)."""

    parts: tuple[tuple[bool, str], ...]

    @property
    def text(self) -> str:
        """The text, with every hole in braces."""
        return "".join(f"{{{part}}}" if is_hole else part for is_hole, part in self.parts)

    def fill(self, **values: str) -> str:
        """Return the text with the values in place of its holes. Raises ConfigError for a hole of another name."""
        unknown = [part for is_hole, part in self.parts if is_hole and part not in values]
        if unknown:
            raise ConfigError(
                "prompts.missing",
                f"A released text has the value {{{unknown[0]}}}, which this project does not know. Use a copy of the commit that "
                "docs/users.md names, or prompts: ours.",
            )
        return "".join(values[part] if is_hole else part for is_hole, part in self.parts)


class Source:
    """A source file of a copy. The methods raise ConfigError if the file lacks the text."""

    def __init__(self, root: Path, part: str, file: str) -> None:
        """Parse the file. root: the folder of published data. Raises MissingFileError without it, ConfigError if unreadable."""
        self.path = root / part / file
        self._where = f"{REPOSITORIES[part]}"
        try:
            self._tree = ast.parse(read_text(self.path))
        except (FileNotFoundError, NotADirectoryError):
            raise MissingFileError(
                "prompts.missing",
                f"Released prompts are read from a copy of {self._where} in the folder {root / part}, and it has no {file}. "
                f"{REMEDY}",
            ) from None
        except (SyntaxError, ValueError, OSError) as error:
            raise ConfigError("prompts.unreadable", f"{self.path} is not a readable Python file ({error}).") from None

    def constant(self, name: str) -> str:
        """Return the text of a constant of the module."""
        return self._only(_assigned(self._tree, name), name).text

    def entry(self, name: str, key: str) -> str:
        """Return the text at a key of a dictionary of the module."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Assign) and _names(node) == [name] and isinstance(node.value, ast.Dict):
                for key_node, value in zip(node.value.keys, node.value.values, strict=True):
                    if (
                        isinstance(key_node, ast.Constant)
                        and key_node.value == key
                        and (template := _template(value)) is not None
                    ):
                        return template.text
        raise self._lacks(f"{name}[{key!r}]")

    def assigned(self, function: str, name: str, length: int) -> tuple[Template, ...]:
        """Return the texts that a function assigns to a variable, in the order of the lines.

        length: their number. A copy of another version may have more texts or fewer, and is refused.
        """
        templates = tuple(_assigned(self._function(function), name))
        if len(templates) != length:
            raise self._lacks(f"{length} texts of {name} in {function}")
        return templates

    def added(self, function: str, name: str) -> tuple[Template, ...]:
        """Return the texts that a function adds to a variable with ``+=``, in the order of the lines."""
        nodes = [
            node
            for node in ast.walk(self._function(function))
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name
        ]
        templates = tuple(
            t for node in sorted(nodes, key=lambda n: n.lineno) if (t := _template(node.value)) is not None
        )
        if not templates:
            raise self._lacks(f"{function}: {name} +=")
        return templates

    def otherwise(self, function: str, keyword: str) -> str:
        """Return the text of the ``else`` of a conditional that a function passes as a keyword argument."""
        for node in ast.walk(self._function(function)):
            match node:
                case ast.keyword(arg=name, value=ast.IfExp(orelse=text)) if name == keyword:
                    if (template := _template(text)) is not None:
                        return template.text
        raise self._lacks(f"{keyword} in {function}")

    def returned(self, function: str) -> Template:
        """Return the text that a function returns."""
        nodes = (node.value for node in ast.walk(self._function(function)) if isinstance(node, ast.Return))
        templates = (t for node in nodes if node is not None and (t := _template(node)) is not None)
        return self._only(templates, f"returned by {function}")

    def values(self, function: str, key: str, length: int) -> tuple[Template, ...]:
        """Return the texts at a key of the dictionaries that a function makes, in the order of the lines."""
        nodes = [
            value
            for node in ast.walk(self._function(function))
            if isinstance(node, ast.Dict)
            for key_node, value in zip(node.keys, node.values, strict=True)
            if isinstance(key_node, ast.Constant) and key_node.value == key
        ]
        templates = tuple(t for node in sorted(nodes, key=lambda n: n.lineno) if (t := _template(node)) is not None)
        if len(templates) != length:
            raise self._lacks(f"{length} texts of {key!r} in {function}")
        return templates

    def message(self, function: str, role: str) -> str:
        """Return the content of the first message of a role that a function makes, if it is a constant."""
        for node in ast.walk(self._function(function)):
            if isinstance(node, ast.Dict):
                items = {
                    key.value: value
                    for key, value in zip(node.keys, node.values, strict=True)
                    if isinstance(key, ast.Constant)
                }
                match items.get("role"), items.get("content"):
                    case ast.Constant(value=named), ast.AST() as content if named == role:
                        if (template := _template(content)) is not None:
                            return template.text
        raise self._lacks(f"a message of role {role} in {function}")

    def _function(self, path: str) -> ast.AST:
        scope: ast.AST = self._tree
        for name in path.split("."):
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            inner = next((n for n in ast.iter_child_nodes(scope) if isinstance(n, kinds) and n.name == name), None)
            if inner is None:
                raise self._lacks(path)
            scope = inner
        return scope

    def _only(self, templates: Iterator[Template], name: str) -> Template:
        template = next(iter(templates), None)
        if template is None:
            raise self._lacks(name)
        return template

    def _lacks(self, what: str) -> ConfigError:
        return ConfigError(
            "prompts.missing", f"{self.path} has no text {what}. Use a copy of {self._where}, or prompts: ours."
        )


def hashes(texts: Any) -> dict[str, str]:
    """Return the first 16 hexadecimal digits of the SHA-256 of every text of a dataclass, by field."""
    return {field.name: text_hash(getattr(texts, field.name)) for field in fields(texts)}


def text_hash(value: Any) -> str:
    """Return the hash of a text, a template, or a collection of them."""
    return hashlib.sha256(_plain(value).encode()).hexdigest()[:16]


def _plain(value: Any) -> str:
    if isinstance(value, Template):
        return value.text
    if isinstance(value, Mapping):
        return "\0".join(f"{key}\0{_plain(inner)}" for key, inner in sorted(value.items()))
    return "\0".join(map(_plain, value)) if isinstance(value, (tuple, list)) else str(value)


def published_root(texts: str | Path | None) -> Path:
    """Return the folder of published data that a user was given. Raises ConfigError without one."""
    if texts is None:
        raise ConfigError(
            "prompts.missing",
            "Released prompts are read from a folder of published data, and none was named. Give the user or judge the option "
            "texts: the folder that USERRL_PUBLISHED_DATA names in recipes.",
        )
    return Path(texts)


@lru_cache(maxsize=8)
def rows_by_id(path: Path) -> Mapping[str, dict[str, Any]]:
    """Return the objects of a released JSON list by their ``id``; empty if the copy lacks the file. Raises ConfigError."""
    if not path.exists():
        return {}
    try:
        with open_file(path) as file:
            rows = orjson.loads(file.read())
    except (OSError, orjson.JSONDecodeError) as error:
        raise ConfigError("prompts.unreadable", f"{path} is not a readable JSON file ({error}).") from None
    return {str(row.get("id")): row for row in rows if isinstance(row, dict)}


def _names(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


def _assigned(scope: ast.AST, name: str) -> Iterator[Template]:
    nodes = [node for node in ast.walk(scope) if isinstance(node, ast.Assign) and _names(node) == [name]]
    for node in sorted(nodes, key=lambda node: node.lineno):
        if (template := _template(node.value)) is not None:
            yield template


def _template(node: ast.AST) -> Template | None:
    """Return a constant, an f-string, a sum of texts and expressions, or the first branch of a conditional; else None."""
    parts = _parts(node)
    return None if parts is None or not any(not is_hole for is_hole, _ in parts) else Template(tuple(parts))


def _parts(node: ast.AST) -> list[tuple[bool, str]] | None:
    match node:
        case ast.Constant(value=str(text)):
            return [(False, text)]
        case ast.JoinedStr(values=values):
            inner = [_parts(value) for value in values]
            return None if None in inner else [part for parts in inner for part in parts or ()]
        case ast.FormattedValue(value=value):
            return [(True, ast.unparse(value))]
        case ast.Name(id=name):
            return [(True, name)]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [part for side in (left, right) for part in _parts(side) or [(True, ast.unparse(side))]]
        case ast.Call(func=ast.Attribute(value=value, attr="strip"), args=[]):
            return _parts(value)
        case ast.IfExp(body=body):
            return _parts(body)
    return None
