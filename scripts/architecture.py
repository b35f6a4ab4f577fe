"""Measure the structure of the code from its own imports: circles, upward arrows, folders that import each other, sizes.

    python scripts/architecture.py               print the measurements; exit status 1 if a rule is broken
                                                 or the drawing in docs/architecture.md is out of date
    python scripts/architecture.py --draw        also draw the rooms and count the lines in docs/architecture.md again
    python scripts/architecture.py --full        print the graph of all folders as a Mermaid diagram

A module named in a string (to start it as a process, or to import it later) counts as an arrow.

Lines of code are lines that hold a token: no blank lines, no comments, no docstrings.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import grimp
import networkx

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("userrl_core", "curricula", "warehouse", "sweeps", "userrl", "flows")
"""Rooms from the ground up. A room imports those before it (warehouse and curricula do not import each other)."""
PACKAGES = "packages"
"""The folder of the gyms that are separate packages."""
MAX_FILES = 20
MAX_ENTRIES = {"flows": 14, "userrl": 14, "warehouse": 10}
"""Maximum number of entries at the top of a room. The marker of a typed package (py.typed) counts."""
PAGE = ROOT / "docs" / "architecture.md"
DRAWING, LINES = (
    "<!-- drawn by scripts/architecture.py: begin -->",
    "<!-- counted by scripts/architecture.py: begin -->",
)
END = "<!-- end -->"
BEFORE = "f197b02"
"""The commit to compare line counts with: the last one before the room `userrl/` existed."""
QUIET = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass(frozen=True, slots=True)
class Structure:
    """The import structure. arrows: number of imports from one folder to another."""

    circles: list[list[str]]
    upward: list[str]
    mutual: list[tuple[str, str]]
    arrows: Mapping[tuple[str, str], int]
    files: Counter[str]
    crowded: list[str]


def measure() -> Structure:
    """Read every import of the rooms, including imports inside functions and modules named in strings."""
    gyms = [folder.name for folder in gym_packages()]
    sys.path += [str(folder.parent) for folder in gym_packages()]
    graph = grimp.build_graph(*ROOMS, *gyms, cache_dir=None)
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
    files = Counter(str(path.parent.relative_to(ROOT)) for path in sources())
    crowded = [f"{folder}/ has {n} Python files" for folder, n in sorted(files.items()) if n > MAX_FILES]
    for room, most in MAX_ENTRIES.items():
        entries = [path.name for path in (ROOT / room).iterdir() if path.name != "__pycache__"]
        if len(entries) > most:
            crowded.append(f"{room}/ has {len(entries)} entries at its top")
    return Structure(sorted(circles), upward, mutual, arrows, files, crowded)


def gym_packages() -> list[Path]:
    """Return the Python packages of the gyms that are separate packages."""
    return sorted(file.parent for file in ROOT.glob(f"{PACKAGES}/*/userrl_gym_*/__init__.py"))


def sources() -> list[Path]:
    """Return every Python file of the rooms and of the gyms' packages."""
    return [
        path for folder in (*(ROOT / room for room in ROOMS), *gym_packages()) for path in sorted(folder.rglob("*.py"))
    ]


def _floor(module: str) -> int:
    """Return the position of a module's room, from the ground up. No room imports a gym's package."""
    room = module.split(".")[0]
    return ROOMS.index(room) if room in ROOMS else len(ROOMS)


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


def code_lines(text: str) -> int:
    """Count the lines that hold a token of code."""
    return len(code_line_numbers(text))


def code_line_numbers(text: str) -> set[int]:
    """Return the lines that hold a token of code, counted from 1."""
    docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in QUIET:
            held.update(range(token.start[0], token.end[0] + 1))
    return held - docstrings


def by_folder(texts: Iterable[tuple[str, str]]) -> Counter[str]:
    """Return lines of code per room and per folder of a room, with subfolders. texts: path and content of every Python file."""
    lines: Counter[str] = Counter()
    for path, text in texts:
        room, *folders = path.split("/")[:-1]
        for name in (room, f"{room}/{folders[0] if folders else ''}", "all"):
            lines[name] += code_lines(text)
    return lines


def today() -> Counter[str]:
    """Return lines of code of the working tree."""
    return by_folder((str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in sources())


def at(revision: str) -> Counter[str]:
    """Return lines of code of a commit."""
    listed = subprocess.run(
        ["git", "ls-tree", "--name-only", revision], cwd=ROOT, capture_output=True, text=True, check=True
    )
    rooms = [room for room in ROOMS if room in listed.stdout.splitlines()]
    packed = subprocess.run(["git", "archive", revision, *rooms], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        files = [(member.name, archive.extractfile(member)) for member in archive if member.name.endswith(".py")]
        return by_folder((name, file.read().decode("utf-8")) for name, file in files if file is not None)


def drawing(structure: Structure) -> str:
    """Draw the rooms as a Mermaid diagram, with an arrow for each import between rooms."""
    between = {(a.split("/")[0], b.split("/")[0]) for a, b in structure.arrows}
    boxes = [f'  {room}["{room}/"]' for room in (*ROOMS, PACKAGES)]
    return "\n".join(
        ["```mermaid", "flowchart BT", *boxes, *(f"  {a} --> {b}" for a, b in sorted(between) if a != b), "```"]
    )


def full_drawing(structure: Structure) -> str:
    """Draw all folders as a Mermaid diagram: a box per folder, a frame per room. Gyms are one box."""
    ids = {folder: folder.replace("/", "_").replace("-", "_") for folder in structure.files}
    lines = ["flowchart BT"]
    for room in (*ROOMS, PACKAGES):
        lines.append(f'  subgraph {room}_room["{room}/"]')
        for folder in sorted(structure.files):
            if folder.split("/")[0] == room and not folder.startswith("userrl_core/gyms/"):
                label = folder.removeprefix(f"{room}/") if folder != room else "top"
                lines.append(f'    {ids[folder]}["{label}"]')
        lines.append("  end")
    shown = {(_drawn(a), _drawn(b)) for a, b in structure.arrows}
    return "\n".join([*lines, *(f"  {ids[a]} --> {ids[b]}" for a, b in sorted(shown) if a != b)])


def table(lines: Counter[str], before: Counter[str]) -> str:
    """Return lines of code by folder as a table of the page, with rooms in bold."""
    rows = [f"| folder | now | at {BEFORE} |", "| --- | ---: | ---: |"]
    for folder in (*sorted({*lines, *before} - {"all"}), "all"):
        room, inside, part = folder.partition("/")
        if not inside or any(name.startswith(f"{room}/") and name != f"{room}/" for name in (*lines, *before)):
            label = f"`{room}/{part or '(top)'}`" if inside else f"**{room}**"
            rows.append(f"| {label} | {lines[folder]:,} | {before[folder]:,} |")
    return "\n".join(rows)


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
    parser.add_argument("--draw", action="store_true", help="make drawing and lines in docs/architecture.md again")
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
        *structure.crowded,
    ):
        print(f"  {line}")
    text = PAGE.read_text(encoding="utf-8")
    drawn = replaced(text, DRAWING, drawing(structure))
    if arguments.draw:
        PAGE.write_text(replaced(drawn, LINES, table(today(), at(BEFORE))), encoding="utf-8")
    elif drawn != text:
        print(f"  the drawing in {PAGE.relative_to(ROOT)} is of other code; --draw makes it again")
        return 1
    return int(bool(structure.circles or structure.upward or structure.mutual or structure.crowded))


if __name__ == "__main__":
    sys.exit(main())
