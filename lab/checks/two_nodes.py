"""Stock verl on two Ray nodes of one host: a node is killed in the rollout, the stage is resumed, and all is compared.

``python -m lab.checks.two_nodes [--output data/two_nodes.json]`` from the repository's root, on a CPU. Each node has a host
name, an address, ports, a temporary folder and a working directory of its own. They share the run's folder. The rollout
engine is that of the tests. Its replies depend on the prompt alone, so that runs can be compared conversation by conversation.

Four runs of the same three steps: two on one node with two training processes, and one on two nodes with one process each,
twice started. verl takes the conversations of a step in the order in which they end, so it adds numbers in another
order in each run. The second run on one node shows how much that alone changes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.userrl_core.training.verl.rig import (
    CPU,
    REPLIES,
    TwoStages,
    cluster,
    make_job,
    make_model,
    on_cpu,
    warehouse_sink,
)
from userrl_core.errors import TrainingError
from userrl_core.rewards import CreditConfig
from userrl_core.training.config import AlgorithmConfig
from userrl_core.training.jobs import StageResult
from userrl_core.training.verl.rl import run_rl
from warehouse import open_warehouse
from warehouse.write.turn_log import TurnLog

STEPS, BATCH, KILLED_STEP = 3, 8, 2
CREDIT = CreditConfig(shaping="equalized", score="sum")
MICRO = 4
"""Conversations of one pass. Two processes train a batch."""

OVERRIDES = (
    *(line for line in CPU if "ray_kwargs" not in line and "micro_batch" not in line),
    f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={MICRO}",
    f"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={MICRO}",
)
REPLY_SECONDS = "0.3"
"""Seconds of a reply, so that a node can be killed within a rollout."""

TURNS = """SELECT t.phase, t.step, t.gym, t.task_id, t.attempt, t.turn, t.choice, t.content, t.observation, t.reward,
    t.completion_tokens, j.horizon, j.stop_reason, t.shaped, t.advantage
    FROM turns t JOIN trajectories j USING (run_id, traj_id) WHERE t.run_id = $run ORDER BY ALL"""
EXACT = 13
"""Columns that must be equal; the others are float32 sums."""


class Node:
    """A Ray node with a host name, ports and folders of its own."""

    def __init__(self, root: Path, name: str, number: int, port: int, gpus: int) -> None:
        self.name, self.address = name, f"127.0.0.{number}"
        work = root / f"work-{name}"
        work.mkdir(exist_ok=True)
        joins = (
            ["--head", f"--port={port}", "--include-dashboard=false"]
            if number == 1
            else [f"--address=127.0.0.1:{port}"]
        )
        ray = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *joins),
            *(f"--node-ip-address={self.address}", f"--num-gpus={gpus}", "--num-cpus=12"),
            *("--min-worker-port=0", "--max-worker-port=0", "--object-store-memory=200000000"),
            f"--temp-dir={root / name}-{secrets.token_hex(2)}",
        ]
        own_name = ["unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', "sh"] if may_unshare() else []
        with (root / f"{name}.txt").open("ab") as output:
            self.process = subprocess.Popen(
                [*own_name, *ray],
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> int:
        """SIGKILL every process of the node at once, as a loss of power would. Return their number."""
        processes = []
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(self.process.pid)
            processes = [root, *root.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=10.0)
        self.process.wait()
        return len(processes)


def may_unshare() -> bool:
    """Return True if this user may give a process a host name of its own."""
    return subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False).returncode == 0


@contextmanager
def nodes(root: Path, gpus: list[int]) -> Iterator[tuple[str, list[Node]]]:
    """Yield the address of a cluster, and its nodes. gpus: training processes of each node."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running: list[Node] = []
    try:
        for number, count in enumerate(gpus, 1):
            running.append(Node(root, f"node-{number}", number, port, count))
            await_nodes(f"127.0.0.1:{port}", number)
        yield f"127.0.0.1:{port}", running
    finally:
        for node in running:
            node.kill()


def await_nodes(address: str, count: int, patience: float = 300.0) -> None:
    """Wait until a cluster has so many living nodes."""
    asked = (
        "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False); "
        "print('living', sum(n['Alive'] for n in ray.nodes()))"
    )
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        answer = subprocess.run([sys.executable, "-c", asked, address], capture_output=True, text=True, check=False)
        if f"living {count}" in answer.stdout:
            return
        time.sleep(1.0)
    raise SystemExit(f"The cluster at {address} does not have {count} nodes: {answer.stdout}{answer.stderr[-2000:]}")


