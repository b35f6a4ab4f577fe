"""`userrl tasks import --from CLONE`: one folder of published data, Python sources parsed and never run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from tests.makers import raises
from tests.published import published
from userrl_core.gyms import load_published, make
from userrl_core.gyms.clones import import_clone

TASKS = """from tau_bench.types import Action, Task

TASKS_{part} = [
    Task(
        annotator="0",
        user_id="ana_1",
        instruction="You are Ana. "
        "Cancel your order.",
        actions=[Action(name="cancel_pending_order", kwargs={{"order_id": "#W1", "reason": {reason}}})],
        outputs=["42"],
    ),
]
"""
TOOL = """class {name}(Tool):
    @staticmethod
    def invoke(data):
        raise SystemExit

    @staticmethod
    def get_info():
        return {{"type": "function", "function": {{"name": "{tool}", "parameters": {{"required": []}}}}}}
"""


def clone(root: Path, reason: str = '"no longer needed"') -> Path:
    """A made clone of tau-bench, with two tools and a task a file."""
    for domain, parts in {"retail": ("train", "dev", "test"), "airline": ("test",)}.items():
        folder = root / "tau_bench" / "envs" / domain
        (folder / "data").mkdir(parents=True)
        (folder / "tools").mkdir()
        (folder / "wiki.md").write_text(f"# The {domain} policy as released\n")
        (folder / "data" / "users.json").write_text('{"ana_1": {}}')
        (folder / "tools" / "__init__.py").write_text("from .b import B\nfrom .a import A\nALL_TOOLS = [B, A]\n")
        for name in "AB":
            (folder / "tools" / f"{name.lower()}.py").write_text(TOOL.format(name=name, tool=f"tool_{name.lower()}"))
        for part in parts:
            (folder / f"tasks_{part}.py").write_text(TASKS.format(part=part.upper(), reason=reason))
    return root


def test_tasks_and_tools_are_read_from_python_literals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("USERRL_PUBLISHED_DATA", raising=False)
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    done = CliRunner().invoke(app, ["tasks", "import", "--from", str(clone(tmp_path / "clone")), "--json"])
    folder = tmp_path / "home" / "data"
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"folder": str(folder), "parts": ["tau-bench"]})
    retail = folder / "tau-bench" / "retail"
    assert json.loads((retail / "tasks_dev.json").read_text()) == [
        {
            "task_id": 0,
            "user_id": "ana_1",
            "instruction": "You are Ana. Cancel your order.",
            "actions": [{"name": "cancel_pending_order", "kwargs": {"order_id": "#W1", "reason": "no longer needed"}}],
            "outputs": ["42"],
        }
    ]
    assert [tool["function"]["name"] for tool in json.loads((retail / "tools.json").read_text())] == [
        "tool_b",
        "tool_a",
    ]
    assert (retail / "wiki.md").read_text() == "# The retail policy as released\n"
    assert sorted(path.name for path in (folder / "tau-bench" / "airline").iterdir()) == [
        "tasks_test.json",
        "tools.json",
        "users.json",
        "wiki.md",
    ]


def test_what_is_no_literal_is_refused_with_file_and_line_and_never_run(tmp_path: Path) -> None:
    evil = clone(tmp_path / "clone", reason=f"open({str(tmp_path / 'ran')!r}, 'w')")
    with raises("task.file_unreadable", "tasks_dev.py", "line 9"):
        import_clone(evil, tmp_path / "data")
    assert not (tmp_path / "ran").exists()


def test_a_folder_that_is_no_clone_is_refused(tmp_path: Path) -> None:
    with raises("task.file_missing"):
        import_clone(tmp_path, tmp_path / "data")


def test_a_copy_of_userrl_becomes_its_part(tmp_path: Path) -> None:
    released = published("userrl")
    assert import_clone(released, tmp_path) == "userrl"
    assert len(load_published("turtle", tmp_path / "userrl")) == 471
    assert len(load_published("function", tmp_path / "userrl")) == 538


def test_the_policy_is_the_released_one_where_it_lies_beside_the_tools_and_ours_elsewhere(tmp_path: Path) -> None:
    for source in (published("tau-bench") / "retail").iterdir():
        (tmp_path / "tau-bench" / "retail").mkdir(parents=True, exist_ok=True)
        (tmp_path / "tau-bench" / "retail" / source.name).symlink_to(source)
    (tmp_path / "tau-bench" / "airline").symlink_to(published("tau-bench") / "airline")
    (tmp_path / "tau-bench" / "retail" / "wiki.md").write_text("# A policy made for this test\n")
    openings = {}
    for task in load_published("tau", tmp_path / "tau-bench"):
        if task.tier not in openings:
            openings[task.tier] = make("tau", task).reset(seed=0)
    assert openings["retail"].startswith("# Policy\n# A policy made for this test\n")
    assert "made for this test" not in openings["airline"]
    assert openings["airline"].startswith("# Policy\n")


def test_a_clone_of_agentgym_becomes_its_part_with_the_recipes_of_textcraft(tmp_path: Path) -> None:
    recipes = tmp_path / "clone" / "agentenv-textcraft" / "agentenv_textcraft" / "recipes"
    recipes.mkdir(parents=True)
    stick = {"type": "minecraft:crafting_shaped", "pattern": ["#", "#"], "key": {"#": {"item": "minecraft:bamboo"}}}
    (recipes / "stick.json").write_text(json.dumps(stick | {"result": {"item": "minecraft:stick"}}))
    assert import_clone(tmp_path / "clone", tmp_path / "data") == "agentgym"
    with pytest.warns(UserWarning, match="make 1 goals, not AgentGym.s 544"):
        (task,) = load_published("textcraft", tmp_path / "data" / "agentgym")
    assert (task.id, task.payload["recipes"]) == ("textcraft_0", ["craft 1 stick using 2 bamboo"])


def test_a_clone_that_breaks_off_or_has_no_data_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty" / "gyms" / "TurtleGym").mkdir(parents=True)
    with raises("task.file_missing", "has no data of userrl"):
        import_clone(tmp_path / "empty", tmp_path / "data")
    with raises("task.file_unreadable"):
        import_clone(clone(tmp_path / "broken", reason="reasons()"), tmp_path / "data")
    assert not list((tmp_path / "data").rglob("*"))
