"""The library: typed functions for everything a researcher can ask for, without a server.

    import userrl

    trained = userrl.train("equalized-r2g", seed=1)   # a progress line, then the scores
    print(trained)
    trained.to_polars()

Importing it is quick and loads no torch. State is stored in ``.userrl/`` in the working directory, or in
``$USERRL_HOME``.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from userrl.api.audit import audit_credit, audit_judge, audit_user
    from userrl.api.branch import branch
    from userrl.api.compare import compare
    from userrl.api.cross_play import cross_play
    from userrl.api.evaluate import evaluate
    from userrl.api.imports import import_logs
    from userrl.api.play import play
    from userrl.api.recipes import recipe, recipes
    from userrl.api.report import report
    from userrl.api.reproduce import reproduce
    from userrl.api.reverify import reverify
    from userrl.api.runs import runs
    from userrl.api.scan import scan
    from userrl.api.sweep import sweep
    from userrl.api.train import train
    from userrl.api.warehouse import sql, warehouse

__all__ = [
    "audit_credit",
    "audit_judge",
    "audit_user",
    "branch",
    "compare",
    "cross_play",
    "evaluate",
    "import_logs",
    "play",
    "recipe",
    "recipes",
    "report",
    "reproduce",
    "reverify",
    "runs",
    "scan",
    "sql",
    "sweep",
    "train",
    "warehouse",
]

_MODULES = {
    **dict.fromkeys(("audit_credit", "audit_judge", "audit_user"), "audit"),
    "import_logs": "imports",
    "recipe": "recipes",
    "sql": "warehouse",
}
"""The module of each function whose module has another name. It is imported when the function is first used, because every
process of ours imports this package, and few call these functions.
"""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'userrl' has no attribute {name!r}")
    return getattr(importlib.import_module(f"userrl.api.{_MODULES.get(name, name)}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
