"""What the documents say is there: links, pictures, headings, commands with their options, deployments, files, SQL."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from flows.cli.main import app
from tests.warehouse.makers import play
from warehouse import TurnLog, open_warehouse

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
OURS = ("userrl", "make", "python", "pytest", "prefect")
named = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


def headings(document: Path) -> set[str]:
    """What a link may name after its #."""
    text = FENCE.sub("", document.read_text())
    lines = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def commands(document: Path) -> Iterator[list[str]]:
    """Every command that a reader may type, as its words: the lines of indented blocks. A quotation may go over several lines."""
    text = re.sub(r"\\\n\s*", "", FENCE.sub("", document.read_text()))
    lines = iter(re.findall(r"^    (.+)$", text, re.MULTILINE))
    for line in lines:
        line = re.sub(r"^(\.venv/bin/|[A-Z_]+=\S+ )*", "", line.split(" && ")[-1].strip())
        if line.split(" ")[0] in OURS:
            while line.count('"') % 2 and (more := next(lines, None)):
                line += f" {more}"
            yield words_of(line)


def words_of(line: str) -> list[str]:
    """Up to a comment, a pipe, a redirection, or what stands in a column of its own."""
    lexer = shlex.shlex(re.split(r"\s{2,}(?![^\"]*\"$)", line)[0], posix=True, punctuation_chars=";|>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words = list(lexer)
    return words[: next((i for i, word in enumerate(words) if word in (";", "|", ">")), len(words))]


def mentioned(document: Path) -> Iterator[list[str]]:
    """Commands that are named in the text, between backticks."""
    for line in re.findall(r"`(userrl [^`\n]+)`", FENCE.sub("", document.read_text())):
        if "..." not in line:
            yield words_of(line)


@named
def test_every_link_and_picture_leads_somewhere(document: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", document.read_text()))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, heading = target.partition("#")
        there = (document.parent / path).resolve() if path else document
        assert there.exists(), f"{document.name}: {target}"
        assert not heading or heading in headings(there), f"{document.name}: {target}"


@named
def test_every_command_is_understood(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    deployments = {
        f"{d['entrypoint'].split(':')[1]}/{d['name']}"
        for d in yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    }
    for words in mentioned(document):
        command, rest = command_of(words)
        options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in rest if word.startswith("--")} <= options | {"--help"}, " ".join(words)
    for words in commands(document):
        said = " ".join(words)
        if words[0] == "userrl":
            command, rest = command_of(words)
            given = ["1" if word in ("TRAJ", "A", "B") else word for word in rest]
            if given and given != ["..."] and not hasattr(command, "list_commands"):
                command.make_context(
                    words[1], given
                )  # as typed, and nothing is called; raises what a reader would be told
        elif words[0] == "make":
            assert len(words) == 1 or words[1] in targets, said
        elif words[:3] == ["prefect", "deployment", "run"] and len(words) > 3:
            assert words[3].replace("<name>", "equalized-r2g") in deployments or words[3].isupper(), said
        elif words[0] in ("python", "pytest"):
            for word in words[1:]:
                if word.endswith(".py") and "/" in word:
                    assert (ROOT / word).is_file(), said
            if words[1:2] == ["-m"] and words[2].split(".")[0] in (
                "benchmarks",
                "flows",
                "scripts",
                "tests",
                "warehouse",
            ):
                assert importlib.util.find_spec(words[2]) is not None, said


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that these words call, and what it is given."""
    command, rest = get_command(app), words[1:]
    while hasattr(command, "list_commands") and rest and not rest[0].startswith("-"):
        found = command.get_command(None, rest[0])
        assert found is not None, " ".join(words)
        command, rest = found, rest[1:]
    return command, rest


def test_every_question_to_the_warehouse_is_understood(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [0.0, 1.0])
    asked = {
        words[2]
        for document in DOCUMENTS
        for words in commands(document)
        if words[:2] == ["userrl", "sql"] and len(words) > 2
    }
    questions = sorted(text for text in asked if re.match(r"(from|select|with)\b", text, re.IGNORECASE))
    assert len(questions) > 8
    with open_warehouse(tmp_path) as warehouse:
        for text in questions:
            warehouse.sql(f"EXPLAIN {text.replace('latest', 'r1')}")
