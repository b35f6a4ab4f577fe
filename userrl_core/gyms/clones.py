"""Import of published data from clones of the released repositories (`userrl tasks import --from CLONE ...`).

Data files are copied, and the source files that hold prompts (`released_texts`). tau-bench has its tasks and tool schemas as
Python source only. That source is parsed, and anything but a literal is refused. No code of a clone ever runs.
"""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from userrl_core.errors import TaskError
from userrl_core.replaced_file import replacing
from userrl_core.user_path import read_text

COPIED = {
    "userrl": ("LICENSE*", "data/*/*.parquet", "gyms/*/*/data/*.json", "gyms/*/*/env/*.py", "eval/schema/*.yaml"),
    "userbench": ("LICENSE*", "data/*/*.parquet", "travelgym/data/*.json", "travelgym/env/*.py", "schema/*.yaml"),
    "agentgym": ("LICENSE*", "agentenv-textcraft/agentenv_textcraft/recipes/*.json"),
    "agentgym/searchqa": ("*/train.jsonl", "*/dev.jsonl", "*/test.jsonl"),
}
"""The files of a clone that are copied. They keep their paths."""
USERS = Path("tau_bench/envs/user.py")
"""The prompts of tau-bench's users."""
DOMAINS = ("retail", "airline")
RECORDS = ("Task", "Action")
"""The record types of tau-bench's task files: calls with keywords, read as mappings."""


def import_clone(clone: Path, folder: Path) -> str:
    """Copy a clone's data into a folder of published data; return the name of the new part.

    Nothing is changed before all files are read and written aside. Raises TaskError for a folder of an unknown kind, for one
    without data, and for a source with more than literals (file and line are named).
    """
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".import-") as draft:
        part = _read_clone(clone, Path(draft))
        files = [path for path in sorted(Path(draft).rglob("*")) if path.is_file()]
        if not files:
            raise TaskError(
                "task.file_missing", f"{clone} has no data of {part}. Give the root folder of a complete clone."
            )
        for path in files:
            with path.open("rb") as source, replacing(folder / path.relative_to(draft)) as target:
                shutil.copyfileobj(source, target)
    return part


def _read_clone(clone: Path, folder: Path) -> str:
    if (clone / "tau_bench" / "envs").is_dir():
        part = "tau-bench"
        for domain in DOMAINS:
            _import_domain(clone / "tau_bench" / "envs" / domain, folder / part / domain)
        if (clone / USERS).is_file():
            _copy(clone / USERS, folder / part / USERS)
        return part
    if (clone / "gyms" / "TurtleGym").is_dir():
        part = "userrl"
    elif (clone / "travelgym").is_dir():
        part = "userbench"
    elif (clone / "agentenv-textcraft").is_dir():
        part = "agentgym"
    elif any((clone / name).is_dir() for name in ("nq", "hotpotqa", "bamboogle")):
        part = "agentgym/searchqa"
    else:
        raise TaskError(
            "task.file_missing",
            f"{clone} is not a clone of UserRL, UserBench, tau-bench, AgentGym or the question sets "
            "(nq/test.jsonl and others). Give the root folder of one.",
        )
    for source in (path for pattern in COPIED[part] for path in sorted(clone.glob(pattern))):
        _copy(source, folder / part / source.relative_to(clone))
    return part


def _import_domain(source: Path, target: Path) -> None:
    for path in (*sorted((source / "data").glob("*.json")), source / "wiki.md"):
        if path.is_file():
            _copy(path, target / path.name)
    parts = sorted(source.glob("tasks_*.py"))
    if not parts or not (source / "tools" / "__init__.py").is_file():
        raise TaskError(
            "task.file_missing",
            f"{source} has no tasks_*.py or no tools. Give the root folder of a complete clone of tau-bench.",
        )
    for path in parts:
        _write(
            target / f"{path.stem}.json", [_task(number, row) for number, row in enumerate(_assigned(path, "TASKS"))]
        )
    _write(target / "tools.json", _tools(source / "tools"))


def _task(number: int, row: Any) -> dict[str, Any]:
    outputs = row.get("outputs", [])  # a task without them has nothing to communicate
    return {
        "task_id": number,
        **{key: row.get(key) for key in ("user_id", "instruction", "actions")},
        "outputs": outputs,
    }


def _tools(folder: Path) -> list[Any]:
    """Return the schemas in the tools' ``get_info``, in the domain's order."""
    schemas: dict[str, Any] = {}
    for path in sorted(folder.glob("*.py")):
        for tool in (node for node in _module(path).body if isinstance(node, ast.ClassDef)):
            for node in ast.walk(tool):
                if isinstance(node, ast.FunctionDef) and node.name == "get_info":
                    value = next((inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)), None)
                    schemas[tool.name] = _literal(value, path)
    tool_names = [node.id for node in _listed(folder / "__init__.py") if isinstance(node, ast.Name)]
    missing = [name for name in tool_names if name not in schemas]
    if missing or not tool_names:
        raise TaskError(
            "task.file_unreadable",
            f"{folder}: get_info of {missing[0] if missing else 'every tool'} is missing. Clone the repository again.",
        )
    return [schemas[name] for name in tool_names]


def _listed(path: Path) -> list[ast.expr]:
    for node in _module(path).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List):
            return node.value.elts
    return []


def _assigned(path: Path, prefix: str) -> list[Any]:
    for node in _module(path).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        has_prefix = any(isinstance(target, ast.Name) and target.id.startswith(prefix) for target in targets)
        if has_prefix and isinstance(node, (ast.Assign, ast.AnnAssign)):
            value = _literal(node.value, path)
            if isinstance(value, list) and all(isinstance(row, dict) for row in value):
                return value
    raise TaskError(
        "task.file_unreadable",
        f"{path} assigns no list of tasks to a name that begins with {prefix}. Use the repository as it was released.",
    )


def _literal(node: ast.AST | None, path: Path) -> Any:
    """Return the value of a literal or of a record of tau-bench's files. Raises TaskError for everything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RECORDS and not node.args:
        return {str(keyword.arg): _literal(keyword.value, path) for keyword in _named(node, path)}
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_literal(element, path) for element in node.elts]
    if isinstance(node, ast.Dict):
        return {_literal(key, path): _literal(value, path) for key, value in zip(node.keys, node.values, strict=True)}
    try:
        return ast.literal_eval(node)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        raise _refusal(node, path) from None


def _named(call: ast.Call, path: Path) -> Iterator[ast.keyword]:
    for keyword in call.keywords:
        if keyword.arg is None:
            raise _refusal(call, path)
        yield keyword


def _refusal(node: ast.AST | None, path: Path) -> TaskError:
    return TaskError(
        "task.file_unreadable",
        f"{path}, line {getattr(node, 'lineno', '?')}: this value is not a literal, and code of a clone is "
        "never run. Use the repository as it was released.",
    )


def _module(path: Path) -> ast.Module:
    try:
        return ast.parse(read_text(path))
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise TaskError(
            "task.file_unreadable",
            f"{path} cannot be read as Python ({type(error).__name__}). Use the repository as it was released.",
        ) from None


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
