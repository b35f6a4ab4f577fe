"""Two packages of the same name: who does not use the name is not concerned, and who does is told both packages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from typer.testing import CliRunner

from curricula import load
from flows.cli import main as cli
from flows.cli.tasks import _counts
from tests.makers import raises
from tests.offered import in_this_process, offer
from tests.places import ROOT
from userrl_core import gyms
from userrl_core.gyms.registry import clashes, gym_class, unavailable
from userrl_core.installed.package_files import package_roots
from userrl_core.installed.same_name import by_name, same_name
from userrl_core.rewards import turn_advantages

EXAMPLES = ROOT / "examples"
MINE = {
    "userrl_coin": "userrl_mine",
    "userrl-coin": "userrl-mine",
    "userrl_rules": "my_rules",
    "userrl-rules": "my-rules",
}


def copied(source: Path, target: Path, words: dict[str, str]) -> Path:
    """A copy of an example with other words in it and in its folders' names."""
    for file in [file for file in source.rglob("*") if file.suffix in (".py", ".toml")]:
        path, text = str(file.relative_to(source)), file.read_text()
        for old, new in words.items():
            path, text = path.replace(old, new), text.replace(old, new)
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(text)
    return target


@pytest.fixture
def two_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both examples, and a copy of each under another package's name."""
    originals = [EXAMPLES / "coin_gym", EXAMPLES / "rules"]
    copies = [copied(source, tmp_path / source.name, MINE) for source in originals]
    for project in (*originals, *copies):
        offer(tmp_path / "site", project)
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    with in_this_process(monkeypatch, tmp_path / "site", *originals, *copies):
        yield


@pytest.mark.usefixtures("two_of_each")
def test_only_a_recipe_that_names_it_is_refused_and_both_packages_are_named() -> None:
    errand = {"stages": [{"steps": 4, "horizon": 8, "mix": {"errand": 1}}], "evaluate.gyms": ["errand"]}
    assert load("equalized-r2g", "laptop", errand).credit.shaping == "equalized"
    with raises(
        "credit.bad_package",
        "credit rule 'last_turn'",
        "userrl-rules (userrl_rules.credit:last_turn)",
        "my-rules (my_rules.",
    ):
        load("equalized-r2g", "laptop", {**errand, "credit.shaping": "last_turn"})
    with raises(
        "schedule.bad_package",
        "schedule 'at_once'",
        "userrl-rules (userrl_rules.schedule:AtOnce)",
        "my-rules (my_rules.",
    ):
        load("equalized-r2g", "laptop", {**errand, "schedule": {"kind": "at_once", "short": 4, "after": 2, "long": 8}})
    with raises("gym.bad_package", "gym 'coin'", "userrl-coin (userrl_coin)", "userrl-mine (userrl_mine)"):
        load("equalized-r2g", "laptop", {**errand, "stages.0.mix": {"coin": 1}, "evaluate.gyms": ["coin"]})
    for refused in (lambda: gym_class("coin"), lambda: gyms.tasks("coin", "train")):
        with raises("gym.bad_package"):
            refused()
    with raises("credit.bad_package"):
        turn_advantages([[0, 1], [0, 0]], [0, 0], shaping="last_turn")
    assert turn_advantages([[0, 1], [0, 0]], [0, 0], shaping="naive")
    assert set(clashes()) == {"coin"}
    assert "Two packages define a gym 'coin'" in unavailable("coin")


@pytest.mark.usefixtures("two_of_each")
def test_a_list_of_gyms_says_what_is_wrong_with_one() -> None:
    said = "Two packages define a gym 'coin': userrl-coin (userrl_coin) and userrl-mine (userrl_mine)."
    assert str(_counts("coin")["problem"]).startswith(said)
    assert _counts("errand")["train"] > 0


def test_a_name_of_ours_belongs_to_nobody_else() -> None:
    point = EntryPoint("r2g", "theirs.rules:r2g", "userrl.credits")
    assert same_name("credit rule", [point]) == ""
    assert same_name("credit rule", [point, point]) == "", "one object, found twice"
    refusal = same_name("credit rule", [point], "userrl_core.rewards.shaping:r2g")
    assert refusal.startswith(
        "Two packages define a credit rule 'r2g': userrl (userrl_core.rewards.shaping:r2g) and theirs (theirs.rules:r2g). "
    )
    several = [EntryPoint("x", f"{name}:x", "g") for name in "cab"]
    assert by_name(several) == {"x": tuple(several)}
    assert same_name("scanner", several).startswith("3 packages define a scanner 'x': a (a:x), b (b:x) and c (c:x).")


@pytest.mark.parametrize(
    ("forgotten", "told"),
    [("tasks.py", "userrl_mine.tasks names the gym 'coin'"), ("gym.py", "userrl_mine.gym names the gym 'coin'")],
)
def test_a_copy_in_which_a_file_has_the_old_name_is_told_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: str, told: str
) -> None:
    words = {**MINE, '"coin"': '"mine"', "coin =": "mine ="}
    project = copied(EXAMPLES / "coin_gym", tmp_path / "copy", words)
    offer(tmp_path / "site", EXAMPLES / "coin_gym")
    offer(tmp_path / "site", project)
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    shutil.copy(EXAMPLES / "coin_gym" / "userrl_coin" / forgotten, project / "userrl_mine" / forgotten)
    with in_this_process(monkeypatch, tmp_path / "site", EXAMPLES / "coin_gym", project):
        done = CliRunner().invoke(cli.app, ["tasks", "validate", "mine"])
        assert done.exit_code == 1
        assert f"{told}, and its package registers it as 'mine'. Write 'mine' there." in done.output
        assert "solved" not in done.output


def test_a_package_s_files_are_those_of_its_own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in (
        "whole/__init__.py",
        "whole/deep/gym.py",
        "plain/gym.py",
        "shared/mine/__init__.py",
        "shared/theirs/x.py",
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    (tmp_path / "single.py").touch()
    (tmp_path / "shared" / "loose.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    roots = {
        "whole": "whole",
        "whole.deep:Gym": "whole",
        "plain": "plain",
        "shared.mine:Gym": "shared/mine",
        "shared.loose:rule": "shared",
        "single:rule": "single.py",
    }
    for value, root in roots.items():
        assert package_roots(EntryPoint("x", value, "g")) == (tmp_path / root,), value
    assert package_roots(EntryPoint("x", "nowhere.at_all:x", "g")) == ()
