"""The driver process of an RL stage: ``python -m userrl_core.training.verl.main STAGE_FOLDER``.

It composes and checks the configuration, starts (or joins) Ray, and checks that every node has our plugin. Only then
it runs verl's stock ``verl.trainer.main_ppo``, which finds Ray running. Nothing of verl is replaced.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

from userrl_core.errors import TrainingError, UserRLError
from userrl_core.training.verl.config import compose
from userrl_core.training.verl.credit_actor import ACTOR, CreditActor
from userrl_core.training.verl.job import STAGE_ENV, read_stage_file
from userrl_core.training.verl.machine.node_watch import PATIENCE, NodeWatch

READY = "userrl: plugin registered"
"""The line after which the stage's processes may spend a step."""

QUEUE, QUEUE_NAMESPACE = "TransferQueueController", "transfer_queue"
"""Ray's name of the queue between verl's rollouts and its trainer (TransferQueue 0.1.11)."""

QUEUE_PATIENCE = 60.0
"""Seconds in which Ray removes the queue of a killed start."""


def main(argv: list[str] | None = None) -> int:
    """Run the driver. Return 0 when verl's driver returned, 1 with one ``error:`` line for a refusal before it began."""
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 1:
        print("usage: python -m userrl_core.training.verl.main STAGE_FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    overrides = (folder / "overrides.txt").read_text().splitlines()
    try:
        check_driver()
        config = compose(overrides)
        credit_actor = start_ray(config)
        check_workers(folder, config.trainer.nnodes)
    except UserRLError as error:
        print(error.line, flush=True)
        return 1
    nodes = watched_nodes(config.trainer.nnodes)
    sys.argv = ["verl.trainer.main_ppo", *overrides]
    try:
        runpy.run_module("verl.trainer.main_ppo", run_name="__main__", alter_sys=True)
    except Exception:
        if nodes is not None:
            time.sleep(PATIENCE)  # it may be an effect of a node's death, which the watch then reports
        raise
    del credit_actor  # it lives as long as the driver needs it
    return 0


def check_driver() -> None:
    """Raise TrainingError unless verl knows our estimator in this process."""
    try:
        import verl  # noqa: F401  loads all plugins
    except ImportError as error:
        raise TrainingError(
            "install.missing",
            f"This interpreter ({sys.executable}) cannot import verl ({error}). Install the trainer's "
            "environment (docs/gpu.md), and give its interpreter as hardware.python.",
        ) from error
    facts = facts_of_process()
    if not facts.get("estimator"):
        raise TrainingError("install.missing", f"verl runs without our estimator: {facts['why']}.")


def facts_of_process() -> dict[str, Any]:
    """Return what this process knows of our plugin; ``why`` is the reason it does not load. Runs on every node."""
    try:
        from userrl_core.training.verl.plugin import registered

        return registered()
    except Exception as error:  # noqa: BLE001  whatever it is, it is what verl swallowed
        return {"estimator": False, "why": f"the plugin does not load ({type(error).__name__}: {error})"}


def worker_facts(folder: str) -> dict[str, Any]:
    """Return `facts_of_process` of a Ray worker, which must also read the stage file and open its sink."""
    import socket

    # verl alone, as its own workers import it: the estimator must come in through the entry point.
    import verl  # noqa: F401
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    facts: dict[str, Any] = {"host": socket.gethostname(), "loaded": "userrl" in ADV_ESTIMATOR_REGISTRY}
    if not facts["loaded"]:
        return {**facts_of_process(), **facts}
    try:
        import userrl_core.training.verl.agent_loop  # noqa: F401

        stage = read_stage_file(str(Path(folder) / "stage.json"))
        if stage.sink is not None:
            stage.sink.open().flush()
    except Exception as error:  # noqa: BLE001  reported to the driver, which refuses to go on
        return {**facts, "loaded": False, "why": f"{type(error).__name__}: {error}"}
    return facts


def start_ray(config: Any) -> Any:
    """Start or join Ray as verl's own driver would, and start the credit actor. Return its handle."""
    import ray
    from omegaconf import OmegaConf
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    runtime = get_ppo_ray_runtime_env(config)
    runtime.setdefault("env_vars", {})["TRANSFER_QUEUE_ENABLE"] = "1"
    # A cluster that runs already was started with another environment than this process has.
    for name in json.loads(os.environ.get(STAGE_ENV, "[]")):
        runtime["env_vars"][name] = os.environ[name]
    ray_options = config.ray_kwargs.get("ray_init", {})
    runtime_env = OmegaConf.merge(runtime, ray_options.get("runtime_env", {}))
    settings: Any = OmegaConf.to_container(OmegaConf.create({**ray_options, "runtime_env": runtime_env}), resolve=True)
    temporary = os.environ.get("USERRL_RAY_DIR")
    if temporary and not settings.get("address"):
        settings["_temp_dir"] = temporary
    ray.init(**settings)
    if settings.get("address"):
        await_queue()
    return ray.remote(CreditActor).options(name=ACTOR, num_cpus=0).remote()


def await_queue() -> None:
    """Raise TrainingError if another training uses verl's queue. The one of a start that was killed ends soon after it.

    verl's queue has one name in the whole cluster, and a second training would join it and take the first one's
    conversations.
    """
    import ray

    deadline = time.monotonic() + QUEUE_PATIENCE
    while True:
        try:
            ray.get_actor(QUEUE, namespace=QUEUE_NAMESPACE)
        except ValueError:
            return
        if time.monotonic() > deadline:
            raise TrainingError(
                "hardware.cluster_in_use",
                "Another verl training runs on this Ray cluster, and both would share verl's queue. Wait until it has "
                "ended, or start a Ray cluster of its own for this run.",
            )
        time.sleep(1.0)


def watched_nodes(count: int) -> NodeWatch | None:
    """Start and return the watch on the cluster's nodes; None on one node."""
    import ray

    if count == 1:
        return None
    watch = NodeWatch(ray.nodes)
    watch.start()
    return watch


def check_workers(folder: Path, count: int) -> None:
    """Raise TrainingError unless every node's workers load our plugin, agent loop and sink. count: nodes of the stage."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ask = ray.remote(worker_facts)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    if len(nodes) < count:
        raise TrainingError(
            "hardware.no_cluster",
            f"The Ray cluster has {len(nodes)} of the {count} nodes of hardware.nodes. Start Ray on the others "
            "('ray start --address ...', docs/gpu.md), then start the run again.",
        )
    answers = ray.get(
        [
            ask.options(
                num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False)
            ).remote(str(folder))
            for node in nodes
        ]
    )
    for facts in answers:
        if not facts["loaded"]:
            why = facts.get("why", "the entry point verl.plugins:userrl is not installed there")
            raise TrainingError(
                "install.missing", f"Ray workers on {facts.get('host', 'a node')} run without our plugin: {why}."
            )
    print(f"{READY} in the driver and on {len(answers)} node(s)", flush=True)


if __name__ == "__main__":
    sys.exit(main())
