"""The static copy of a run's page: its contents, its omissions, and texts that stay texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.makers import raises
from tests.warehouse.kills import kill_at
from tests.warehouse.makers import make_task, make_turn, play
from userrl.reports.run_report import RunReport
from userrl_core.records import RolloutContext, Trajectory
from userrl_sharing import bundle
from userrl_sharing.bundle import (
    Bundled,
    BundleFiles,
    Shared,
    check_target,
    write_bundle,
    write_files,
)
from warehouse import TurnLog, Warehouse, open_warehouse

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)> \u202eback"
REPORT = RunReport(
    run="r1", recipe="naive-sum", profile="laptop", seed=1, alarms=(HOSTILE,), warehouse="/secret/w", folder="/secret/f"
)


class Tags(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


LOGGED: dict[str, int | None] = {}
"""Ids of the conversations by their task."""


def other(log: TurnLog, task: str, *, source: str = "ours", user: str = "rule", policy: str = "model") -> None:
    """Log a conversation with its words in its texts: of another source, or with another side."""
    trajectory = Trajectory(
        replace(make_task(id=task), source=source),
        attempt=0,
        horizon=8,
        seed=1,
        context=RolloutContext("rl-1", 9, "baseline", policy, None),
        group=f"9/{task}",
        messages=[{"role": "user", "content": f"words of {task}"}],
        user=user,
    )
    log.begin(trajectory)
    turn = make_turn(1, 1.0, text=f"words of {task}")
    trajectory.turns.append(turn)
    log.turn(trajectory, turn)
    LOGGED[task] = trajectory.traj_id
    trajectory.admitted, trajectory.score, trajectory.stop_reason = True, 1.0, "success"
    log.end(trajectory)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    folder = tmp_path_factory.mktemp("home") / "warehouse"
    with TurnLog.open(folder, "r1", run_fields={"recipe": "naive-sum"}) as log:
        for step in range(1, 31):
            for attempt, score in enumerate((1.0, 0.0)):
                rewards, text = [0.5, score], HOSTILE if step == 30 else "hello"
                play(
                    log,
                    rewards,
                    step=step,
                    phase="baseline",
                    attempt=attempt,
                    score=score,
                    text=text,
                    credits=[1.0, 1.0],
                )
        other(log, "imported", source="published:userrl")
        other(log, "person-user", user="human")
        other(log, "person-agent", policy="human")
        for name in ("person-user", "person-agent"):
            log.event("person", traj_id=LOGGED[name], person=name, consent=True)
        other(log, "no-consent", user="human")
        log.flush()
        with open_warehouse(folder) as opened:
            yield opened


def written(warehouse: Warehouse, folder: Path, *, seed: int = 0, **shared: bool) -> Bundled:
    return write_bundle(REPORT, warehouse, folder, seed=seed, shared=Shared(**shared))


def texts(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.html")}


def test_a_bundle_has_the_report_the_widest_groups_and_fifty_conversations_whose_links_lead_to_files(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    result = written(warehouse, tmp_path / "out")
    pages = texts(tmp_path / "out")
    index = pages["index.html"]
    assert (result.groups, result.left_out) == (1, 0)
    assert result.conversations in (50, 51, 52)
    assert result.size == sum(path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert "50 conversations drawn by seed 0" in index
    assert "Drawn from 60 conversations. 4 conversations of people or imported tasks are not shared." in index
    assert "/secret" not in "".join(pages.values())
    for name, text in pages.items():
        links = [attributes["href"] for tag, attributes in Tags(text).tags if tag == "a"]
        assert links, name
        for link in links:
            assert ((tmp_path / "out" / name).parent / str(link)).is_file(), (name, link)
    [conversation] = [
        text for name, text in pages.items() if "step 30" in text and "attempt 1" in text and "/" in name
    ][:1]
    assert "Shaped credit +1.000 in every turn." in conversation


def test_every_text_of_a_bundle_is_escaped_and_no_page_loads_anything(warehouse: Warehouse, tmp_path: Path) -> None:
    written(warehouse, tmp_path / "out")
    pages = texts(tmp_path / "out")
    assert "&lt;script&gt;document.title=" in pages["index.html"]
    assert sum("&lt;img src=x" in text and "\\u202eback" in text for text in pages.values()) >= 3
    for name, text in pages.items():
        assert "default-src 'none'; style-src 'unsafe-inline'" in text
        assert "\u202e" not in text
        for tag, attributes in Tags(text).tags:
            assert tag not in ("script", "img", "iframe", "object", "link", "base", "form"), name
            assert not [key for key in attributes if key.startswith("on")], name
            assert not re.match(r"(?!#)\w+:", attributes.get("src") or attributes.get("href") or ""), name


def test_people_and_imported_texts_are_in_a_bundle_only_when_asked_for(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "DRAWN", 100)

    def found(**shared: bool) -> set[str]:
        written(warehouse, tmp_path / "out", **shared)
        return set(re.findall(r"words of ([\w-]+)", "".join(texts(tmp_path / "out").values())))

    assert found() == set()
    assert found(imported=True) == {"imported"}
    assert found(people=True) == {"person-user", "person-agent"}


def test_the_same_seed_draws_the_same_conversations_and_a_second_bundle_replaces_the_first(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    written(warehouse, tmp_path / "a")
    written(warehouse, tmp_path / "b", seed=1)
    assert texts(tmp_path / "a") != texts(tmp_path / "b")
    written(warehouse, tmp_path / "b")
    assert texts(tmp_path / "a") == texts(tmp_path / "b")


def test_a_folder_with_other_files_is_refused_and_kept(warehouse: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("mine")
    with raises("export.bad_target", "mine"):
        written(warehouse, tmp_path / "mine")
    assert [path.read_text() for path in (tmp_path / "mine").iterdir()] == ["mine"]
    (tmp_path / "mine" / "bundle.json").write_text(
        '{"files": ["../kept.html", "groups/../../kept.html", "index.html"]}'
    )
    (tmp_path / "kept.html").write_text("kept")
    written(warehouse, tmp_path / "mine")
    assert (tmp_path / "kept.html").read_text() == "kept"


WRITE = """
from pathlib import Path
from userrl_sharing.bundle import BundleFiles, write_files
write_files(BundleFiles({pages}), Path(argument))
"""


def test_the_folder_of_a_killed_bundle_takes_the_next_one(tmp_path: Path) -> None:
    pages = {"groups/1.html": "g", "conversations/2.html": "c", "index.html": "new"}
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / ".bundle.json.1.2.tmp").write_text("{")  # killed even earlier
    check_target(folder)
    kill_at("os.rename", "index.html", folder, code=WRITE.format(pages=pages))
    assert (folder / "groups" / "1.html").exists()
    check_target(folder)
    assert write_files(BundleFiles({"index.html": "next"}), folder) > 0
    kept = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert kept == ["bundle.json", "index.html"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text("mine")
    with raises("export.bad_target", "holds other files"):
        check_target(tmp_path / "other")


def test_a_bundle_stays_below_its_size_and_says_what_was_left_out(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MAX_BYTES", bundle.INDEX_BYTES + 60_000)
    result = written(warehouse, tmp_path / "out")
    assert result.left_out > 0
    assert f"{result.left_out} conversations were left out" in texts(tmp_path / "out")["index.html"]
    assert result.size <= bundle.MAX_BYTES
    assert result.conversations < 50
