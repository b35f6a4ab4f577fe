"""The train flow with backend=verl: the same recipe, the same stages, the same report, on stock verl and a CPU.

The algorithm is rloo with an entropy mask: verl's one trainer of ours, beside the stock one of `test_verl_stages.py`. The model is
a Llama whose template knows no tools, and its calls are lines.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.flows.small import result, start
from tests.llama import llama
from tests.userrl_core.training.verl.rig import REPLIES, SMALL_BATCHES, hardware, on_cpu
from userrl_core.training.local.text.calls import to_line
from userrl_core.training.local.text.chat import ChatFormat
from userrl_core.training.local.text.tokenizer import load_tokenizer
from userrl_core.training.verl.step_plan import HORIZONS
from warehouse import open_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000), pytest.mark.usefixtures("prepared_module")]


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory, forked: str) -> tuple[dict[str, Any], Path, str]:
    home = tmp_path_factory.mktemp("verl-flow") / "home"
    model = llama(home.parent / "model")
    overrides = {
        "model": {"path": str(model), "prompt_style": "brief", "calls": "line"},
        "demonstrations.episodes": 40,
        "demonstrations.top_k": 24,
        "demonstrations.horizon": 6,
        "cold_start": {"steps": 4, "batch": 8, "lr": 1e-3, "cutoff": 384},
        "algorithm": {
            "name": "rloo",
            "entropy_mask": 0.2,
            **SMALL_BATCHES,
        },
        "evaluate": {"every": 2, "tasks": 4, "validation_tasks": 2, "horizon": 6, "gyms": ["travel"]},
        "stages": [
            {"steps": 1, "horizon": 4, "mix": {"travel": 1}},
            {"steps": 2, "horizon": 6, "mix": {"travel": 1, "math": 1}},
        ],
        "curriculum": {"kind": "learnability"},
        "hardware": hardware(forked),
    }
    with pytest.MonkeyPatch.context() as patch:
        on_cpu(patch)
        patch.setenv("USERRL_TEST_REPLIES", json.dumps([to_line(reply) for reply in REPLIES]))
        done, said = result(start(home, flow=True, recipe="equalized-sum", backend="verl", overrides=overrides), 2700)
    return done, home, said


def rows(home: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_warehouse(home / "warehouse") as warehouse:
        return warehouse.sql(sql).fetchall()


def test_every_stage_of_the_recipe_ran_and_reported(flow: tuple[dict[str, Any], Path, str]) -> None:
    _, home, said = flow
    finished = rows(home, "SELECT stage FROM stages WHERE status = 'finished' ORDER BY logged_at")
    assert finished == [("distill",), ("sft",), ("rl-1",), ("rl-2",), ("evaluate",)], said[-3000:]
    assert rows(home, "SELECT DISTINCT backend FROM runs") == [("verl",)]


def test_the_cold_start_lowers_the_loss_and_feeds_the_first_stage(flow: tuple[dict[str, Any], Path, str]) -> None:
    _, home, _ = flow
    losses = rows(home, "SELECT value FROM metrics WHERE stage = 'sft' AND name = 'sft/loss/mean' ORDER BY step")
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    ((checkpoint,),) = rows(home, "SELECT path FROM checkpoints WHERE stage = 'sft'")
    (overrides,) = home.glob("runs/*/stages/rl-1/verl/overrides.txt")
    assert f"actor_rollout_ref.model.path={checkpoint}" in overrides.read_text()


def test_each_step_of_rloo_masks_the_tokens_of_lowest_entropy(flow: tuple[dict[str, Any], Path, str]) -> None:
    _, home, _ = flow
    for step in (1, 2, 3):
        told = dict(rows(home, f"SELECT name, value FROM metrics WHERE step = {step} AND stage LIKE 'rl-%'"))
        assert {"rollout/waits/mean", "rollout/reply_tokens/mean"} <= told.keys()
        share, silent = (told[name] for name in ("policy/entropy_mask/share", "groups/zero_variance/share"))
        # No group is compared when both groups have equal returns. verl's entropies are bfloat16, so many are equal.
        assert share == 0.0 if silent == 1.0 else 0.2 <= share < 1.0
        ((returned, logged),) = rows(
            home,
            f"SELECT (SELECT avg(return_sum) FROM trajectories WHERE phase = 'train' AND admitted AND step = {step}), "
            f"(SELECT count(advantage) FROM turns WHERE phase = 'train' AND step = {step})",
        )
        assert told["rollout/return_sum/mean"] == pytest.approx(returned)
        assert logged > 0


def test_the_horizon_and_the_mix_are_the_stages_own(flow: tuple[dict[str, Any], Path, str]) -> None:
    _, home, _ = flow
    found = rows(
        home,
        "SELECT stage, step, max(horizon), count(*), list(DISTINCT gym ORDER BY gym) FROM trajectories "
        "WHERE phase = 'train' GROUP BY ALL ORDER BY step",
    )
    assert found == [("rl-1", 1, 4, 8, ["travel"])] + [("rl-2", step, 6, 8, ["math", "travel"]) for step in (2, 3)]


def test_each_step_plays_the_tasks_that_the_curriculum_chose_when_the_one_before_had_ended(
    flow: tuple[dict[str, Any], Path, str],
) -> None:
    _, home, _ = flow
    told = {}
    for stage in ("rl-1", "rl-2"):
        (folder,) = home.glob(f"runs/*/stages/{stage}/verl")
        told |= {line["step"]: line["tasks"] for line in map(json.loads, (folder / HORIZONS).open())}
    played = rows(
        home,
        "SELECT step, gym || '/' || task_id, count(*) FROM trajectories WHERE phase = 'train' GROUP BY ALL ORDER BY ALL",
    )
    assert played == [(step, key, 4) for step in (1, 2, 3) for key in sorted(told[step])]
    estimates = rows(home, "SELECT DISTINCT step, gym FROM curriculum() WHERE estimate BETWEEN 0 AND 1 ORDER BY ALL")
    assert estimates == [(1, "travel"), (2, "math"), (2, "travel"), (3, "math"), (3, "travel")]


def test_checkpoints_descend_from_each_other(flow: tuple[dict[str, Any], Path, str]) -> None:
    _, home, _ = flow
    lineage = rows(
        home,
        "SELECT c.stage, c.step, p.stage FROM checkpoints c LEFT JOIN checkpoints p ON p.checkpoint = c.parent "
        "ORDER BY c.logged_at",
    )
    assert lineage == [("sft", 4, None), ("rl-1", 1, "sft"), ("rl-2", 2, "rl-1"), ("rl-2", 3, "rl-2")]


def test_held_out_tasks_compare_the_cold_start_and_what_verl_trained(flow: tuple[dict[str, Any], Path, str]) -> None:
    _, home, _ = flow
    played = rows(
        home, "SELECT policy, gym, count(*) FROM trajectories WHERE phase = 'evaluate' GROUP BY ALL ORDER BY ALL"
    )
    policies = {policy for policy, *_ in played}
    assert {"scripted(skill=0.5)", "SFT", "RL"} <= policies <= {"scripted(skill=0.5)", "SFT", "RL", "RL last step"}
    # Math was trained on, so it is evaluated too.
    assert played == [(policy, gym, 4) for policy in sorted(policies) for gym in ("math", "travel")]


def test_a_line_that_verl_spoke_is_stored_as_the_call_it_means(flow: tuple[dict[str, Any], Path, str]) -> None:
    _, home, _ = flow
    ((spoken, read, lines),) = rows(
        home,
        "SELECT count(*), count(*) FILTER (message LIKE '%<tool_call>%' AND choice IS NOT NULL), "
        "count(*) FILTER (message LIKE 'action:%') FROM turns WHERE phase = 'train'",
    )
    assert read > spoken / 2
    assert lines == 0


def test_verl_reads_the_conversation_token_by_token_as_the_cold_start_did(
    flow: tuple[dict[str, Any], Path, str],
) -> None:
    _, home, _ = flow
    ((checkpoint,),) = rows(home, "SELECT path FROM checkpoints WHERE stage = 'sft'")
    chat = ChatFormat(load_tokenizer(checkpoint))
    turns = rows(
        home,
        "SELECT traj_id, turn, prompt_tokens, token_ids, observation, messages FROM turns JOIN (SELECT traj_id, messages "
        "FROM trajectories) USING (traj_id) WHERE phase <> 'evaluate' AND stage <> 'distill' ORDER BY traj_id, turn",
    )
    assert len(turns) > 30
    read: list[int] = []
    for _, turn, prompt, spoken, heard, messages in turns:
        if turn == 1:
            read = chat.opening(json.loads(messages)[:1])
        assert prompt == len(read)
        read = [*read, *spoken, *chat.after_reply(heard)]
