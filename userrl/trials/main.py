"""The process of one trial. ``python -m userrl.trials.main '{"recipe": ..., "seed": 1}'`` trains without a Prefect server."""

from __future__ import annotations

import sys

from userrl.machine.home import quiet_process
from userrl.machine.interrupts import leave_on_term

quiet_process()


def main(request: str) -> None:
    """Train a request, given as JSON of `TrainRequest`. TERM acts like Ctrl-C and leaves a checkpoint."""
    from userrl.run.plan import plan_run
    from userrl.run.request import TrainRequest
    from userrl.stages.here import train_here
    from userrl_core.errors import UserRLError

    leave_on_term()
    try:
        train_here(
            plan_run(TrainRequest.model_validate_json(request)),
            say=lambda text, *args: print(text % args, flush=True),
        )
    except UserRLError as error:
        sys.exit(error.line)


if __name__ == "__main__":
    main(sys.argv[1])
