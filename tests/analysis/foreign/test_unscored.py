"""Attempts that failed outside the agent and scores that are not numbers: no score, a reason, and a count."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import userrl
from analysis.foreign.conversation import ForeignConversation
from analysis.foreign.formats import conversations, recognised

TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]
NOT_NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999", '"NaN"', '" -inf "', "1" + "0" * 400)


def tau_bench(reward: str, info: Any = None, **more: Any) -> str:
    row = {"task_id": 1, "trial": 0, "info": {} if info is None else info, "traj": TALK, **more}
    return "[" + json.dumps(row | {"reward": "?"}).replace('"?"', reward) + "]"


def tau2(reward: str, ending: str = "user_stop", messages: Any = TALK) -> str:
    simulation = {"task_id": "1", "termination_reason": ending, "messages": messages, "reward_info": {"reward": "?"}}
    text = json.dumps({"info": {}, "tasks": [{"id": "1", "weight": float("nan")}], "simulations": [simulation]})
    return text.replace('"?"', reward)


def line(reward: str, **row: Any) -> str:
    return json.dumps(row | {"reward": "?"}).replace('"?"', reward)


FORMATS: dict[str, Callable[[str], str]] = {
    "tau-bench": tau_bench,
    "tau2": tau2,
    "verifiers": lambda reward: line(reward, prompt=TALK[:1], completion=TALK[1:], metrics={"loss": float("nan")}),
    "traces": lambda reward: json.dumps(
        {"nodes": [{"message": TALK[1], "sampled": True}], "rewards": {"r": {"score": "?"}}}
    ).replace('"?"', reward),
    "nemo-gym": lambda reward: line(reward, responses_create_params={"input": "Hi"}, response={"output": []}),
    "chat": lambda reward: line(reward, messages=TALK, seconds=float("inf")),
    "inspect": lambda reward: json.dumps(
        {
            "eval": {"task": "t", "model": "m", "metadata": {"z": float("nan")}},
            "samples": [{"id": 1, "messages": TALK, "scores": {"s": {"value": "?"}}, "metadata": {"z": float("-inf")}}],
        }
    ).replace('"?"', reward),
}


def read(folder: Path, text: str) -> list[ForeignConversation]:
    path = folder / "log.json"
    path.write_text(text)
    return list(conversations(path, recognised(path)))


@pytest.mark.parametrize("format", FORMATS)
def test_a_score_that_is_not_a_number_is_no_score_and_other_fields_do_not_matter(tmp_path: Path, format: str) -> None:
    (scored,) = read(tmp_path, FORMATS[format]("0.5"))
    assert (scored.score, scored.reject_reason) == (0.5, None)
    for value in NOT_NUMBERS:
        (item,) = read(tmp_path, FORMATS[format](value))
        assert item.score is None
        assert item.reject_reason is not None
        assert item.reject_reason.startswith(("the reward is not a finite", "the score is not a", "a reward is not a"))
    (missing,) = read(tmp_path, FORMATS[format]("null"))
    assert (missing.score, (missing.reject_reason or "")[:15]) == (None, "the file has no")


@pytest.mark.parametrize(
    ("ending", "score"),
    [
        *((ending, 0.0) for ending in ("user_stop", "agent_stop", "max_steps", "too_many_errors", "agent_error")),
        *((ending, 0.0) for ending in ("timeout", "context_window_exceeded", "", "a_new_word")),
        *((ending, None) for ending in ("infrastructure_error", "user_error", "unexpected_error", "a_new_error")),
    ],
)
def test_a_simulation_that_failed_outside_the_agent_has_no_score(
    tmp_path: Path, ending: str, score: float | None
) -> None:
    (item,) = read(tmp_path, tau2("0.0", ending))
    assert item.score == score
    assert item.reject_reason == (None if score == 0.0 else f"the attempt failed: {ending}")
    assert score == 0.0 or item.ending == "error"
    (named,) = read(tmp_path, tau2("0.0", f"TerminationReason.{ending.upper()}"))
    assert (named.score, named.ending) == (item.score, item.ending)


@pytest.mark.parametrize("error", ["timeout", {"type": "APIError"}, ["a", "b"], True, 500])
def test_an_attempt_of_tau_bench_with_an_error_has_no_score(tmp_path: Path, error: Any) -> None:
    for reward in ("0.0", "1.0", "NaN"):
        (item,) = read(tmp_path, tau_bench(reward, {"error": error, "traceback": "..."}))
        assert (item.score, (item.reject_reason or "")[:20], item.ending) == (None, "the attempt failed: ", "error")
    (item,) = read(tmp_path, tau_bench("0.0", {"traceback": "Traceback (most recent call last)"}, traj=[]))
    assert item.score is None
    for harmless in ({"error": None}, {"error": ""}, {"source": "user"}):
        assert read(tmp_path, tau_bench("0.0", harmless))[0].score == 0.0


def test_an_attempt_without_a_message_has_no_score(tmp_path: Path) -> None:
    for text in (tau_bench("0.0", traj=[]), tau2("0.0", messages=[])):
        (item,) = read(tmp_path, text)
        assert (item.score, item.reject_reason) == (None, "the attempt has no messages")


def test_a_failed_rollout_of_nemo_gym_has_no_score_whatever_its_reward(tmp_path: Path) -> None:
    row = line("0.0", responses_create_params={"input": "Hi"}, response={}, _ng_failure_class="timeout")
    assert read(tmp_path, row)[0].reject_reason == "the rollout failed: timeout"


def test_metadata_with_nan_beside_a_log_still_names_the_model(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text('{"model": "m-1", "env_id": "maze", "avg_reward": NaN}')
    (item,) = read(tmp_path, FORMATS["verifiers"]("1.0"))
    assert (item.policy, item.gym) == ("m-1", "maze")


def test_a_failed_sample_of_inspect_that_was_scored_keeps_its_score_and_its_error_is_counted(tmp_path: Path) -> None:
    (item,) = read(tmp_path, FORMATS["inspect"]("0.5").replace('"id": 1', '"id": 1, "error": {"message": "boom"}'))
    assert (item.score, item.reject_reason, item.ending) == (0.5, None, "error")
    assert item.unread["error of a sample with a score"] == 1
    (unscored,) = read(tmp_path, FORMATS["inspect"]("null").replace('"id": 1', '"id": 1, "error": {"message": "boom"}'))
    assert (unscored.score, unscored.reject_reason) == (None, "the sample failed: boom")
    assert "error of a sample with a score" not in unscored.unread


def test_an_archive_of_inspect_with_nan_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.eval"
    sample = {"id": 1, "messages": TALK, "scores": {"s": {"value": "C"}}, "metadata": {"z": float("nan")}}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", json.dumps({"eval": {"task": "t", "model": "m"}, "stats": float("nan")}))
        archive.writestr("samples/1.json", json.dumps(sample | {"working_time": float("nan")}))
    (item,) = conversations(path, recognised(path))
    assert (item.score, item.seconds) == (1.0, None)


def test_report_and_compare_say_how_many_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    ends = ("user_stop", "infrastructure_error", "infrastructure_error", "user_error")
    for name, scores in (("a", (1.0, 0.0, 0.0, 0.0)), ("b", (0.0, 0.0, 0.0, float("nan")))):
        rows = [
            {"task_id": str(n), "termination_reason": ending, "messages": TALK, "reward_info": {"reward": score}}
            for n, (ending, score) in enumerate(zip(ends if name == "a" else ends[:1] * 4, scores, strict=True))
        ]
        info = {"agent_info": {"llm": name}, "environment_info": {"domain_name": "shop"}}
        (tmp_path / f"{name}.json").write_text(json.dumps({"info": info, "tasks": [], "simulations": rows}))
    a, b = (userrl.import_logs(tmp_path / f"{name}.json")[0] for name in ("a", "b"))
    (policy,) = a.policies
    assert (policy.conversations, policy.scored) == (4, 1)
    assert policy.score is not None
    assert policy.score.estimate == 1.0
    reasons = "the attempt failed: infrastructure_error (2); the attempt failed: user_error (1)"
    assert f"a at tau2-shop: no score for 3 of 4 conversations, which count in no mean: {reasons}." in str(a)
    assert asdict(a)["policies"][0]["unscored"] == {
        "the attempt failed: infrastructure_error": 2,
        "the attempt failed: user_error": 1,
    }
    assert dict(b.policies[0].unscored) == {"the reward is not a finite number (user_stop)": 1}
    comparison = userrl.compare(a.run, b.run)
    assert f"{a.run}: no score for 3 conversations, which count in no mean: {reasons}." in str(comparison)
