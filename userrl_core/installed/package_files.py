"""The files of an installed package, found without importing it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path


def package_roots(point: EntryPoint) -> tuple[Path, ...]:
    """Return the folders and files with the code behind an entry point, in the order of the modules' names.

    They are the point's own package and the other modules that its distribution names in ``top_level.txt``. An editable
    installation has the same modules as another one. A namespace that several distributions share counts only below the
    point's own module.
    """
    listed = (point.dist.read_text("top_level.txt") or "").split() if point.dist is not None else []
    own_package = point.module.partition(".")[0]
    roots = [
        *_own_root(point.module),
        *(root for name in sorted(set(listed) - {own_package}) for root in _root(find_spec(name))),
    ]
    return tuple(dict.fromkeys(roots))


def _own_root(module: str) -> list[Path]:
    """Return the first regular package on the way to a module; else the folder that holds the module."""
    parts = module.split(".")
    folders: list[Path] = []
    for end in range(len(parts)):
        spec = find_spec(".".join(parts[: end + 1]))
        if spec is None:
            return []
        if spec.origin is not None:
            in_namespace = spec.submodule_search_locations is None and folders
            return folders if in_namespace else list(_root(spec))
        folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    return folders


def _root(spec: ModuleSpec | None) -> Iterator[Path]:
    if spec is not None and spec.origin is not None:
        origin = Path(spec.origin)
        yield origin if spec.submodule_search_locations is None else origin.parent
