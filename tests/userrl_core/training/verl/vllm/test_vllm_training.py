"""Stock verl with real vLLM as its rollout engine and our agent loop, on a CPU: two stages, and an engine that dies three times.

One story, told once: stage rl-1, steps 1 and 2, whose engine is killed when its last step is done; stage rl-2, steps 3 to 5,
whose engine dies while it takes the weights of step 4, then while it speaks in step 5, and which goes on each time. Each test
looks at one side.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.userrl_core.training.verl.rig import TwoStages, cluster, make_job, warehouse_sink
from tests.userrl_core.training.verl.test_verl_stages import RUN, in_log, kill_one, leftovers
from tests.userrl_core.training.verl.vllm.conftest import ENGINE
from userrl.run.alarms import SERIES, alarm_rules, tripped
from userrl_core.distill import write_chats
from userrl_core.errors import TrainingError
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.rollout import run_episodes
from userrl_core.training.config import AlgorithmConfig, ModelConfig, SftConfig
from userrl_core.training.jobs import SftJob, StageResult
from userrl_core.training.local.sft import train_sft
from userrl_core.training.verl.rl import run_rl
from warehouse import open_warehouse

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]

PACKED = (
    "actor_rollout_ref.model.use_remove_padding=True",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    "actor_rollout_ref.model.enable_gradient_checkpointing=True",
)
"""As on a GPU."""


@dataclass
class Story:
    """What happened. seen: seconds from an engine's death to the stage's sentence, by moment."""

    root: Path
    first: StageResult
    second: StageResult
    sentences: dict[str, str]
    seen: dict[str, float]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with open_warehouse(self.root / "warehouse") as warehouse:
            return warehouse.sql(sql).fetchall()


def stage(
    root: Path, python: Path, init: Path, overrides: tuple[str, ...], on_step: Callable[[int], None], **more: Any
) -> StageResult:
    """Play one stage: two tasks a step, four attempts each, replies of at most 16 tokens."""
    name = more["stage"]
    job = make_job(
        root / name,
        init,
        algorithm=AlgorithmConfig(
            batch=2,
            group=4,
            minibatches=1,
            lr=3e-3,
            max_prompt_tokens=256,
            max_tokens=16,
            max_response_tokens=256,
        ),
        cluster=cluster(python=str(python)).model_copy(update={"engine": "vllm", "overrides": overrides}),
        on_format_error="continue",
        validation=[],
        sink=warehouse_sink(root / "warehouse", RUN),
        **more,
    )
    return in_log(root, lambda log, _: run_rl(job, TwoStages(), log, lambda step, total, numbers: on_step(step)))


def cold_start(folder: Path) -> Path:
    """A Qwen3 of half a million weights that has read demonstrations: it calls, and its attempts earn rewards that differ."""
    shown = asyncio.run(run_episodes(TwoStages().pool, ScriptedPolicy(1.0), horizon=6, prompt_style="brief"))
    write_chats(folder / "chats.jsonl", shown)
    job = SftJob(
        model=ModelConfig(prompt_style="brief", max_context=1024),
        out_dir=folder,
        sft=SftConfig(steps=32, batch=8, lr=3e-3, cutoff=384),
        chats=folder / "chats.jsonl",
        checkpoint_every=32,
    )
    return train_sft(job).checkpoint


@pytest.fixture(scope="module")
def story(on_vllm: Path, tmp_path_factory: pytest.TempPathFactory) -> Story:
    root = tmp_path_factory.mktemp("vllm")
    kill = Path(os.environ["USERRL_TEST_KILL"])
    sentences: dict[str, str] = {}
    seen: dict[str, float] = {}

    def play(name: str, init: Path, first: int, last: int, on_step: Callable[[int], None]) -> StageResult:
        return stage(root, on_vllm, init, ENGINE, on_step, stage=name, first_step=first, last_step=last)

    def dies(moment: str, step: int) -> None:
        with pytest.raises(TrainingError) as told:
            play("rl-2", one.checkpoint, 3, 5, lambda done: (kill / moment).touch() if done == step else None)
        sentences[moment] = str(told.value)
        seen[moment] = time.time() - (kill / moment).with_suffix(".died").stat().st_ctime

    def kill_at_the_end(done: int) -> None:
        if done == 2:
            kill_one(root / "rl-1" / "verl", "EngineCore")

    start = cold_start(root / "sft")
    try:
        play("rl-1", start, 1, 2, kill_at_the_end)
    except TrainingError as told:
        sentences["between"] = str(told)
    one = play("rl-1", start, 1, 2, lambda done: None)
    dies("sync", 3)
    dies("rollout", 4)
    two = play("rl-2", one.checkpoint, 3, 5, lambda done: None)
    return Story(root, one, two, sentences, seen)


def test_every_step_is_trained_once_and_leaves_its_checkpoint(story: Story) -> None:
    assert (story.first.step, story.second.step) == (2, 5)
    known = story.rows("SELECT DISTINCT stage, step FROM checkpoints ORDER BY step")
    assert known == [("rl-1", 1), ("rl-1", 2), ("rl-2", 3), ("rl-2", 4), ("rl-2", 5)]
    assert story.rows("SELECT count(DISTINCT sha256) FROM checkpoints") == [(5,)]


def test_replies_of_vllm_earn_rewards_and_advantages_that_differ(story: Story) -> None:
    """Weights that move by these alone, and not by an entropy bonus: so the engine is sent new ones, and speaks with them."""
    credited = story.rows("SELECT DISTINCT step FROM turns WHERE phase = 'train' AND advantage <> 0 ORDER BY step")
    assert len(credited) >= 2
    ((called, turns),) = story.rows("SELECT count(choice), count(*) FROM turns WHERE phase = 'train' AND step = 1")
    assert called > turns / 2  # so large a step unlearns it later


def test_an_engine_that_dies_is_seen_within_a_minute(story: Story) -> None:
    assert set(story.seen) == {"sync", "rollout"}
    assert all(seconds < 60.0 for seconds in story.seen.values()), story.seen
    assert all("output.txt" in sentence or "engine died" in sentence for sentence in story.sentences.values())


def test_no_turn_is_lost_or_doubled_by_the_deaths(story: Story) -> None:
    doubled = story.rows(
        "SELECT run_id, phase, step, gym, task_id, attempt, turn FROM turns GROUP BY ALL HAVING count(*) > 1"
    )
    assert doubled == []
    attempts = story.rows("SELECT step, count(*) FROM trajectories WHERE phase = 'train' GROUP BY step ORDER BY step")
    assert attempts == [(step, 8) for step in (1, 2, 3, 4, 5)]
    assert story.rows(
        "SELECT count(*) FROM trajectories t WHERE t.turns <> (SELECT count(*) FROM turns u WHERE u.traj_id = t.traj_id)"
    ) == [(0,)]


def test_vllm_and_the_trainer_give_the_sampled_tokens_the_same_probabilities(story: Story) -> None:
    """In k3, of bfloat16 against bfloat16; their correlation says less the more even the probabilities are."""
    apart = story.rows("SELECT step, value FROM metrics WHERE name = 'verl/rollout_corr/k3_kl' ORDER BY step")
    assert {step for step, _ in apart} == {1, 2, 3, 4, 5}
    assert all(abs(value) < 1e-3 for _, value in apart), apart


def test_no_process_of_a_dead_engine_is_left(story: Story) -> None:
    assert leftovers(story.root) == []


def test_an_engine_that_takes_no_new_weights_is_told_by_an_alarm(on_vllm: Path, tmp_path: Path) -> None:
    stale = Path(os.environ["USERRL_TEST_KILL"]) / "stale"

    def on_step(done: int) -> None:
        if done == 1:
            stale.touch()

    start = cold_start(tmp_path / "sft")
    try:
        stage(tmp_path, on_vllm, start, ENGINE, on_step, stage="rl-1", first_step=1, last_step=6)
    finally:
        stale.unlink(missing_ok=True)
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        series = warehouse.sql(SERIES, run=RUN, branch="")
        rows = [dict(zip(series.columns, row, strict=True)) for row in series.fetchall()]
    assert abs(rows[0]["engine_gap"]) < 1e-3
    alarms = alarm_rules({})
    first = next(
        row["step"] for n, row in enumerate(rows, 1) if "engine_gap" in {a.name for a in tripped(rows[:n], alarms)}
    )
    assert 3 <= first <= 6, [row["engine_gap"] for row in rows]


def test_packed_sequences_dynamic_batches_and_checkpointing_train_as_well(on_vllm: Path, tmp_path: Path) -> None:
    off = {override.split("=")[0] for override in PACKED}
    overrides = (*(override for override in ENGINE if override.split("=")[0] not in off), *PACKED)
    start = cold_start(tmp_path / "sft")
    done = stage(tmp_path, on_vllm, start, overrides, lambda step: None, stage="rl-1", first_step=1, last_step=2)
    assert done.step == 2
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        apart = warehouse.sql(
            "SELECT value FROM metrics WHERE name = 'verl/rollout_corr/k3_kl' ORDER BY step"
        ).fetchall()
        assert warehouse.sql("SELECT count(DISTINCT sha256) FROM checkpoints").fetchall() == [(2,)]
    assert len(apart) == 2
    assert all(abs(value) < 1e-3 for (value,) in apart), apart
