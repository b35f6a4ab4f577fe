"""The profile of a pretrained language model on two CPU cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from curricula import load
from curricula.host import cpu_dtype
from userrl.run.estimate import hours, warning


@pytest.mark.parametrize(
    ("vendor", "flags", "dtype"),
    [
        ("GenuineIntel", "sse avx2", "float32"),
        ("GenuineIntel", "avx2 avx512_bf16 amx_bf16", "bfloat16"),
        ("GenuineIntel", "avx512_bf16", "float32"),
        ("AuthenticAMD", "avx512_bf16", "bfloat16"),
    ],
)
def test_the_number_format_follows_the_cpu(tmp_path: Path, vendor: str, flags: str, dtype: str) -> None:
    (tmp_path / "cpuinfo").write_text(f"vendor_id : {vendor}\nflags : {flags} fpu\n")
    assert cpu_dtype(tmp_path / "cpuinfo") == dtype
    assert cpu_dtype(tmp_path / "missing") == "float32"


def test_the_profile_is_a_pretrained_model_that_speaks_english() -> None:
    recipe = load("equalized-r2g", profile="laptop-lm")
    assert (recipe.model.path, recipe.model.calls, recipe.model.dtype) == ("smollm2-135m", "line", cpu_dtype())
    assert recipe.gym("wish").config["wording"] == "english"
    assert recipe.training_gyms == ("wish",)


def test_the_estimate_is_said_before_the_run_and_fits_an_hour_with_bfloat16() -> None:
    quick, slow = (
        load("equalized-r2g", profile="laptop-lm", overrides={"model.dtype": dtype})
        for dtype in ("bfloat16", "float32")
    )
    assert 0.2 < (hours(quick) or 0) < 1.0
    assert (hours(slow) or 0) > (hours(quick) or 0)
    assert "SmolLM2-135M-Instruct (Q4_1): this run will take about" in (warning(slow, 0) or "")
    assert "float32, since this CPU" in (warning(slow, 0) or "")
