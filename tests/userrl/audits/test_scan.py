"""Labels: by a pattern with a time limit, by a function, by a judge; compared with a person's; and a filter of the page."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from analysis.measure.labels import LabelPair, label_agreement
from tests.makers import raises
from tests.mock_server import Answer, MockServer
from tests.warehouse.makers import play
from userrl.audits import scan as scanning
from userrl.audits.check_labels import check_labels
from userrl.audits.labels import Label, store_labels
from userrl.audits.scan import scan
from userrl_core.served.client import ChatServer
from warehouse import TurnLog, open_warehouse
from warehouse.query import browse
from warehouse.query.browse import Filter


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of four conversations with two turns each; two of them apologise."""
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    with TurnLog.open(tmp_path / "warehouse", "r", run_fields={"name": "r", "recipe": "r"}) as log:
        for n, text in enumerate(("sorry", "sorry", "hello", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!")):
            play(log, [0.0, 1.0], task=f"t{n}", phase="evaluate", stage="evaluate", text=text)
    return tmp_path / "warehouse"


def labels(root: Path, name: str) -> list[tuple[object, ...]]:
    with open_warehouse(root) as warehouse:
        text = """SELECT task_id, l.turn, l.value, l.source FROM labels l JOIN trajectories USING (traj_id)
                  WHERE l.name = $name ORDER BY ALL"""
        return warehouse.sql(text, name=name).fetchall()


def test_a_pattern_labels_conversations_and_turns(home: Path) -> None:
    done = scan("r", name="apology", with_="pattern", pattern="(?i)SORRY")
    assert done.values == {"yes": 2, "no": 2}
    assert labels(home, "apology") == [(f"t{n}", 0, "yes" if n < 2 else "no", "pattern") for n in range(4)]
    assert scan("r", name="second", with_="pattern", pattern="sorry 2", on="turn").values == {"yes": 2, "no": 6}
    with open_warehouse(home) as warehouse:
        listed = browse.trajectories(warehouse, Filter.read({"label": "apology=yes"})).rows
        assert len(listed) == 2
        assert browse.count(warehouse, Filter(label="second=no", run="r"))["trajectories"] == 4
        assert warehouse.rows("SELECT max(incarnation) AS n FROM labels_all") == [{"n": 1}]


def test_a_repeated_scan_replaces_the_labels_in_the_view_alone(home: Path) -> None:
    for _ in range(2):
        scan("r", name="apology", with_="pattern", pattern="sorry")
    assert len(labels(home, "apology")) == 4
    with open_warehouse(home) as warehouse:
        assert warehouse.rows("SELECT count(*) AS n FROM labels_all") == [{"n": 8}]


def test_a_catastrophic_pattern_ends_undecided_or_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "SECONDS", 0.05)
    slow = r"^(\w|\w\w|a+)+$"
    done = scan("r", name="slow", with_="pattern", pattern=slow)
    assert list(done.undecided) == ["the search took more than 0.05 s"]
    monkeypatch.setattr(scanning, "MAX_LATE", 1)
    with raises("argument.malformed", "nested repetitions"):
        scan("r", name="slow", with_="pattern", pattern=slow)


def test_a_function_labels_and_its_mistake_leaves_a_conversation_undecided(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Point:
        name = "long"

        def load(self):  # type: ignore[no-untyped-def]
            def label(conversation):  # type: ignore[no-untyped-def]
                if conversation.task_id == "t3":
                    raise KeyError("x")
                return len(conversation.turns) > 1

            return label

    monkeypatch.setattr(scanning, "entry_points", lambda group: [Point()])
    done = scan("r", name="long", with_="function", function="long")
    (reason,) = done.undecided
    assert (done.values, done.undecided) == ({"yes": 3}, {reason: 1})
    assert reason.startswith("KeyError: 'x' at test_scan.py:")
    with raises("argument.unknown_value", "did you mean 'long'?"):
        scan("r", name="long", with_="function", function="lang")


def test_a_judge_labels_and_its_cost_is_kept(home: Path) -> None:
    def judge(body):  # type: ignore[no-untyped-def]
        return Answer(text='{"reason": "It says so.", "label": "yes"}')

    with MockServer(judge) as server:
        url = ChatServer(model="gpt-4o", base_url=server.base_url, retries=0)
        done = scan("r", name="polite", with_="judge", rubric="The agent is polite.", model=url)
    assert done.values == {"yes": 4}
    assert done.dollars is not None
    assert done.dollars > 0


JUDGING = """
import sys
from userrl.audits.scan import scan
from userrl_core.served.client import ChatServer

server = ChatServer(model="gpt-4o", base_url=sys.argv[1], retries=0, concurrency=1)
scan("r", name="polite", with_="judge", rubric="The agent is polite.", model=server)
"""


@pytest.mark.slow
def test_a_killed_judge_keeps_its_labels_and_asks_only_for_the_missing_ones(home: Path) -> None:
    asked, released = threading.Event(), threading.Event()

    def judge(body):  # type: ignore[no-untyped-def]
        if len(server.requests) == 3:
            asked.set()
            released.wait(60)
        return Answer(text='{"reason": "It says so.", "label": "yes"}')

    with MockServer(judge) as server:
        killed = subprocess.Popen([sys.executable, "-c", JUDGING, server.base_url])
        assert asked.wait(60)
        killed.kill()
        killed.wait()
        released.set()
        stored = len(labels(home, "polite"))
        assert stored in (1, 2)  # the second label may not have been written when the third request arrived
        server.requests.clear()
        lines = []
        done = scan(
            "r",
            name="polite",
            with_="judge",
            rubric="The agent is polite.",
            model=ChatServer(model="gpt-4o", base_url=server.base_url, retries=0),
            progress=lambda what, line: lines.append((what, line["step"], line["total"])),
        )
        assert len(server.requests) == 4 - stored
        assert (done.values, done.kept) == ({"yes": 4}, stored)
        assert lines == [("judge", step, 4) for step in range(stored + 1, 5)]
        scan("r", name="polite", with_="judge", rubric="Another one.", model=ChatServer(base_url=server.base_url))
        assert len(server.requests) == 8 - stored
    with open_warehouse(home) as warehouse:
        ours = "labeller = 'gpt-4o: The agent is polite.'"
        assert warehouse.rows(f"SELECT count(*) AS n FROM labels_all WHERE {ours}") == [{"n": 4}]


def test_labels_are_compared_with_a_persons(home: Path) -> None:
    scan("r", name="apology", with_="pattern", pattern="sorry")
    with raises("labels.nothing_to_compare"):
        check_labels("r", "apology")
    with open_warehouse(home) as warehouse:
        ids = [row["traj_id"] for row in warehouse.rows("SELECT traj_id FROM trajectories ORDER BY task_id")]
    for traj_id, value in zip(ids, ("yes", "no", "no", "no"), strict=True):
        store_labels("r", "apology", [Label(traj_id, 0, value)], source="person", labeller="Ada")
    (agreed,) = check_labels("r", "apology").by_labeller.values()
    # Person: yes no no no. Pattern: yes yes no no. Kappa: (.75 - (.5 x .25 + .5 x .75)) / (1 - .5) = .5
    assert (agreed.agreement.estimate, agreed.sensitivity.estimate) == (0.75, 1.0)
    assert agreed.specificity.estimate == pytest.approx(2 / 3)
    assert agreed.kappa.estimate == pytest.approx(0.5)


def test_agreement_of_all_labels_is_not_a_certainty() -> None:
    pairs = [LabelPair(f"t{n}", "yes" if n % 2 else "no", "yes" if n % 2 else "no") for n in range(20)]
    agreed = label_agreement(pairs, "yes")
    assert (agreed.agreement.estimate, agreed.kappa.estimate) == (1.0, 1.0)
    assert agreed.agreement.low == pytest.approx(0.025 ** (1 / 20))  # Clopper and Pearson, 20 of 20
