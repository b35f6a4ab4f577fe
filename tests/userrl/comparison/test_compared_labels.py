"""``compare --by label``: shares of labels by side, paired over tasks, checked by hand; and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import userrl
from tests.makers import raises
from userrl.audits.labels import Label, store_labels
from userrl.audits.scan import scan
from userrl.reports.document import Document

SORRY = {"first": [[1, 0], [1, 1], [0, 0]], "second": [[1, 1], [1, 1], [0, 1]]}
"""Whether the agent says sorry, by attempt at each of three tasks."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Two imported agents with two attempts at three tasks. An attempt is solved if the agent does not say sorry."""
    tmp_path = tmp_path_factory.mktemp("labels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("USERRL_HOME", str(tmp_path / "home"))
        yield imported(tmp_path)


def imported(tmp_path: Path) -> dict[str, str]:
    ids = {}
    for name, tasks in SORRY.items():
        lines = [
            {
                "task_id": task,
                "model": name,
                "score": 1 - sorry,
                "messages": [
                    {"role": "user", "content": "Change my flight."},
                    {"role": "assistant", "content": "Sorry, no." if sorry else "Done."},
                    {"role": "user", "content": "Bye."},
                    {"role": "assistant", "content": "Goodbye."},
                ],
            }
            for task, attempts in enumerate(tasks)
            for sorry in attempts
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (run,) = userrl.import_logs(tmp_path / f"{name}.jsonl")
        ids[name] = run.run
    return ids


def test_shares_of_a_label_are_compared_by_task_as_by_hand(runs: dict[str, str]) -> None:
    for run in runs:
        scan(run, name="apology", with_="pattern", pattern="Sorry")
    compared = userrl.compare("first", "second", by="label:apology").labels
    assert compared is not None
    no, yes = compared.labels
    assert (no.value, yes.value, compared.on) == ("no", "yes", "conversation")
    # Shares by task: first .5, 1, 0; second 1, 1, .5. Means .5 and 2.5 / 3; differences .5, 0, .5.
    assert [share.interval.estimate for share in yes.shares] == pytest.approx([0.5, 2.5 / 3])
    (difference,) = yes.share_differences
    assert (difference.interval.estimate, difference.interval.units) == (pytest.approx(1 / 3), 3)
    assert yes.conversations == {runs["first"]: 3, runs["second"]: 5}
    assert [score.interval.estimate for score in yes.scores] == [0.0, 0.0]
    assert [score.interval.estimate for score in no.scores] == [1.0, 1.0]
    assert compared.labelled == {runs["first"]: (6, 6), runs["second"]: (6, 6)}
    page = Document("By label", tuple(compared.blocks())).text()
    assert "By label apology (pattern)" in page
    assert "A 6 of 6, B 6 of 6" in page
    json.dumps(compared.as_json(), allow_nan=False)


def test_a_conversation_has_the_labels_of_its_turns(runs: dict[str, str]) -> None:
    for run in runs:
        scan(run, name="by-turn", with_="pattern", pattern="Sorry", on="turn")
    compared = userrl.compare("first", "second", by="label:by-turn").labels
    assert compared is not None
    no, yes = compared.labels
    assert [share.interval.estimate for share in yes.shares] == pytest.approx([0.5, 2.5 / 3])
    assert [share.interval.estimate for share in no.shares] == [1.0, 1.0]  # "Goodbye." has no apology
    scan("first", name="mixed", with_="pattern", pattern="Sorry", on="turn")
    scan("second", name="mixed", with_="pattern", pattern="Sorry")
    with raises("labels.several_sources", "--on"):
        userrl.compare("first", "second", by="label:mixed")


def test_an_unlabelled_conversation_enters_no_share(runs: dict[str, str]) -> None:
    with userrl.warehouse() as warehouse:
        rows = warehouse.rows("SELECT traj_id, run_id, task_id FROM trajectories WHERE attempt = 0 ORDER BY task_id")
    for run in runs.values():
        own = [row["traj_id"] for row in rows if row["run_id"] == run]
        given = [Label(own[0], 0, "yes"), Label(own[1], 0, "no"), Label(own[2], 0, None, "unclear")]
        store_labels(run, "rude", given, source="person", labeller="Ada")
    compared = userrl.compare("first", "second", by="label:rude").labels
    assert compared is not None
    assert compared.labelled == {runs["first"]: (2, 6), runs["second"]: (2, 6)}
    assert [share.interval.estimate for share in compared.labels[1].shares] == [0.5, 0.5]


def test_what_is_not_one_label_set_is_refused(runs: dict[str, str]) -> None:
    scan("first", name="excuse", with_="pattern", pattern="Sorry")
    with raises("labels.none", "did you mean 'excuse'?"):
        userrl.compare("first", "second", by="label:excuss")
    with raises("argument.malformed", "Write label:NAME"):
        userrl.compare("first", "second", by="tier")
    with userrl.warehouse() as warehouse:
        traj_id = warehouse.rows("SELECT min(traj_id) AS id FROM trajectories")[0]["id"]
    store_labels(runs["first"], "excuse", [Label(traj_id, 0, "no")], source="person", labeller="Ada")
    with raises("labels.several_sources", "label:excuse/pattern or label:excuse/person"):
        userrl.compare("first", "second", by="label:excuse")
    assert userrl.compare("first", "second", by="label:excuse/pattern").labels is not None
