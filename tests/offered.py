"""Packages that are installed for a test: the metadata that pip writes of a project's name and entry points."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from curricula import feasibility
from userrl.run import external
from userrl_core.gyms import registry
from userrl_core.installed import same_name


def offer(site: Path, project: Path, name: str | None = None) -> None:
    """Write the metadata of the project in a folder, under its own name or another one."""
    about = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    title = name or about["name"]
    info = site / f"{title.replace('-', '_')}-{about['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {title}\nVersion: {about['version']}\n")
    groups = [
        f"[{group}]\n" + "".join(f"{point} = {value}\n" for point, value in points.items())
        for group, points in about["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))


@contextmanager
def in_this_process(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> Iterator[None]:
    """Put the folders on the path, and let this process look for packages again, now and afterwards."""
    of_gyms = (registry.packages, registry.clashes, registry._tasks, feasibility._turns)
    caches = (*of_gyms, same_name.offered, external._package)
    before = set(sys.modules)
    for folder in folders:
        monkeypatch.syspath_prepend(folder)
    for cache in caches:
        cache.cache_clear()
    try:
        yield
    finally:
        for cache in caches:
            cache.cache_clear()
        for name in set(sys.modules) - before:
            if any(Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(each) for each in folders):
                del sys.modules[name]
