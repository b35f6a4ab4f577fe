"""docs/reference/gym-reference.md is what the gym classes say."""

from __future__ import annotations

import runpy

from tests.places import ROOT


def test_the_gym_reference_is_the_one_in_the_docs() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "gym_reference.py"))
    assert script["PAGE"].read_text() == script["page"](), "python scripts/gym_reference.py --write"
