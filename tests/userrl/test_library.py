"""The library's face: quick to import, typed, and few functions."""

from __future__ import annotations

import inspect
import subprocess
import sys

import userrl


def test_importing_the_library_loads_no_torch_and_no_server() -> None:
    heavy = "{'torch', 'transformers', 'prefect', 'typer', 'nicegui', 'duckdb', 'polars'} & set(sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, userrl; print(sorted({heavy}))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_the_library_has_at_most_twenty_one_functions_each_typed_and_documented() -> None:
    assert len(userrl.__all__) <= 21
    for name in userrl.__all__:
        function = getattr(userrl, name)
        signature = inspect.signature(function)
        assert inspect.getdoc(function), name
        assert signature.return_annotation is not inspect.Signature.empty, name
        assert all(each.annotation is not inspect.Parameter.empty for each in signature.parameters.values()), name
