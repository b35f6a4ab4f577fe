"""What the report says in words."""

import pytest

from curricula import load
from flows.run.plan import actors
from flows.run.report import markdown


def summary(format_errors, **changes):
    row = {"score": 0.0, "stderr": 0.0, "turns": 1.0, "attempts": 8, "rejected": 0}
    table = {
        "demonstrator": {"travel": row | {"score": 0.5, "format_errors": 0.0}},
        "start": {"travel": row | {"format_errors": format_errors}},
        "RL": {"travel": row | {"format_errors": format_errors}},
    }
    return {
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
    } | changes


def test_a_model_that_writes_no_call_is_said_to_write_none():
    page = markdown(summary(1.0, cold_start=False), from_scratch=True)
    assert "**Every attempt of start and of RL is a format error: no call could be read" in page
    assert "no cold start: a model from scratch has never seen a call, no attempt earns a reward" in page


def test_a_model_that_writes_calls_is_not_spoken_of():
    assert "format error" not in markdown(summary(0.9, cold_start=False), from_scratch=True)


def test_reports_written_before_the_cold_start_was_noted_still_show():
    page = markdown(summary(1.0), from_scratch=True)
    assert "format error" in page
    assert "no cold start" not in page


@pytest.mark.parametrize(("recipe", "label"), [("equalized-r2g", "SFT"), ("equalized-r2g-no-sft", "start")])
def test_weights_that_no_cold_start_trained_are_not_called_sft(recipe, label):
    found = {"checkpoint": "c", "sha256": "s", "step": 0, "best": None}
    assert [actor.label for actor in actors(load(recipe, profile="laptop"), {"sft": found})] == [label]
