"""People meet a checkpoint: it plays in a process of its own, and a conversation outlives whatever happens to that process."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from curricula import load
from tests.makers import raises
from tests.userrl_core.training.toys import TINY, sft_job
from userrl.run.run import Run, RunInfo
from userrl_core.gyms.human_user import Console
from userrl_core.json_files import write_json
from userrl_core.records import Trajectory
from userrl_core.training.config import SftConfig
from userrl_core.training.local.policy import LocalPolicy
from userrl_core.training.local.sft import train_sft
from userrl_core.training.local.state import load_checkpoint
from userrl_people.others import Checkpoint
from userrl_people.page import People
from userrl_people.sitting import Sitting
from userrl_people.study import ConversationSetup, Study
from warehouse import open_warehouse

SERVING = """
import json, sys, time
from pathlib import Path
from curricula import load
from flows.page import server
from userrl_people.sitting import Sitting
from userrl_people.others import Checkpoint
from userrl_people.study import Study, ConversationSetup
from userrl.run.run import Run, RunInfo
info = RunInfo(id="r", created=1.0, resolved=load("naive-sum", "laptop-quick").resolved())
other = Checkpoint(Run("r", Path(sys.argv[1]), info))
study = Study(Path(sys.argv[2]))
task = study.hand_out("travel", "user", other)
sitting = Sitting(study, ConversationSetup(task, "user", other), "ada")
while sitting.ended is None:
    if sitting.console.prompt is not None:
        sitting.console.put(sitting.console.options[0] if sitting.console.options else "Something quiet.")
    time.sleep(0.01)
