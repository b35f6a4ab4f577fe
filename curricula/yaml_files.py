"""The YAML files of recipes, profiles, suites and claims: finding and reading them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml

from userrl_core.errors import ConfigError
from userrl_core.suggest import nearest
from userrl_core.user_path import open_file

MAX_BYTES = 2**17
MAX_NODES = 10_000
"""Most values of a file with its aliases expanded, or of overrides. Our longest file, resolved, has 4,067 bytes and
506 values.
"""
MERGE = "tag:yaml.org,2002:merge"
"""The tag of the key ``<<``, which adds the keys of an anchor."""
_BASE_8 = re.compile(r"[-+]?0[0-9_]+$")
HERE = Path(__file__).resolve().parent
What = Literal["recipe", "profile", "suite", "claim"]


def recipe_names() -> tuple[str, ...]:
    """Return the shipped recipes. A leading underscore marks a file that is only for extension; it is left out."""
    return tuple(name for name in _names("recipe") if not name.startswith("_"))


def profile_names() -> tuple[str, ...]:
    """Return the shipped profiles."""
    return _names("profile")


def suite_names() -> tuple[str, ...]:
    """Return the shipped suites."""
    return _names("suite")


def claim_names() -> tuple[str, ...]:
    """Return the shipped claims."""
    return _names("claim")


def _names(kind: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (HERE / f"{kind}s").glob("*.yaml")))


def find(name: str | Path, kind: What) -> Path:
    """Return the file of a recipe, profile, suite or claim, by shipped name or by path, which its reader checks.

    ConfigError names the nearest shipped name.
    """
    if is_path(name):
        return Path(name)
    if name not in _names(kind):
        names = recipe_names() if kind == "recipe" else _names(kind)
        raise ConfigError(
            "file.unknown_name", f"There is no {kind} '{name}'{nearest(str(name), names)}. Known: {', '.join(names)}."
        )
    return HERE / f"{kind}s" / f"{name}.yaml"


def is_path(name: str | Path) -> bool:
    """Return whether a recipe, profile, suite, claim or sweep is given by the path of its file."""
    return isinstance(name, Path) or str(name).endswith((".yaml", ".yml")) or "/" in str(name)


def stem(name: str | Path) -> str:
    """Return the bare name of a recipe or profile given by name or path."""
    return Path(name).stem if is_path(name) else str(name)


def read(path: Path) -> Mapping[str, Any]:
    """Read one YAML mapping. Raises ConfigError for anything else, for unreadable or huge files and for a repeated key."""
    if HERE not in path.parents or not path.is_file():
        return _parsed(path)
    document: Mapping[str, Any] = _copied(_parsed_once(path, path.stat().st_mtime_ns))
    return document


def _copied(value: Any) -> Any:
    """Return a copy of what a file holds. `copy.deepcopy` takes five times as long."""
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    return [_copied(part) for part in value] if isinstance(value, list) else value


@lru_cache(maxsize=256)
def _parsed_once(path: Path, modified: int) -> Mapping[str, Any]:
    """Read a shipped file once in this process: parsing takes nine tenths of the time to load a recipe."""
    return _parsed(path)


def _parsed(path: Path) -> Mapping[str, Any]:
    try:
        with open_file(path) as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigError(
                "file.unreadable",
                f"{path} is larger than {MAX_BYTES >> 10} KB, and no settings are that long. Check that it is "
                "the right file.",
            )
        document = _loaded(content.decode())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f" in line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(
            "file.unreadable", f"{path} is not readable YAML{at}: {getattr(error, 'problem', None) or error}."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError("file.unreadable", f"{path} is not UTF-8 text. Save it as UTF-8.") from error
    except OSError as error:
        sentence = f"{path} cannot be read ({error.strerror or error}). Give the path of a YAML file."
        if isinstance(error, FileNotFoundError):
            raise ConfigError("file.missing", sentence) from error
        raise ConfigError("file.unreadable", sentence) from error
    if not isinstance(document, Mapping):
        raise ConfigError("file.unreadable", f"{path} contains no mapping of fields. Write 'key: value' lines.")
    return document


def value_of(text: str, key: str) -> Any:
    """Return the value of a word ``key=value`` of the command line, by the rules of a file. Raises ConfigError."""
    try:
        return _loaded(text)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or "it is not YAML"
        raise ConfigError(
            "argument.malformed", f"The value of '{key}' cannot be read as YAML: {_short(text)} ({problem})."
        ) from error


def _loaded(text: str) -> Any:
    """Return the value of a YAML text. Raises YAMLError."""
    try:
        return yaml.load(text, Loader=_loader())
    except yaml.reader.ReaderError as error:
        raise yaml.MarkedYAMLError(problem=f"it holds the character {chr(error.character)!a}") from None
    except RecursionError:
        raise yaml.MarkedYAMLError(problem="it is nested too deeply") from None


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}..."


def check_size(overrides: Mapping[str, Any]) -> None:
    """Raise ConfigError for overrides that are larger than a file may be, or not text."""
    number, inside = 0, [overrides]
    while inside:
        value: Any = inside.pop()
        if isinstance(value, Mapping):
            inside += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple)):
            inside += value
        elif isinstance(value, str) and _torn(value):
            raise ConfigError(
                "recipe.bad_override", f"Override {value!a} contains half of a surrogate pair, which is not text."
            )
        number += 1
        if number > MAX_NODES:
            raise ConfigError(
                "recipe.bad_override",
                f"The overrides have more than {MAX_NODES:,} values, and no settings are that long.",
            )


def _torn(text: str) -> bool:
    return any("\ud800" <= sign <= "\udfff" for sign in text)


@cache
def _loader() -> type[yaml.SafeLoader]:
    """Return a safe loader that refuses a repeated key and a number of base 8 or 60.

    YAML would silently keep the last value of the key. Nobody means ``012`` as 10, or ``1:30`` as 90.
    """

    class Strict(yaml.SafeLoader):
        def get_single_node(self) -> yaml.Node | None:
            node: yaml.Node | None = super().get_single_node()
            if node is not None and _written_out(node, {}) > MAX_NODES:
                raise yaml.composer.ComposerError(None, None, f"it has more than {MAX_NODES:,} values", node.start_mark)
            return node

        def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep)
            except (ValueError, LookupError, AttributeError):
                # More digits than Python reads, a day that no month has, !!int of a word or of nothing, !!bool of a word.
                problem = f"{_short(str(node.value)) or 'an empty value'} is no {node.tag.rpartition(':')[2]}. Put text in quotes"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
        keys = [object() if key.tag == MERGE else loader.construct_object(key) for key, _ in node.value]
        for index, key in enumerate(keys):
            if key in keys[:index]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"'{key}' is given twice", node.value[index][0].start_mark
                )
        return yaml.SafeLoader.construct_mapping(loader, node, deep=True)

    def number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int | float:
        is_float = node.tag.endswith(":float")
        value = loader.construct_yaml_float(node) if is_float else loader.construct_yaml_int(node)
        if ":" in node.value or (not is_float and _BASE_8.match(node.value)):
            problem = (
                f"YAML reads {node.value} as the number {value}. Write the number in plain digits, or quotes for text"
            )
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return value

    for kind in ("int", "float"):
        Strict.add_constructor(f"tag:yaml.org,2002:{kind}", number)
    Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    return Strict


def _written_out(node: yaml.Node, counts: dict[int, int]) -> int:
    """Return the number of values in a node with each alias expanded. Each node is visited once."""
    if id(node) not in counts:
        counts[id(node)] = MAX_NODES  # an alias to what it stands in has no end
        if isinstance(node, yaml.ScalarNode):
            if _torn(node.value):
                raise yaml.composer.ComposerError(None, None, "half of a surrogate pair is no text", node.start_mark)
            counts[id(node)] = 1
        else:
            inner = [part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,))]
            counts[id(node)] = 1 + sum(_written_out(part, counts) for part in inner)
    return counts[id(node)]
