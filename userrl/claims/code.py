"""Content hashes of the code behind a claim: the folders that train, and the code that measures.

Runs of other code are listed separately. The hash covers Python files without docstrings, comments and empty lines, so
rewording a text keeps it, and other files byte for byte. A study runs from a separate clone at the registered commit.
"""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import analysis.measure
import curricula
import userrl_core
import warehouse
from userrl_core.seeding import content_hash

VIEWS = ("20_curves.sql", "80_claims.sql")
"""SQL files that measure claims."""


@cache
def training_code() -> str:
    """Return the hash of `userrl_core`, of `curricula` without the claims' own files, and of what fills a trainer's job."""
    core, plans, product = _folder(userrl_core), _folder(curricula), Path(__file__).parents[1]
    files = [*_with_names("userrl_core", core, _files(core)), *_with_names("curricula", plans, _plans(plans))]
    return _hash((*files, *_with_names("userrl", product, [*_files(product / "worker"), product / "run" / "tasks.py"])))


@cache
def measuring_code() -> str:
    """Return the hash of the code that computes intervals, verdicts and collapse, and of the views it reads."""
    measures, views = _folder(analysis.measure), _folder(warehouse) / "views"
    measure_files = _with_names("measure", measures, _files(measures))
    return _hash((*measure_files, *_with_names("views", views, [views / name for name in VIEWS])))


def registration(claim_hash: str) -> str:
    """Return the registration hash of a claim: of its file and recipes, the training code and the measuring code."""
    return content_hash({"claim": claim_hash, "code": training_code(), "measure": measuring_code()})


def _folder(package: object) -> Path:
    return Path(str(package.__file__)).parent  # type: ignore[attr-defined]


def _files(folder: Path) -> list[Path]:
    """Return the source files of a folder, without compiled files and editors' leftovers."""
    paths = folder.rglob("*")
    return sorted(path for path in paths if path.suffix in (".py", ".yaml", ".json", ".csv", ".jsonl", ".txt"))


def _plans(folder: Path) -> list[Path]:
    return [path for path in _files(folder) if path.parent.name != "claims" or path.suffix == ".py"]


def _with_names(name: str, folder: Path, files: Iterable[Path]) -> list[tuple[str, Path]]:
    return [(f"{name}/{path.relative_to(folder).as_posix()}", path) for path in files]


def _hash(files: Iterable[tuple[str, Path]]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name, path in files:
        digest.update(f"{name}\0".encode())
        content = path.read_bytes()
        digest.update(hashlib.blake2b(statements(content) if path.suffix == ".py" else content).digest())
    return digest.hexdigest()


def statements(source: bytes) -> bytes:
    """Return Python source without docstrings, comments, and empty lines. A string statement counts as a docstring.

    The text is cut, not printed again, because each version of Python prints a syntax tree differently.
    """
    lines = source.splitlines()
    for token in tokenize.tokenize(io.BytesIO(source).readline) if b"#" in source else ():
        if token.type == tokenize.COMMENT:
            row, column = token.start
            prefix = token.line[:column].encode()
            lines[row - 1] = lines[row - 1][: len(prefix)]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            before, after = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
            lines[first : last + 1] = [b""] * (last - first) + [before + after]
    return b"\n".join(line.rstrip() for line in lines if line.strip())