study.close()
played = sitting.trajectory
print(json.dumps({
    "torch": "torch" in sys.modules, "failure": sitting.failure, "score": played.score,
    "said": [who for who, _ in sitting.console.lines].count("said"),
}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run whose report names a model that has learnt to write calls."""
    folder = tmp_path_factory.mktemp("run")
    result = train_sft(sft_job(folder, sft=SftConfig(steps=60, lr=5e-3, batch=8)))
    write_json(folder / "report.json", {"checkpoint": str(result.checkpoint)})
    return folder


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last bits of a logarithm depend on the number of threads."""
    monkeypatch.setenv("USERRL_THREADS", "1")


def checkpoint(folder: Path) -> Checkpoint:
    info = RunInfo(id="r", created=1.0, resolved=load("naive-sum", "laptop-quick").resolved())
    return Checkpoint(Run("r", folder, info))


def players() -> list[psutil.Process]:
    """The processes that play for this one. Each leads a session."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error, ProcessLookupError):  # a child of another test may end meanwhile
            if child.status() != psutil.STATUS_ZOMBIE and os.getsid(child.pid) == child.pid:
                found.append(child)
    return found


def person(when_asked: Any = lambda: None) -> Console:
    """Takes the first option and says ``1``. when_asked: called before each answer."""

    def ask(prompt: str) -> str:
        when_asked()
        return "1"

    return Console(ask, lambda text: None)


def meet(study: Study, other: Checkpoint, console: Console, name: str = "ada") -> Trajectory:
    task = study.hand_out("travel", "user", other, person=name)
    return study.hold(ConversationSetup(task, "user", other), console, person=name)


def rows(root: Path, text: str) -> list[dict[str, Any]]:
    with open_warehouse(root) as warehouse:
        return warehouse.rows(text)


def test_after_a_person_played_a_checkpoint_the_serving_process_has_not_loaded_torch(
    folder: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVING, str(folder), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["torch"], told["failure"]) == (False, "")
    assert told["said"] > 0
    assert told["score"] is not None
    assert len(rows(tmp_path, "FROM people WHERE admitted")) == 1


@pytest.mark.usefixtures("prepared")
def test_in_a_process_of_its_own_a_checkpoint_says_what_it_says_in_this_one(folder: Path, tmp_path: Path) -> None:
    class Here(Checkpoint):
        def policy(self) -> Any:
            model, tokenizer = load_checkpoint(self._path, TINY, "cpu")
            return LocalPolicy(model, tokenizer, max_tokens=48, max_response_tokens=160, name="r")

    apart, study = checkpoint(folder), Study(tmp_path)
    task = study.hand_out("travel", "user", apart)
    info = RunInfo(id="r", created=1.0, resolved=load("naive-sum", "laptop-quick").resolved())
    here = Here(Run("r", folder, info))
    first, second = [study.hold(ConversationSetup(task, "user", other), person()) for other in (apart, here)]
    study.close()
    assert [(t.message, t.observation, t.reward, t.token_ids, t.logprobs, t.prompt_tokens) for t in first.turns] == [
        (t.message, t.observation, t.reward, t.token_ids, t.logprobs, t.prompt_tokens) for t in second.turns
    ]
    assert (first.stop_reason, first.score) == (second.stop_reason, second.score)
    counterparts = rows(tmp_path, "SELECT score, policy FROM trajectories WHERE user_name = 'rule' AND admitted")
    assert [row["policy"] for row in counterparts] == ["r", "r"]
    assert counterparts[0]["score"] == counterparts[1]["score"]


@pytest.mark.usefixtures("prepared")
def test_a_player_that_is_killed_costs_the_score_and_no_turn(folder: Path, tmp_path: Path) -> None:
    def kill() -> None:
        for player in players():
            player.kill()

    study, other = Study(tmp_path), checkpoint(folder)
    played = meet(study, other, person(kill))
    assert (played.admitted, played.score, len(played.turns)) == (False, None, 1)
    assert played.reject_reason == "policy: The process that plays the agent ended with status -9"
    assert study.hand_out("travel", "user", other, person="ben").id == played.task.id
    study.close()
    assert players() == []
    kept = rows(tmp_path, "SELECT turns, stop_reason, admitted FROM trajectories")
    assert kept == [{"turns": 1, "stop_reason": "error", "admitted": False}]


@pytest.mark.usefixtures("prepared")
def test_several_people_meet_a_checkpoint_at_once_each_with_a_task_and_a_player_of_their_own(
    folder: Path, tmp_path: Path
) -> None:
    together = threading.Barrier(3, timeout=120)
    counted: list[int] = []

    def play(n: int) -> Trajectory:
        is_first = iter([True])

        def wait() -> None:
            if next(is_first, False):
                together.wait()
                counted.append(len(players()))
                together.wait()

        return meet(study, other, person(wait), f"p{n}")

    study, other = Study(tmp_path), checkpoint(folder)
    with ThreadPoolExecutor(3) as pool:
        played = list(pool.map(play, range(3)))
    study.close()
    assert counted == [3, 3, 3]
    assert [trajectory.admitted for trajectory in played] == [True] * 3
    assert len({trajectory.task.id for trajectory in played}) == 3
    assert players() == []


@pytest.mark.usefixtures("prepared")
def test_closing_the_page_ends_a_conversation_in_a_sentence_and_keeps_its_turns(folder: Path, tmp_path: Path) -> None:
    other, study = checkpoint(folder), Study(tmp_path)
    played = meet(study, other, person(study.stop))
    study.close()
    assert (played.reject_reason, len(played.turns)) == ("policy: The page was closed.", 1)
    with open_warehouse(tmp_path) as warehouse:
        people = People(warehouse)
        sitting = Sitting(people._study, ConversationSetup(played.task, "user", other), "ada")
        people._sittings["token"] = sitting
        while sitting.console.prompt is None:
            threading.Event().wait(0.01)
        people.close()
        assert sitting.ended is not None
    assert players() == []
    assert [row["stop_reason"] for row in rows(tmp_path, "FROM trajectories")] == ["error", "error"]


@pytest.mark.usefixtures("prepared")
def test_a_checkpoint_that_cannot_be_loaded_is_refused_in_its_sentence(folder: Path, tmp_path: Path) -> None:
    write_json(tmp_path / "report.json", {"checkpoint": str(tmp_path / "gone")})
    study, other = Study(tmp_path / "warehouse"), checkpoint(tmp_path)
    with raises("checkpoint.missing"):
        meet(study, other, person())
    study.close()
    assert players() == []
    assert not (tmp_path / "warehouse").exists()
