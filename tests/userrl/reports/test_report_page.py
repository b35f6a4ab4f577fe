"""What the report says in words."""

import pytest

from curricula import load
from userrl.reports.run_report import RunReport
from userrl.reports.run_summary import run_summary
from userrl.run.job import Inputs
from userrl.run.plan import actors
from userrl.run.results import DistillResult, TrainResult


def page(format_errors, **changes):
    row = {"score": 0.0, "stderr": 0.0, "turns": 1.0, "attempts": 8, "rejected": 0}
    table = {
        "demonstrator": {"travel": row | {"score": 0.5, "format_errors": 0.0}},
        "start": {"travel": row | {"format_errors": format_errors}},
        "RL": {"travel": row | {"format_errors": format_errors}},
    }
    values = {
        "run": "r",
        "recipe": "x",
        "profile": "laptop",
        "seed": 0,
        "demonstrations": None,
        "table": table,
        "warnings": [],
        "test_tasks": 8,
        "horizon": 6,
        "seconds": {},
        "cpu_seconds": {},
        "checkpoint": None,
        "warehouse": "w",
        "folder": "f",
    }
    return run_summary(RunReport(**values | changes)).markdown()


def test_a_model_that_writes_no_call_is_said_to_write_none():
    text = page(1.0, cold_start=False, from_scratch=True)
    assert "**Every trajectory of start and RL is a format error: no call could be read" in text
    assert "no cold start: a model from scratch has never seen a tool call, so no trajectory earns a reward" in text


def test_the_report_says_how_many_demonstrations_of_each_tier_were_kept():
    counts = {"seen": 9, "kept": 5, "mean_seen": 1.0, "mean_kept": 1.0, "cut": 1.0}
    tiers = {
        "errand": {**counts, "tiers": {"depth-1": (3, 3), "depth-2": (2, 4)}},
        "wish": {**counts, "tiers": {"": (5, 9)}},
    }
    kept = {"policy": "scripted", "played": 18, "kept": 10, "dropped": {}, "mean": 1.0, "mean_kept": 1.0}
    said = "Kept by tier (of equal scores the shorter conversations): errand depth-1 3 of 3, depth-2 2 of 4."
    assert said in page(0.0, demonstrations={**kept, "by_gym": tiers})
    assert "Kept by tier" not in page(0.0, demonstrations={**kept, "by_gym": {"wish": counts}})  # of an earlier version


def test_the_report_says_that_failures_are_among_the_kept_demonstrations():
    good = {"seen": 9, "kept": 5, "mean_seen": 1.0, "mean_kept": 1.0, "cut": 1.0}
    kept = {"policy": "gpt-4o", "played": 18, "kept": 10, "dropped": {}, "mean": 0.5, "mean_kept": 0.5}
    by_gym = {"travel": {**good, "mean_kept": 0.1, "cut": 0.0}, "wish": good}
    note = "include failures with a score of 0: travel (mean 0.100). A lower top_k keeps fewer of them."
    assert note in page(0.0, demonstrations={**kept, "by_gym": by_gym})
    assert "failures" not in page(0.0, demonstrations={**kept, "by_gym": {"wish": good}})


def test_a_model_that_writes_calls_is_not_spoken_of():
    assert "format error" not in page(0.9, cold_start=False, from_scratch=True)


def test_reports_written_before_the_cold_start_was_noted_still_show():
    text = page(1.0, from_scratch=True)
    assert "format error" in text
    assert "no cold start" not in text


@pytest.mark.parametrize(("recipe", "label"), [("equalized-r2g", "SFT"), ("equalized-r2g-no-sft", "start")])
def test_weights_that_no_cold_start_trained_are_not_called_sft(recipe, label):
    cold = TrainResult(checkpoint="c", sha256="s")
    assert [actor.label for actor in actors(load(recipe, profile="laptop"), Inputs(sft=cold))] == [label]


@pytest.mark.parametrize(("data", "labels"), [(None, ["demonstrator", "SFT"]), ("chats.jsonl", ["SFT"])])
def test_a_run_on_recorded_conversations_is_not_compared_with_a_scripted_demonstrator(data, labels):
    recipe = load("equalized-r2g", profile="laptop")
    recipe = recipe.model_copy(update={"cold_start": recipe.cold_start.model_copy(update={"data": data})})
    played = DistillResult(
        policy="p", played=1, kept=1, dropped={}, mean=1.0, mean_kept=1.0, by_gym={}, turns=1, chats="c", used_tasks="u"
    )
    inputs = Inputs(distill=played, sft=TrainResult(checkpoint="c", sha256="s"))
    assert [actor.label for actor in actors(recipe, inputs)] == labels