def train(root: Path, run: str, address: str, count: int, on_step: Any = None) -> tuple[StageResult, float]:
    """Train the stage on this cluster; a second call resumes it. Return its result and the seconds."""
    on = cluster(nodes=count, ray_address=address).model_copy(
        update={"gpus": 2 // count, "workers": 2, "overrides": OVERRIDES}
    )
    job = make_job(
        root / run / "rl-1",
        root / "model",
        cluster=on,
        algorithm=AlgorithmConfig(
            name="reinforce_pp",
            batch=BATCH,
            group=1,  # each conversation has a prompt of its own, so its replies do too
            minibatches=1,
            lr=1e-3,
            max_prompt_tokens=256,
            max_tokens=48,
            max_response_tokens=384,
        ),
        credit=CREDIT,
        last_step=STEPS,
        total_steps=STEPS,
        validate_every=STEPS,
        sink=warehouse_sink(root / "warehouse", run),
    )
    began = time.monotonic()
    with TurnLog.open(root / "warehouse", run) as log:
        result = run_rl(job, TwoStages(), log, on_step)
    return result, time.monotonic() - began


def killed_in_rollout(root: Path, address: str, victim: Node) -> dict[str, Any]:
    """Train on two nodes until one is killed in the rollout. Return what was seen."""
    seen: dict[str, Any] = {}

    def kill() -> None:
        live = root / "warehouse" / "runs" / "run=two" / "live"
        while True:
            playing = [path for path in live.glob("turns.*") if f'"step":{KILLED_STEP},'.encode() in path.read_bytes()]
            if len(playing) == 2:  # a rollout worker on each node
                break
            time.sleep(0.02)
        seen["rollout_workers_on"] = sorted({p.stem.rpartition("-")[0] for p in alive.glob("*.json")})
        seen["killed_processes"] = victim.kill()
        seen["killed_at"] = time.monotonic()

    alive = root / "two" / "rl-1" / "verl" / "alive"
    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        train(root, "two", address, 2)
    except TrainingError as error:
        seen["seconds_to_the_sentence"] = round(time.monotonic() - seen.pop("killed_at"), 1)
        seen["sentence"] = str(error)
        return seen
    raise SystemExit("The stage ended although a node was killed.")


def turns(root: Path, run: str) -> list[tuple[Any, ...]]:
    """Return the turns of a run that count."""
    with open_warehouse(root / "warehouse") as warehouse:
        return warehouse.sql(TURNS, run=run).fetchall()


def compared(root: Path, results: Mapping[str, StageResult], first: str, second: str) -> dict[str, Any]:
    """Compare turn log and weights of two runs."""
    a, b = turns(root, first), turns(root, second)
    pairs = [(x, y) for one, other in zip(a, b, strict=False) for x, y in zip(one[EXACT:], other[EXACT:], strict=True)]
    ours, theirs, start = (
        weights_of(folder) for folder in (results[first].checkpoint, results[second].checkpoint, root / "model")
    )
    difference, change = (ours - theirs).abs(), (ours - start).abs()
    return {
        "runs": [first, second],
        "turns": [len(a), len(b)],
        "turns_equal": [row[:EXACT] for row in a] == [row[:EXACT] for row in b],
        "largest_difference_of_a_credit": max(abs(x - y) for x, y in pairs if x is not None and y is not None),
        "weights": int(change.numel()),
        "mean_difference_of_a_weight": float(difference.mean()),
        "mean_change_of_a_weight_by_training": float(change.mean()),
        "largest_difference_of_a_weight": float(difference.max()),
        "largest_change_of_a_weight_by_training": float(change.max()),
    }


def weights_of(folder: Path) -> Any:
    """Return the weights of a Hugging Face folder in one row, by name, in float32."""
    import torch
    from safetensors.torch import load_file

    named = {name: value for path in folder.glob("*.safetensors") for name, value in load_file(path).items()}
    return torch.cat([named[name].float().flatten() for name in sorted(named)])


def counts(root: Path) -> dict[str, Any]:
    """Count the conversations of the run on two nodes that are lost, doubled or incomplete; and its writers and rewinds."""
    with open_warehouse(root / "warehouse") as warehouse:
        groups = warehouse.sql(
            "SELECT step, count(*), count(DISTINCT (gym, task_id, attempt)) FROM trajectories "
            "WHERE run_id = 'two' AND phase = 'train' GROUP BY step ORDER BY step"
        ).fetchall()
        incomplete = warehouse.sql(
            "SELECT count(*) FROM trajectories j WHERE run_id = 'two' "
            "AND turns <> (SELECT count(*) FROM turns t WHERE t.run_id = j.run_id AND t.traj_id = j.traj_id)"
        ).fetchall()
        writers = warehouse.sql(
            "SELECT step, list(n ORDER BY n) FROM (SELECT step, traj_id >> 24 AS writer, count(*) AS n FROM trajectories "
            "WHERE run_id = 'two' AND phase = 'train' GROUP BY ALL) GROUP BY step ORDER BY step"
        ).fetchall()
        counted = warehouse.sql("SELECT count(*) FROM turns WHERE run_id = 'two' AND step = $step", step=KILLED_STEP)
        counted_turns = counted.fetchall()[0][0]
        rewinds = warehouse.sql("SELECT step FROM events WHERE run_id = 'two' AND kind = 'rewind'").fetchall()
    written = sum(
        path.read_bytes().count(f'"step":{KILLED_STEP},'.encode())
        for path in (root / "warehouse" / "runs" / "run=two" / "live").glob("turns.*")
    )
    return {
        "conversations_of_each_step": [n for _, n, _ in groups],
        "different_ones": [n for _, _, n in groups],
        "incomplete": incomplete[0][0],
        "conversations_of_each_writer_by_step": [n for _, n in writers],
        "rewound_to_step": [step for (step,) in rewinds],
        "turns_written_of_the_killed_step": written,
        "turns_of_it_that_count": counted_turns,
    }


def main() -> int:
    """Run all of it and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("data/two_nodes.json"))
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and warehouse")
    arguments = parser.parse_args()
    # Ray's sockets lie in the temporary folder, and their paths may have 107 bytes at most.
    root = Path(tempfile.mkdtemp(prefix="two-", dir="/tmp"))
    print(f"in {root}", flush=True)
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        on_cpu(patch)
        patch.setenv("USERRL_TEST_REPLY_BY", "prompt")
        patch.setenv("USERRL_TEST_REPLY_SECONDS", REPLY_SECONDS)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(root / "token"))
        (root / "token").write_text(secrets.token_hex(32))
        (root / "token").chmod(0o600)
        figures = story(root)
    print(json.dumps(figures, indent=1))
    arguments.output.write_text(json.dumps(figures, indent=1) + "\n")
    if not arguments.keep:
        subprocess.run(["rm", "-rf", str(root)], check=True)
    return 0 if figures["one_node_and_two_nodes"]["turns_equal"] else 1


def story(root: Path) -> dict[str, Any]:
    """Train on one node, twice, then on two nodes with a kill. Return the figures."""
    chats = [
        {"messages": [{"role": "user", "content": "A trip?"}, {"role": "assistant", "content": text}]}
        for text in REPLIES
    ]
    make_model(root / "model", chats)
    results: dict[str, StageResult] = {}
    seconds: dict[str, float] = {}
    with nodes(root, [1, 1]) as (address, (_, second)):
        began = time.monotonic()
        killed = killed_in_rollout(root, address, second)
        seconds["two nodes, to the sentence"] = time.monotonic() - began
        print(json.dumps(killed, indent=1), flush=True)
        refusal = ""
        try:
            train(root, "two", address, 2)
        except TrainingError as error:
            refusal = str(error)
        port = int(address.rpartition(":")[2])
        again = Node(root, "node-2", 2, port, 1)
        try:
            await_nodes(address, 2)
            results["two"], seconds["two nodes, resumed"] = train(root, "two", address, 2)
        finally:
            again.kill()
    print(json.dumps(counts(root)), flush=True)
    with nodes(root, [2]) as (address, _):
        for run in ("one", "again"):
            results[run], seconds[f"one node, {run}"] = train(root, run, address, 1)
    return {
        "command": "python -m lab.checks.two_nodes",
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip(),
        "machine": f"{os.cpu_count()} cores with other work, {platform.machine()}, Python {platform.python_version()}",
        "load_of_the_last_15_minutes": round(os.getloadavg()[2], 1),
        "host_names": "own (unshare --uts)" if may_unshare() else "shared",
        "seed": 7,
        "killed": killed,
        "without_the_second_node": refusal,
        "two_nodes": counts(root),
        "one_node_and_two_nodes": compared(root, results, "one", "two"),
        "one_node_twice": compared(root, results, "one", "again"),
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
