"""Measure the structure of the code from its own imports: circles, upward arrows, folders that import each other.

    python scripts/architecture.py               print the measurements; exit status 1 if a rule is broken
                                                 or the drawing in docs/architecture.md is out of date
    python scripts/architecture.py --draw        also draw the rooms in docs/architecture.md again
    python scripts/architecture.py --full        print the graph of all folders as a Mermaid diagram

A module named in a string (to start it as a process, or to import it later) counts as an arrow.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import grimp
import networkx

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("userrl_core", "analysis", "curricula", "warehouse", "sweeps", "userrl", "flows", "lab")
"""Rooms from the ground up. A room imports those before it (warehouse and curricula do not import each other).
The lab is in no installation.
"""
PACKAGES = "packages"
"""The folder of the separate packages: gyms, and people."""
PAGE = ROOT / "docs" / "architecture.md"
DRAWING = "<!-- drawn by scripts/architecture.py: begin -->"
END = "<!-- end -->"


@dataclass(frozen=True, slots=True)
class Structure:
    """The import structure. arrows: number of imports from one folder to another."""

    circles: list[list[str]]
    upward: list[str]
    mutual: list[tuple[str, str]]
    arrows: Mapping[tuple[str, str], int]
    folders: frozenset[str]


def measure() -> Structure:
    """Read every import of the rooms, including imports inside functions and modules named in strings."""
    packages = separate_packages()
    sys.path += [str(ROOT), *(str(folder.parent) for folder in packages)]
    graph = grimp.build_graph(*ROOMS, *(folder.name for folder in packages), cache_dir=None)
    folders = {module: _folder(module) for module in graph.modules}
    imports = [(a, b) for a in graph.modules for b in graph.find_modules_directly_imported_by(a)]
    circles = [sorted(c) for c in networkx.strongly_connected_components(networkx.DiGraph(imports)) if len(c) > 1]
    arrows: Counter[tuple[str, str]] = Counter()
    upward = []
    started = [(a, b) for a in graph.modules for b in named_in_strings(a) & graph.modules if not b.startswith(f"{a}.")]
    for source, target in sorted([*imports, *started]):
        if _floor(target) > _floor(source):
            upward.append(f"{source} imports {target}")
        if folders[source] != folders[target]:
            arrows[folders[source], folders[target]] += 1
    mutual = [(a, b) for a, b in sorted(arrows) if a < b and (b, a) in arrows and not _inside(a, b)]
    return Structure(sorted(circles), upward, mutual, arrows, frozenset(folders.values()))


def separate_packages() -> list[Path]:
    """Return the Python packages in the folder of separate packages."""
    return sorted(file.parent for file in ROOT.glob(f"{PACKAGES}/*/userrl_*/__init__.py"))


def _floor(module: str) -> int:
    """Return the position of a module's room, from the ground up. Of the rooms, only the lab imports a separate package."""
    room = module.split(".")[0]
    return ROOMS.index(room if room in ROOMS else "lab")


def _path(module: str) -> Path:
    room = module.split(".")[0]
    top = ROOT if room in ROOMS else ROOT / PACKAGES / room.replace("_", "-")
    return top.joinpath(*module.split("."))


def named_in_strings(module: str) -> set[str]:
    """Return the modules that a module names in its strings, such as ``python -m userrl.worker.main``."""
    path = _path(module)
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    texts = (
        node.value for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Constant)
    )
    return {text.partition(":")[0] for text in texts if isinstance(text, str) and "." in text}


def _folder(module: str) -> str:
    path = _path(module)
    return str((path if path.is_dir() else path.parent).relative_to(ROOT))


def _inside(a: str, b: str) -> bool:
    """Return whether one folder contains the other. A package and its parts are one idea."""
    return a.startswith(f"{b}/") or b.startswith(f"{a}/")


def drawing(structure: Structure) -> str:
    """Draw the rooms as a Mermaid diagram, with an arrow for each import between rooms."""
    between = {(a.split("/")[0], b.split("/")[0]) for a, b in structure.arrows}
    boxes = [f'  {room}["{room}/"]' for room in (*ROOMS, PACKAGES)]
    return "\n".join(
        ["```mermaid", "flowchart BT", *boxes, *(f"  {a} --> {b}" for a, b in sorted(between) if a != b), "```"]
    )


def full_drawing(structure: Structure) -> str:
    """Draw all folders as a Mermaid diagram: a box per folder, a frame per room. Gyms are one box."""
    ids = {folder: folder.replace("/", "_").replace("-", "_") for folder in structure.folders}
    lines = ["flowchart BT"]
    for room in (*ROOMS, PACKAGES):
        lines.append(f'  subgraph {room}_room["{room}/"]')
        for folder in sorted(structure.folders):
            if folder.split("/")[0] == room and not folder.startswith("userrl_core/gyms/"):
                label = folder.removeprefix(f"{room}/") if folder != room else "top"
                lines.append(f'    {ids[folder]}["{label}"]')
        lines.append("  end")
    shown = {(_drawn(a), _drawn(b)) for a, b in structure.arrows}
    return "\n".join([*lines, *(f"  {ids[a]} --> {ids[b]}" for a, b in sorted(shown) if a != b)])


def replaced(page: str, begin: str, made: str) -> str:
    """Return the page with new text between a mark and the end that follows it."""
    head, _, rest = page.partition(begin)
    return f"{head}{begin}\n{made}\n{END}{rest.split(END, 1)[1]}"


def _drawn(folder: str) -> str:
    """Return the drawn folder. A gym's folder is drawn as the folder of all gyms."""
    return "userrl_core/gyms" if folder.startswith("userrl_core/gyms/") else folder


def main() -> int:
    """Print the measurements. Returns 1 if a rule is broken."""
    parser = argparse.ArgumentParser(description="The structure of the code, from its own imports.")
    parser.add_argument("--draw", action="store_true", help="make the drawing in docs/architecture.md again")
    parser.add_argument("--full", action="store_true", help="print the graph of all folders and nothing else")
    arguments = parser.parse_args()
    structure = measure()
    if arguments.full:
        print(full_drawing(structure))
        return 0
    counts = f"{len(structure.circles)} circles, {len(structure.upward)} upward arrows"
    print(f"{counts}, {len(structure.mutual)} pairs of folders that import each other")
    for circle in structure.circles:
        print(f"  circle: {', '.join(circle)}")
    for line in (
        *structure.upward,
        *(f"{a}/ and {b}/ import each other" for a, b in structure.mutual),
    ):
        print(f"  {line}")
    text = PAGE.read_text(encoding="utf-8")
    drawn = replaced(text, DRAWING, drawing(structure))
    if arguments.draw:
        PAGE.write_text(drawn, encoding="utf-8")
    elif drawn != text:
        print(f"  the drawing in {PAGE.relative_to(ROOT)} is of other code; --draw makes it again")
        return 1
    return int(bool(structure.circles or structure.upward or structure.mutual))


if __name__ == "__main__":
    sys.exit(main())
