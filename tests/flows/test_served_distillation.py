"""GPT-4o as agent and user through the distill flow, against a server on loopback that fails one request in five."""

import asyncio
import json
import re
import subprocess
import sys

import pytest

from curricula import load
from tests.flows.small import environment
from tests.mock_server import Answer, MockServer, _schema, both, fill, prompt_text, tool_call
from userrl.run.tasks import demonstration_tasks, gym_config, users_of
from userrl_core.policies.openai import OpenAIPolicy
from userrl_core.rollout import run_episodes
from userrl_core.served.client import ChatServer
from userrl_core.served.prices import price_of
from warehouse import open_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.usefixtures("prepared_module")]

SECRET = "sk-not-to-be-found-anywhere-4711"
USER = {"kind": "openai", "options": {"model": "gpt-4o", "timeout": 2.5, "retries": 1, "backoff": 0.01}}
SETTINGS = {"demonstrations.episodes": 60, "demonstrations.horizon": 5, "gyms.travel": {"tasks": {"tier": "tiny"}}}
FAULTS = dict.fromkeys(("429", "500", "timeout", "broken_json"), 0.05)
PROGRAM = """
import json, sys
from flows.distill import distill
sys.stdout.write("RESULT " + json.dumps(distill(**json.loads(sys.argv[1])), default=str) + "\\n")
sys.stdout.flush()
"""


def agent(body):
    """Asks twice, searches, and answers with what it was shown; the same words always get the same reply."""
    said = sum(message["role"] == "assistant" for message in body["messages"])
    shown = re.findall(r"H\d+", str(body["messages"][-1]["content"])) or ["H1"]
    calls = [("action", "price?"), ("action", "meal?"), ("search", "hotel"), ("answer", shown[0])]
    return Answer("", [tool_call(*calls[min(said, 3)], said)], "tool_calls")


def agreeable_user(body):
    schema = _schema(body)  # the probe has none
    return Answer(json.dumps(fill(schema, schema, "as you like")) if schema else "as you like")


def played_without_faults():
    """Rewards by task and attempt, from a server that never fails, without flow, process or warehouse."""
    chosen = {"demonstrations.policy": "gpt-4o", "demonstrations.user": USER}
    recipe = load("equalized-r2g", profile="laptop-quick", overrides=SETTINGS | chosen)
    with MockServer(both(agent, agreeable_user)) as server:
        users = {gym: (kind, {**o, "base_url": server.base_url}) for gym, (kind, o) in _served(recipe).items()}
        policy = OpenAIPolicy(ChatServer(base_url=server.base_url))
        tasks = demonstration_tasks(recipe, "travel", 0)[:60]
        played = asyncio.run(
            run_episodes(
                tasks, policy, horizon=5, user=users, gym_config=gym_config(recipe), prompt_style="brief", seed=0
            )
        )
    return {(t.task.id, t.attempt): t.rewards for t in played}


def _served(recipe):
    return {
        gym: user
        for gym, user in users_of(recipe, recipe.training_gyms, role="demonstrate").items()
        if not isinstance(user, str)
    }


@pytest.fixture(scope="module")
def distilled(tmp_path_factory):
    home = tmp_path_factory.mktemp("distilled")
    parameters = {"profile": "laptop-quick", "policy": "gpt-4o", "user": USER, "top_k": 12, "overrides": SETTINGS}
    with MockServer(both(agent, agreeable_user), faults=FAULTS, seed=7) as server:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(parameters)],
            env=environment(home) | {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": server.base_url},
            capture_output=True,
            text=True,
            timeout=1500,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout[-2000:] + done.stderr[-3000:]
    return home, json.loads(lines[0].removeprefix("RESULT ")), server, done.stdout + done.stderr


def ask(home, text):
    with open_warehouse(home / "warehouse") as warehouse:
        return warehouse.sql(text).fetchall()


def test_it_completes_and_keeps_the_best(distilled):
    _, result, server, _ = distilled
    assert set(server.injected) == set(FAULTS)
    assert 0.1 < len(server.injected) / len(server.requests) < 0.3
    assert (result["played"], result["kept"], result["policy"]) == (60, 12, "gpt-4o")
    assert result["dropped"]["not_admitted"] > 0  # a user with one retry gave up now and then


def test_no_fault_became_a_reward(distilled):
    home, *_ = distilled
    expected = played_without_faults()
    admitted = dict(ask(home, "select traj_id, admitted from trajectories"))
    reasons = dict(ask(home, "select traj_id, coalesce(reject_reason, '') from trajectories"))
    rows = ask(home, "select traj_id, task_id, attempt, list(reward order by turn) from turns group by all")
    assert len(admitted) == 60
    assert not any(
        admitted[traj_id] for traj_id in admitted.keys() - {row[0] for row in rows}
    )  # none came to its first turn
    for traj_id, task, attempt, rewards in rows:
        whole = expected[task, attempt]
        if admitted[traj_id]:
            assert rewards == whole
        elif reasons[traj_id].startswith("policy"):  # the agent had no next message; its turns before it stand
            assert rewards == whole[: len(rewards)]
        else:
            assert rewards[-1] is None
            assert rewards[:-1] == whole[: len(rewards) - 1]
    assert ask(
        home, "select count(*) from trajectories where not admitted and coalesce(score, return_sum) is not null"
    ) == [(0,)]


def test_every_request_is_in_the_ledger_with_role_tokens_and_price(distilled):
    home, _, server, _ = distilled
    rows = ask(home, "select role, model, prompt_tokens, completion_tokens, price, attempts, error from model_calls")
    assert {row[0] for row in rows} == {"policy", "user", "judge"}
    probes = sum("Answer with ok." in prompt_text(body) for body in server.requests)  # before the first conversation
    assert sum(row[5] for row in rows) == len(server.requests) - probes
    for _, model, prompt, completion, price, attempts, error in rows:
        assert model == "gpt-4o"
        listed = price_of(model, prompt, completion)
        assert listed is not None
        assert price == pytest.approx(listed.dollars)
        assert (prompt > 0 and completion > 0 and price > 0) or error is not None
        assert attempts >= 1
    assert any(row[6] is not None for row in rows)


def test_the_key_is_in_no_file_and_in_no_log(distilled):
    home, _, _, said = distilled
    assert SECRET not in said
    files = [path for path in home.rglob("*") if path.is_file()]
    assert any(path.suffix == ".db" for path in files)  # the server's own records are among them
    assert [str(path) for path in files if SECRET.encode() in path.read_bytes()] == []
    for table in ("runs", "events", "stages", "tasks", "trajectories", "turns", "model_calls", "metrics"):
        # Sealed segments are compressed, so that their bytes alone would prove nothing.
        assert ask(home, f"select count(*) from {table} t where t::varchar like '%{SECRET}%'") == [(0,)]


def test_the_chats_are_those_of_the_ones_kept(distilled):
    home, result, *_ = distilled
    (chats,) = home.glob("runs/*/stages/distill/chats.jsonl")
    assert chats.read_text().count("\n") == result["kept"]
