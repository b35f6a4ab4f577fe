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
    from userrl.audits.credit import audit_credit
    from userrl.audits.judge import audit_judge
    from userrl.audits.scan import scan
    from userrl.audits.user import audit_user
    from userrl.branching.branch import branch
    from userrl.claims.reproduce import reproduce
    from userrl.comparison.compare import compare
    from userrl.crossplay import cross_play
    from userrl.evaluation.evaluate import evaluate
    from userrl.evaluation.imported import import_logs
    from userrl.evaluation.reverified import reverify
    from userrl.machine.warehouse import sql, warehouse
    from userrl.people import play
    from userrl.protocols.protocol import protocol
    from userrl.reports.find_report import report
    from userrl.run.listed import runs
    from userrl.run.recipes import recipe, recipes
    from userrl.stages.train import train
    from userrl.trials.swept import sweep

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
    "protocol",
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

_VERBS = {
    "audit_credit": "audits.credit",
    "audit_judge": "audits.judge",
    "audit_user": "audits.user",
    "branch": "branching.branch",
    "compare": "comparison.compare",
    "cross_play": "crossplay",
    "evaluate": "evaluation.evaluate",
    "import_logs": "evaluation.imported",
    "play": "people",
    "protocol": "protocols.protocol",
    "recipe": "run.recipes",
    "recipes": "run.recipes",
    "report": "reports.find_report",
    "reproduce": "claims.reproduce",
    "reverify": "evaluation.reverified",
    "runs": "run.listed",
    "scan": "audits.scan",
    "sql": "machine.warehouse",
    "sweep": "trials.swept",
    "train": "stages.train",
    "warehouse": "machine.warehouse",
}
"""The module of each verb. It is imported when the verb is first used, because every process of ours imports this package, and
few call a verb.
"""


def __getattr__(name: str) -> Any:
    if name not in _VERBS:
        raise AttributeError(f"module 'userrl' has no attribute {name!r}")
    return getattr(importlib.import_module(f"userrl.{_VERBS[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_VERBS]
