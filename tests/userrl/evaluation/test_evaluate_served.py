"""``userrl evaluate --model X``: a served model gets the paper's prompt and tasks, and a dead server ends it at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.flows.small import environment
from tests.mock_server import Answer, Body, MockServer, modest_user, tool_call
from tests.ports import free_port
from userrl.machine.slots import slots, take
from userrl.run.job import StageJob
from warehouse import open_warehouse

CHECK_PHRASE = "Answer with ok."


def userrl(home: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    given = {**environment(home), **variables}
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        given.setdefault(name, "")
    command = [sys.executable, "-m", "flows.cli.main", *words]
    return subprocess.run(command, env=given, capture_output=True, text=True, check=False, timeout=300)


def asker(body: Body) -> Answer:
    return Answer("", [tool_call("action", "Is it alive?", len(body["messages"]))], "tool_calls")


def evaluate(home: Path, server: MockServer, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    asked = ("evaluate", "--model", "served-1", "--base-url", server.base_url, "--tasks", "2", "--horizon", "2", *words)
    return userrl(home, *asked, **variables)


def test_a_served_model_gets_the_full_prompt_and_the_full_tiers_and_waits_for_no_slot(tmp_path: Path) -> None:
    names = tuple(slots())
    with MockServer(asker) as server, take(tmp_path / "slots", len(names), names):
        done = evaluate(tmp_path, server, "--gym", "telepathy", "--gym", "travel")
        talks = [body["messages"] for body in server.requests if CHECK_PHRASE not in str(body["messages"])]
    assert done.returncode == 0, done.stderr
    assert all(messages[0]["role"] == "system" for messages in talks)
    assert any("You have at most 2 turns" in messages[0]["content"] for messages in talks)
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        tiers = warehouse.sql("select distinct tier from trajectories where gym = 'travel'").fetchall()
        assert "tiny" not in {tier for (tier,) in tiers}
    page = next(tmp_path.glob("runs/*/report.md")).read_text()
    assert "Evaluated: the served model `served-1` at http://127.0.0.1" in page
    assert "from scratch" not in page
    assert "Checkpoint: `None`" not in page
    assert " model calls without a known price." in page
    assert "$0.00" not in page
    assert "| task | turns |" not in page  # nothing was solved


@pytest.mark.usefixtures("prepared")
def test_conversations_without_a_readable_call_are_counted_beside_their_score(tmp_path: Path) -> None:
    with MockServer(lambda body: Answer("ok")) as server:
        done = evaluate(tmp_path, server, "--gym", "wish")
    assert "wish  0.000 " in done.stdout
    assert "(2 trajectories, 2 with an unreadable call, 0 rejected)" in done.stdout


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("part", ["policy", "user", "key"])
def test_a_dead_server_or_a_missing_key_ends_it_before_the_first_episode(part: str, tmp_path: Path) -> None:
    dead = f"http://127.0.0.1:{free_port()}/v1"
    with MockServer(asker) as server:
        if part == "policy":
            done = userrl(
                tmp_path, "evaluate", "--model", "m", "--base-url", dead, "--gym", "telepathy", "--tasks", "1"
            )
            sentence = f"The served model m at {dead} does not answer"
        elif part == "key":
            done = userrl(tmp_path, "evaluate", "--model", "gpt-4o", "--gym", "telepathy", "--tasks", "1")
            sentence = "Model gpt-4o is served by OpenAI, which needs a key. Set OPENAI_API_KEY"
        else:
            user = {"kind": "openai", "options": {"model": "u", "base_url": dead}}
            done = evaluate(tmp_path, server, "--gym", "telepathy", "--user", json.dumps(user))
            sentence = f"The user model u at {dead} does not answer"
    assert done.returncode == 1
    assert sentence in done.stderr
    said = [line for line in done.stderr.splitlines() if not line.endswith("s without news)")]
    assert len(said) == 1
    if (tmp_path / "warehouse").is_dir():
        with open_warehouse(tmp_path / "warehouse") as warehouse:
            assert warehouse.sql("select count(*) from trajectories_all").fetchall() == [(0,)]


@pytest.mark.usefixtures("prepared")
def test_why_trajectories_were_rejected_stands_in_the_report_and_nothing_scored_is_exit_1(tmp_path: Path) -> None:
    def unreadable(body: Body) -> Answer:
        return Answer("ok") if CHECK_PHRASE in str(body["messages"]) else Answer(body=b"{}")

    with MockServer(asker) as server, MockServer(unreadable) as users:
        options = {"model": "u", "base_url": users.base_url, "retries": 0, "backoff": 0.0}
        user: dict[str, Any] = {"kind": "openai", "options": options}
        done = evaluate(tmp_path, server, "--gym", "telepathy", "--user", json.dumps(user))
    assert done.returncode == 1, done.stdout
    assert "telepathy  not scored  (0 trajectories, 2 rejected)\n  rejected (2 times): user: " in done.stdout
    assert (
        "Rejected trajectories of served-1 at telepathy: 2: user: "
        in next(tmp_path.glob("runs/*/report.md")).read_text()
    )
    assert os.environ.get("USERRL_HOME") != str(tmp_path)


@pytest.mark.usefixtures("prepared")
def test_rejected_trajectories_are_played_again_on_a_rerun_and_scored_ones_with_fresh_alone(tmp_path: Path) -> None:
    broken = [True]

    def person(body: Body) -> Answer:
        if CHECK_PHRASE in str(body["messages"]):
            return Answer("ok")
        return Answer(body=b"{}") if broken[0] else modest_user(body)

    with MockServer(asker) as server, MockServer(person) as users:

        def again(*words: str) -> tuple[int, str, int]:
            """The exit status, the first line, and how often the user was asked for an answer."""
            options = {"model": "u", "base_url": users.base_url, "retries": 0, "backoff": 0.0}
            user = json.dumps({"kind": "openai", "options": options})
            users.requests.clear()
            done = evaluate(tmp_path, server, "--gym", "telepathy", "--user", user, *words)
            asked = [body for body in users.requests if CHECK_PHRASE not in str(body["messages"])]
            return done.returncode, (done.stdout or done.stderr).splitlines()[0].partition("(")[2], len(asked)

        assert again() == (1, "0 trajectories, 2 rejected)", 2)
        assert again() == (1, "0 trajectories, 2 rejected)", 2)
        broken[0] = False
        assert again() == (0, "2 trajectories, 0 rejected)", 4)
        assert again() == (0, "2 trajectories, 0 rejected)", 0)
        assert again("--fresh") == (0, "2 trajectories, 0 rejected)", 4)
        assert again("--fresh") == (0, "2 trajectories, 0 rejected)", 4)
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        shown = "select admitted, count(*) from {} group by 1 order by 1"
        assert warehouse.sql(shown.format("trajectories_all")).fetchall() == [(False, 4), (True, 6)]
        assert warehouse.sql(shown.format("trajectories")).fetchall() == [(True, 6)]


@pytest.mark.usefixtures("prepared")
def test_another_server_in_the_environment_is_asked_in_place_of_the_scores_of_the_first(tmp_path: Path) -> None:
    asked = ("evaluate", "--model", "served-1", "--gym", "telepathy", "--tasks", "2", "--horizon", "2")
    with MockServer(asker) as first, MockServer(asker) as second:
        for server in (first, second, second):
            done = userrl(tmp_path, *asked, OPENAI_BASE_URL=server.base_url)
            assert done.returncode == 0, done.stderr
        requests = len(first.requests)
        counts = [sum(CHECK_PHRASE not in str(body["messages"]) for body in s.requests) for s in (first, second)]
        assert counts == [4, 4]  # the third evaluation reuses the second
        # An evaluation of a version that did not know the server continues, and is not played again.
        stage = next(tmp_path.glob("runs/*/stages/evaluate"))
        job = StageJob.read(stage / "job.json")
        result = json.loads((stage / "result.json").read_text())
        unknown = job.model_copy(update={"actors": tuple(a.model_copy(update={"address": ""}) for a in job.actors)})
        assert result["key"] == job.key
        assert job.key != unknown.key
        (stage / "result.json").write_text(json.dumps({**result, "key": unknown.key}))
        assert userrl(tmp_path, *asked, OPENAI_BASE_URL=first.base_url).returncode == 0
        assert len(first.requests) == requests
