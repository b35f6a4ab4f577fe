"""The generated look-up pages match the models and the command line."""

from __future__ import annotations

import runpy

from tests.places import ROOT

REFERENCE = runpy.run_path(str(ROOT / "scripts" / "reference.py"))


def test_the_pages_of_keys_and_commands_match_the_code() -> None:
    for page, text in REFERENCE["pages"]().items():
        assert page.read_text() == text, "run python scripts/reference.py --write"


def test_a_key_has_its_type_default_and_sentence() -> None:
    rows = REFERENCE["recipe_keys"]().splitlines()
    assert any(row.startswith("| `gamma` | number >= 0.0 and <= 1.0 | `0.8` | Discount per turn") for row in rows)
    assert [row for row in rows if row.endswith("|  |") and not row.startswith("| `kind`")] == []
    assert "| `lora` | [block](#cold_startlora), or null | `null` |" in "\n".join(rows)
