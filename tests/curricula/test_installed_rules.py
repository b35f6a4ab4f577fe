"""A credit rule and a horizon schedule from an installed package: examples/rules, as pip installs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from curricula import load
from tests.makers import raises
from tests.offered import offer
from tests.places import ROOT

RULES = ROOT / "examples" / "rules"
PROGRAM = """
import json
from curricula import from_resolved, load
from analysis.credit.rules import Padded, paid, rules
from userrl_core.rewards import turn_advantages
given = {"stages": [{"steps": 30, "mix": {"errand": 1}}], "credit.shaping": "last_turn",
         "schedule": {"kind": "at_once", "short": 8, "after": 10, "long": 16}, "demonstrations.horizon": 8}
recipe = load("equalized-r2g", profile="laptop", overrides=given)
again = from_resolved(recipe.resolved())
print(json.dumps({
    "horizons": [recipe.schedule.horizon(step) for step in (1, 10, 11, 30)],
    "stages": [(planned.name, planned.first, planned.last, planned.horizon) for planned in again.planned_stages],
    "schedule": recipe.resolved()["schedule"],
    "same": again.hash == recipe.hash,
    "advantages": turn_advantages([[0, 0, 1], [0, 0.5]], [0, 0], shaping="last_turn", score="sum"),
    "audited": {rule.name: paid(rule, Padded.of([[0, 0, 1], [0, 0.5]], [[1] * 3, [1] * 2]), 0.8).tolist()
                for rule in rules() if rule.shaping == "last_turn"},
}))
"""


def installed(site: Path) -> dict[str, str]:
    """An environment in which the package is installed."""
    offer(site, RULES)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(RULES), str(RULES.parents[1])])}


def test_a_package_brings_a_credit_rule_and_a_schedule(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=installed(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["horizons"] == [8, 8, 16, 16]
    assert said["stages"] == [["rl-1", 1, 10, 8], ["rl-2", 11, 30, 16]]
    assert said["schedule"] == {"kind": "at_once", "short": 8, "after": 10, "long": 16}
    assert said["same"] is True
    # Scores 1 and .5: z is 1 and -1; all credit on the last turn, so that N of form released is 1.
    first, second = said["advantages"]
    assert first[:2] == [0.0, 0.0]
    assert second[0] == 0.0
    assert (first[2], second[1]) == (pytest.approx(1.0, abs=1e-5), pytest.approx(-1.0, abs=1e-5))
    assert len(said["audited"]) == 18  # three scores, three forms, two loss aggregations, as the rules of our own
    assert said["audited"]["last_turn/sum/released token_mean"] == [first, [*second, 0.0]]


def test_what_no_package_brings_is_refused_with_what_there_is() -> None:
    with raises("credit.unknown_rule", "'equalised'", "did you mean 'equalized'"):
        load("equalized-r2g", profile="laptop", overrides={"credit.shaping": "equalised"})
    with raises("recipe.invalid_value", "schedule.kind"):
        load("equalized-r2g", profile="laptop", overrides={"schedule": {"kind": "at_once"}})
