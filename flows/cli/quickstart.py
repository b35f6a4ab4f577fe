"""``make run``: start server, worker and deployment, train with live progress, show the result, and stop what was started.

``python -m flows.cli.quickstart [--deployment train/equalized-r2g] [[-p] KEY=VALUE ...]``. Exit status: that of the run
(0 done, 1 failed).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from flows.cli.invocation import again, default_deployment, deployments
from flows.cli.result import show_result
from flows.cli.services import Services, services, stop_on_signals
from userrl.machine.home import check_writable, home, quiet_process
from userrl.run.run import Run
from userrl_core.chats.stream import value_of
from userrl_core.chats.values import BrokenFile
from userrl_core.errors import ConfigError, UserRLError
from userrl_core.settings import Settings
from userrl_core.suggest import nearest


def main(argv: Sequence[str] | None = None) -> int:
    """Run one deployment, from starting the server to printing the result."""
    parser = argparse.ArgumentParser(prog="make run", description="Train a recipe through its deployment.")
    parser.add_argument(
        "--deployment",
        help="default: train/horizon-fork; train/scaling-inter with profile laptop-lm, train/equalized-r2g with another",
    )
    parser.add_argument(
        "-p",
        "--param",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a parameter of the deployment; JSON or text",
    )
    parser.add_argument("named", nargs="*", metavar="KEY=VALUE", help="the same without -p")
    arguments = parser.parse_intermixed_args(argv)
    parameters: dict[str, Any] = {}
    stop_on_signals()
    try:
        parameters |= parse_parameters([*arguments.param, *arguments.named])
        deployment = arguments.deployment or default_deployment(parameters)
        if (run := check(deployment, parameters)) is not None:
            print(f"run      {run.id} is already finished: every stage is reused, and no server was started")
            show_result(run, deployment, parameters)
            return 0
        # A sweep's trials are runs of a train deployment.
        also = ("train/equalized-r2g",) if deployment.startswith("sweep/") else ()
        with services((deployment, *also)) as running:
            return _run(running, deployment, parameters)
    except KeyboardInterrupt:
        stopped = again(arguments.deployment or default_deployment(parameters), parameters)
        print(f"\nstopped; `{stopped}` continues from the last checkpoint")
        return 130
    except UserRLError as error:
        print(error.line, file=sys.stderr)
        return 1


def check(deployment: str, parameters: dict[str, Any]) -> Run | None:
    """Validate the request before anything is started. Return the run if it is already finished.

    Prints the estimate of a long run. Raises ConfigError or CheckpointError with one sentence.
    """
    known_deployments = deployments()
    if deployment not in known_deployments:
        raise ConfigError(
            "server.no_deployment",
            f"prefect.yaml has no deployment '{deployment}'{nearest(deployment, known_deployments)}. Add a "
            "line for it, or run another.",
        )
    flow = deployment.partition("/")[0]
    check_writable(home())
    quiet_process()
    request = request_of(deployment, parameters)
    if flow == "train":
        from userrl.run.plan import plan_run
        from userrl.stages.here import finished

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run itself prints them
            plan = plan_run(request)
        done = finished(plan)
        if outdated := plan.outdated:
            print(f"{outdated} A new generation begins.", flush=True)
        if done is None and plan.estimate is not None:
            print(plan.estimate, flush=True)
        return done
    return None


def request_of(deployment: str, parameters: Mapping[str, Any]) -> Any:
    """Return the request of a deployment's flow; None for a flow without one. Raises ConfigError that names every fault."""
    from userrl.run import request as requests

    models: dict[str, type[Settings]] = {
        "train": requests.TrainRequest,
        "distill": requests.DistillRequest,
        "evaluate": requests.EvaluateRequest,
        "sweep": requests.SweepRequest,
    }
    flow, defaults = deployment.partition("/")[0], deployments().get(deployment, {})
    return requests.requested(models[flow], {**defaults, **parameters}, flow) if flow in models else None


def _run(running: Services, deployment: str, parameters: dict[str, Any]) -> int:
    from flows.cli.watch import follow  # Prefect reads its settings when it is imported: only now are they right

    worker, log = running.started[-1][0], running.log("worker")
    return asyncio.run(follow(deployment, parameters, worker=worker, queue=running.queue, log=log))


def parse_parameters(texts: Sequence[str]) -> dict[str, Any]:
    """Return the parameters of words ``KEY=VALUE``. Raises ConfigError also for a key that is given twice."""
    parameters: dict[str, Any] = {}
    for key, value in map(_parsed, texts):
        if key in parameters:
            raise ConfigError("argument.malformed", f"The parameter {key} is given twice. Keep one.")
        parameters[key] = value
    return parameters


def _parsed(text: str) -> tuple[str, Any]:
    """Return a parameter of ``KEY=VALUE``. The value is JSON or a text. Raises ConfigError for anything else."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError("argument.malformed", f"-p needs KEY=VALUE, such as -p seed=1, not '{text}'.")
    try:
        return key, value_of(value.encode(errors="surrogatepass"), f"-p {key}")
    except BrokenFile as error:  # also for an integer of thousands of digits
        if value[:1] in ("{", "["):
            raise ConfigError(
                "argument.malformed",
                f"{error.fact} The value is {value[:200]}. The shell removes double quotes. Put single quotes around "
                "the value: "
                f"""make run {key}='{{"credit.gamma": 0.5}}'.""",
            ) from None
        return key, value


if __name__ == "__main__":
    sys.exit(main())
