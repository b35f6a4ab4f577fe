"""What the documents say is there: links, pictures, headings, commands with their options, deployments, files, SQL."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

import userrl
from curricula import load
from flows.cli.main import COMMANDS, app, first_sentence
from tests.places import ROOT
from tests.warehouse.makers import play
from userrl.run.request import TrainRequest
from userrl_core.served.client import ChatServer
from warehouse import TurnLog, open_warehouse

FOLDERS = ("docs", "data", "examples")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))])
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
OURS = ("userrl", "make", "python", "pytest", "prefect")
OURS_TO_IMPORT = ("flows", "lab", "scripts", "tests", "userrl", "warehouse")
named = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


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
    for line in re.findall(
        r"`(?:[A-Z_]+=\S+ )*((?:userrl|make|python|prefect) [^`\n]+)`", FENCE.sub("", document.read_text())
    ):
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
    for words in mentioned(document):
        if words[0] == "userrl":
            command, rest = command_of(words)
            options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
            own = rest[: rest.index("--")] if "--" in rest else rest  # what follows is another program's
            assert {word for word in own if word.startswith("--")} <= options | {"--help"}, " ".join(words)
        else:
            check(words)
    for words in commands(document):
        if words[0] == "userrl":
            command, rest = command_of(words)
            given = ["1" if word in ("TRAJ", "A", "B") else word for word in rest]
            if given and given != ["..."] and not hasattr(command, "list_commands"):
                command.make_context(
                    words[1], given
                )  # as typed, and nothing is called; raises what a reader would be told
        else:
            check(words)


def test_every_script_on_a_page_starts_from_a_fresh_clone() -> None:
    words = [words for page in DOCUMENTS for words in (*commands(page), *mentioned(page)) if words[0] == "python"]
    scripts = {words[1] for words in words if words[1].endswith(".py")}
    modules = {words[2] for words in words if words[1] == "-m" and words[2].split(".")[0] in OURS_TO_IMPORT}
    assert len(scripts) > 5
    assert len(modules) > 20
    starter = ROOT / "tests" / "flows" / "starting_scripts.py"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, str(starter), str(ROOT), *sorted(scripts), *sorted(modules)]
    assert subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT).stdout == ""


def test_every_command_is_on_the_page_of_commands() -> None:
    text = (ROOT / "docs" / "reference" / "commands.md").read_text()
    assert [name for name in COMMANDS if f"userrl {name}" not in text and f"`{name}`" not in text] == []


def test_the_page_about_security_names_every_server_and_what_the_browser_writes() -> None:
    text = (ROOT / "docs" / "reference" / "security.md").read_text()
    ports = text[text.index("## Open ports") : text.index("## Rights")]
    table, door = ports.split("**The front door**")[0], ports.split("**The front door**")[1].split("\n\n")[0]
    servers = [name for name in COMMANDS if name.startswith("serve-")]
    assert len(servers) == 4
    assert [name for name in (*servers, "view") if f"| `userrl {name}` |" not in table or f"`{name}`" not in door] == []
    assert "`labels`" in text[text.index("## The page") : text.index("## Tests")]


def test_the_help_text_says_of_each_command_what_the_command_says() -> None:
    group: Any = get_command(app)
    said = {name: first_sentence(group.get_command(None, name).help) for name in COMMANDS}
    assert said == {name: line for name, (_, line) in COMMANDS.items()}


def test_every_option_of_a_served_user_is_explained() -> None:
    text = (ROOT / "docs" / "users.md").read_text()
    rows = text[text.index("| option | default") :].partition("\n\n")[0].splitlines()[2:]
    explained = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert explained == set(ChatServer.model_fields)


def check(words: list[str]) -> None:
    """A command that is not ours to parse: its target, deployment, file or module is there, and so are its parameters."""
    said = " ".join(words)
    if words[0] == "make" and len(words) > 1:
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert words[1] in targets, said
        named = {word.split("=")[0] for word in words[2:] if "=" in word}
        assert named <= TrainRequest.model_fields.keys() | {"ARGS"}, said
    elif words[:3] == ["prefect", "deployment", "run"] and len(words) > 3:
        deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
        flows = {f"{d['entrypoint'].split(':')[1]}/{d['name']}" for d in deployments}
        assert words[3].replace("<name>", "equalized-r2g") in flows or words[3].isupper(), said
        if words[3].startswith("train/"):
            given = {words[i + 1].split("=")[0] for i, word in enumerate(words[:-1]) if word == "-p"}
            assert given <= TrainRequest.model_fields.keys(), said
    elif words[0] in ("python", "pytest"):
        files = [ROOT / word for word in words[1:2] if word.endswith(".py")]
        if words[1:2] == ["-m"] and words[2].split(".")[0] in OURS_TO_IMPORT:
            found = importlib.util.find_spec(words[2])
            files = [Path(found.origin or "") if found else ROOT / "missing"]
        for path in files:
            assert path.is_file(), said
            options = {word.split("=")[0] for word in words[2:] if word.startswith("--")}
            assert options <= {*re.findall(r"--[a-z-]+", path.read_text())}, said


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


def test_every_picture_is_shown_on_a_page() -> None:
    shown = {
        (document.parent / target).resolve()
        for document in DOCUMENTS
        for target in re.findall(r"!\[[^]]*\]\(([^)\s]+)\)", document.read_text())
    }
    assert shown == {file for kind in ("*.png", "*.svg") for folder in FOLDERS for file in (ROOT / folder).rglob(kind)}


def test_every_call_of_the_library_on_a_page_has_arguments_that_it_takes() -> None:
    blocks = [
        block for page in DOCUMENTS for block in re.findall(r"^```python.*?\n(.*?)^```", page.read_text(), re.M | re.S)
    ]
    calls = [
        (node.func.attr, {keyword.arg for keyword in node.keywords})
        for block in blocks
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) == "userrl"
    ]
    assert len(calls) > 6
    for name, keywords in calls:
        parameters = inspect.signature(getattr(userrl, name)).parameters
        assert name == "sql" or keywords <= set(parameters), name


def test_every_recipe_on_a_page_loads(tmp_path: Path) -> None:
    blocks = [
        block for page in DOCUMENTS for block in re.findall(r"^```yaml.*?\n(.*?)^```", page.read_text(), re.M | re.S)
    ]
    recipes = [block for block in blocks if re.search(r"^extends:", block, re.MULTILINE)]
    assert len(recipes) == 4
    for number, recipe in enumerate(recipes):
        path = tmp_path / f"recipe-{number}.yaml"
        path.write_text(recipe)
        load(path, profile="laptop")


def test_every_table_of_results_says_its_command_and_commit() -> None:
    page = (ROOT / "data" / "results" / "README.md").read_text()
    tables = re.findall(r"(\S.*)\n\n<!-- table (\S+) -->", page)
    assert len(tables) == page.count("<!-- table") == 6
    for line, name in tables:
        head = (ROOT / name).read_text().partition("\n")[0].split(",")
        assert "Command: " in line or "command" in head, name
        assert "Commit: " in line or "commit" in head, name
