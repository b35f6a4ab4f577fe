"""The training loop: its log, the trajectories that it excludes, and its exact resume."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.makers import raises
from tests.mock_server import Answer, Body, MockServer, modest_user, prompt_text
from tests.userrl_core.training.toys import TINY, ListCurriculum, RecordingSink, rl_job, sft_job, travel
from userrl_core.gyms import tasks
from userrl_core.records import Trajectory
from userrl_core.rewards import CreditConfig, turn_advantages
from userrl_core.rewards.judge import JudgeConfig
from userrl_core.training.config import AlgorithmConfig, SftConfig
from userrl_core.training.jobs import RlJob, StageResult
from userrl_core.training.local.checkpoint import step_folder, write_checkpoint
from userrl_core.training.local.loop import train_rl
from userrl_core.training.local.sft import train_sft
from userrl_core.training.local.stage.clock import StepClock
from userrl_core.training.local.stage.restart import Restart

STAGES = ((2, 4), (4, 5))


class Interrupted(Exception):
    pass


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> StageResult:
    return train_sft(sft_job(tmp_path_factory.mktemp("cold"), sft=SftConfig(steps=60, lr=5e-3, batch=16)))


def make_curriculum() -> ListCurriculum:
    return ListCurriculum(travel(count=10), STAGES)


def algorithm(**changes: Any) -> AlgorithmConfig:
    settings: dict[str, Any] = {"group": 4, "batch": 4, "minibatches": 2, "lr": 1e-3, "max_tokens": 24}
    return AlgorithmConfig(**settings | {"max_response_tokens": 160} | changes)


def interrupt_after(step: int) -> Any:
    def progress(number: int, total: int, metrics: Mapping[str, float]) -> None:
        if number == step:
            raise Interrupted

    return progress


def test_every_turn_is_logged_with_the_credit_that_follows_from_the_rewards(tmp_path: Path, start: StageResult) -> None:
    sink = RecordingSink()
    credit = CreditConfig(shaping="em", score="r2g", filter="keep")
    train_rl(rl_job(tmp_path, start.checkpoint, credit=credit), make_curriculum(), sink)
    trained = [t for t in sink.ended if t.context.phase == "train"]
    assert len(trained) == 2 * 4 * 4
    assert len(sink.turns) == sum(len(t.turns) for t in sink.ended)
    groups = [f"{t.context.step}/{t.group}" for t in trained]
    expected = turn_advantages(
        [t.rewards for t in trained], groups, shaping="em", score="r2g",
        turn_tokens=[[turn.completion_tokens for turn in t.turns] for t in trained],
    )  # fmt: skip
    for trajectory, row in zip(trained, expected, strict=True):
        assert trajectory.traj_id is not None
        shaped, logged = sink.credited[trajectory.traj_id]
        assert logged == pytest.approx(row, abs=1e-6)
        assert len(shaped) == len(trajectory.turns)
    assert {t.task.key for t in trained} <= sink.task_keys


def test_a_step_logs_its_metrics(tmp_path: Path, start: StageResult) -> None:
    sink = RecordingSink()
    near = {"reference": start.checkpoint, "algorithm": algorithm(kl_coef=1e-6)}
    job = rl_job(tmp_path, start.checkpoint, validation=travel("validation", 0, 5), **near)
    result = train_rl(job, make_curriculum(), sink)
    before, first, last = (values for _, _, values in sink.measured)
    assert set(before) > {"validate/return_sum/mean", "validate/score/mean"}
    for name in (
        "rollout/return_sum/mean", "rollout/score/mean", "policy/entropy/mean", "policy/kl_step/mean",
        "policy/kl_reference/mean", "policy/clip/share", "policy/grad_norm/mean", "rollout/reply_tokens/mean",
        "rollout/waits/mean", "rollout/format_valid/share", "groups/all_good/share", "groups/all_bad/share",
        "credit/push_group/share", "credit/push_turn/share", "credit/silent_below/share",
        "groups/mixed/share", "rollout/stop_horizon/share", "seconds/rollout/sum", "seconds/update/sum",
        "curriculum/horizon/value", "curriculum/at/value", "tokens/all/sum", "tokens/agent/sum", "seconds/cpu/sum",
    ):  # fmt: skip
        assert name in first, name
    assert first["policy/kl_reference/mean"] == pytest.approx(0, abs=2e-2)
    assert first["policy/logprob_gap/max"] < 1e-4
    assert last["validate/attempts/count"] == 5
    assert result.metrics == last
    stops = [value for name, value in first.items() if name.startswith("rollout/stop_")]
    assert sum(stops) == pytest.approx(1)


def test_without_a_weight_on_the_distance_nothing_is_measured_against_the_reference(
    tmp_path: Path, start: StageResult
) -> None:
    sink = RecordingSink()
    train_rl(rl_job(tmp_path, start.checkpoint, reference=start.checkpoint), make_curriculum(), sink)
    assert all("policy/kl_reference/mean" not in values for _, _, values in sink.measured)


def test_steps_filled_by_tokens_hold_as_many_tokens_at_every_horizon(tmp_path: Path, start: StageResult) -> None:
    sink = RecordingSink()
    job = rl_job(tmp_path, start.checkpoint, last_step=12, algorithm=algorithm(batch=2, batch_tokens=500))
    train_rl(job, ListCurriculum(travel(count=10), ((4, 2), (8, 6), (12, 3))), sink)
    tokens = [values["tokens/all/sum"] for _, _, values in sink.measured]
    played = [values["rollout/attempts/count"] for _, _, values in sink.measured]
    assert sum(values["tokens/agent/sum"] for _, _, values in sink.measured) == sum(
        turn.completion_tokens for _, turn in sink.turns
    )
    assert sum(tokens) == pytest.approx(12 * 500, abs=max(tokens) / 2 + 100)
    assert len(set(played)) > 2


def test_validation_uses_the_final_horizon_and_chooses_the_best_checkpoint(tmp_path: Path, start: StageResult) -> None:
    sink = RecordingSink()
    job = rl_job(
        tmp_path, start.checkpoint, validation=travel("validation", 0, 5), validate_every=1, validation_horizon=6
    )
    result = train_rl(job, make_curriculum(), sink)
    validated = [t for t in sink.ended if t.context.phase == "validate"]
    assert [t.context.step for t in validated] == [step for step in (0, 1, 2) for _ in range(5)]
    assert {t.horizon for t in validated} == {6}
    scores = {record.step: record.score for record in sink.checkpoints}
    assert result.best is not None
    assert result.best.score == max(s for s in scores.values() if s is not None)
    assert result.best.step == min(step for step, score in scores.items() if score == result.best.score)
    assert result.best.path.is_dir()


def test_the_first_validation_is_of_the_initial_model(tmp_path: Path, start: StageResult) -> None:
    sink = RecordingSink()
    train_rl(rl_job(tmp_path, start.checkpoint, validation=travel("validation", 0, 2)), make_curriculum(), sink)
    assert (sink.checkpoints[0].step, sink.checkpoints[0].sha256) == (0, start.sha256)
    assert sink.checkpoints[0].parent == start.id


def identity(trajectories: list[Trajectory]) -> list[Any]:
    return [
        (
            t.context.stage,
            t.context.step,
            t.task.key,
            t.attempt,
            t.horizon,
            turn.number,
            turn.token_ids,
            turn.logprobs,
            turn.reward,
        )
        for t in trajectories
        for turn in t.turns
    ]


def run_stages(folder: Path, start: StageResult, sink: RecordingSink, **changes: Any) -> StageResult:
    """Two stages, each a job of its own, the second continuing the first."""
    first = train_rl(rl_job(folder / "1", start.checkpoint, **changes), make_curriculum(), sink)
    settings = {"first_step": 3, "last_step": 4, "best": first.best} | changes
    return train_rl(rl_job(folder / "2", first.checkpoint, **settings), make_curriculum(), sink)


@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_an_interrupted_run_continues_to_the_same_tokens_and_weights(
    tmp_path: Path, start: StageResult, name: str
) -> None:
    changes = {"algorithm": algorithm(name=name, lr=1e-3, critic_lr=1e-3)}
    uninterrupted_sink, sink = RecordingSink(), RecordingSink()
    uninterrupted = run_stages(tmp_path / "uninterrupted", start, uninterrupted_sink, **changes)

    first = rl_job(tmp_path / "interrupted" / "1", start.checkpoint, **changes)
    with pytest.raises(Interrupted):
        train_rl(first, make_curriculum(), sink, interrupt_after(1))
    after_first = train_rl(first, make_curriculum(), sink)
    second = rl_job(tmp_path / "interrupted" / "2", after_first.checkpoint, first_step=3, last_step=4, **changes)
    with pytest.raises(Interrupted):
        train_rl(second, make_curriculum(), sink, interrupt_after(3))
    resumed = train_rl(second, make_curriculum(), sink)

    assert resumed.sha256 == uninterrupted.sha256
    assert identity(sink.ended) == identity(uninterrupted_sink.ended)
    assert {t.context.stage: t.horizon for t in sink.ended} == {"rl-1": 4, "rl-2": 5}


def test_steps_after_the_last_checkpoint_are_rewound_and_played_again(tmp_path: Path, start: StageResult) -> None:
    uninterrupted_sink, interrupted_sink, resumed_sink = RecordingSink(), RecordingSink(), RecordingSink()
    uninterrupted = train_rl(
        rl_job(tmp_path / "uninterrupted", start.checkpoint, checkpoint_every=5), make_curriculum(), uninterrupted_sink
    )
    job = rl_job(tmp_path / "interrupted", start.checkpoint, checkpoint_every=5)
    with pytest.raises(Interrupted):
        train_rl(job, make_curriculum(), interrupted_sink, interrupt_after(1))
    resumed = train_rl(job, make_curriculum(), resumed_sink)
    assert ("rewind", {"stage": "rl-1", "step": -1}) in resumed_sink.events
    assert identity(resumed_sink.ended) == identity(uninterrupted_sink.ended)
    assert resumed.sha256 == uninterrupted.sha256


def test_a_finished_stage_is_not_trained_again(tmp_path: Path, start: StageResult) -> None:
    job = rl_job(tmp_path, start.checkpoint)
    first, sink = train_rl(job, make_curriculum(), RecordingSink()), RecordingSink()
    assert train_rl(job, make_curriculum(), sink).sha256 == first.sha256
    assert (sink.ended, sink.events) == ([], [])


def test_a_damaged_checkpoint_is_skipped_and_its_steps_are_played_again(tmp_path: Path, start: StageResult) -> None:
    job = rl_job(tmp_path, start.checkpoint)
    first = train_rl(job, make_curriculum(), RecordingSink())
    (first.checkpoint / "model.safetensors").write_bytes(b"torn")
    sink = RecordingSink()
    assert train_rl(job, make_curriculum(), sink).sha256 == first.sha256
    assert [kind for kind, _ in sink.events] == ["checkpoint_passed_over", "rewind"]
    assert {t.context.step for t in sink.ended} == {2}


@pytest.mark.parametrize(("checkpoint", "last_kept"), [(True, 3), (False, -1)])
def test_a_stage_with_a_name_that_is_done_again_leaves_the_log_of_later_stages(
    tmp_path: Path, checkpoint: bool, last_kept: int
) -> None:
    job, sink = rl_job(tmp_path, tmp_path / "start", stage="rl-2", first_step=3, last_step=5), RecordingSink()
    Restart(job, sink).rewind("rl-2", 2, finished=False)
    assert sink.events == []
    if checkpoint:
        folder = step_folder(job.out_dir / "checkpoints", 3)
        write_checkpoint(folder, lambda path: (path / "model.safetensors").touch(), stage="rl-2", step=3)
    Restart(job, sink).rewind("rl-2", 3 if checkpoint else 2, finished=False)
    # From its start it may begin at another step than before: the stage before it may have a limit in seconds.
    assert sink.events == [("rewind", {"stage": "rl-2", "step": last_kept, "scope": "stage"})]
    # A killed start may have written the checkpoint without its row.
    assert [record.step for record in sink.checkpoints] == [3] * checkpoint


def test_a_missing_or_incomplete_start_is_refused(tmp_path: Path, start: StageResult) -> None:
    with raises("checkpoint.missing"):
        train_rl(rl_job(tmp_path, tmp_path / "nowhere"), make_curriculum(), RecordingSink())
    with raises("checkpoint.wrong_step", "step 3"):
        train_rl(rl_job(tmp_path, start.checkpoint, first_step=3, last_step=4), make_curriculum(), RecordingSink())


def test_a_stage_cannot_skip_steps(tmp_path: Path, start: StageResult) -> None:
    first = train_rl(rl_job(tmp_path / "1", start.checkpoint), make_curriculum(), RecordingSink())
    with raises("checkpoint.wrong_step", "step 2", "step 4"):
        train_rl(
            rl_job(tmp_path / "2", first.checkpoint, first_step=4, last_step=4), make_curriculum(), RecordingSink()
        )


def served(server: MockServer) -> Any:
    return ("openai", {"model": "m", "base_url": server.base_url, "retries": 0})


def no_judgement_of_messages(body: Body) -> Answer:
    """An empty reply, which is a failure, for every message to be judged."""
    return Answer("") if '"preference_id"' in json.dumps(body) else modest_user(body)


def test_a_judge_s_rewards_are_what_credit_is_computed_from_and_the_gym_s_are_what_is_logged(
    tmp_path: Path, start: StageResult
) -> None:
    sink = RecordingSink()
    desk = tasks("tau", "train")[:6]
    job = rl_job(
        tmp_path,
        start.checkpoint,
        judge=JudgeConfig(model="rule"),
        credit=CreditConfig(score="sum", filter="keep"),
        validation=tasks("tau", "validation")[:2],
        on_format_error="continue",
    )
    train_rl(job, ListCurriculum(desk, STAGES), sink)
    trained = [t for t in sink.ended if t.context.phase == "train"]
    assert sink.judged == trained
    assert all(t.judgement is None for t in sink.ended if t.context.phase == "validate")
    expected = turn_advantages(
        [t.judgement.rewards for t in trained if t.judgement],
        [f"{t.context.step}/{t.group}" for t in trained],
        score="sum",
    )
    for trajectory, row in zip(trained, expected, strict=True):
        assert sink.credited[trajectory.traj_id or 0][1] == pytest.approx(row, abs=1e-6)
    last = sink.measured[-1][2]
    assert last["judge/failed/share"] + last["judge/good_attempt/share"] == 1.0
    assert last["rollout/return_sum/mean"] == 0.0


def test_trajectories_without_a_score_are_logged_and_never_trained_on(tmp_path: Path, start: StageResult) -> None:
    sink = RecordingSink()
    with MockServer(no_judgement_of_messages) as server:
        train_rl(rl_job(tmp_path, start.checkpoint, users={"travel": served(server)}), make_curriculum(), sink)
    rejected = [t for t in sink.ended if not t.admitted]
    assert rejected
    assert {str(t.reject_reason).split(" (")[0] for t in rejected} == {"judge: m gave no usable reply in 1 attempts"}
    assert not {t.traj_id for t in rejected} & set(sink.credited)
    assert sink.measured[0][2]["rollout/admitted/share"] < 1
    assert sink.measured[0][2]["credit/null/count"] == sum(t.context.step == 1 for t in rejected)


def test_a_stage_without_an_update_is_logged_as_nothing_learnt(tmp_path: Path) -> None:
    untrained = train_sft(sft_job(tmp_path, sft=SftConfig(enabled=False)))
    sink = RecordingSink()
    result = train_rl(rl_job(tmp_path, untrained.checkpoint), make_curriculum(), sink)
    assert ("nothing_learnt", {"stage": "rl-1", "step": 2}) in sink.events
    assert result.sha256 == untrained.sha256
    assert sink.measured[0][2]["groups/all_bad/share"] == 1


def test_groups_without_a_signal_are_replaced_up_to_the_limit(tmp_path: Path) -> None:
    untrained = train_sft(sft_job(tmp_path, sft=SftConfig(enabled=False)))
    sink, curriculum = RecordingSink(), ListCurriculum(travel(count=40))
    credit = CreditConfig(filter="resample", resample_limit=2)
    train_rl(rl_job(tmp_path, untrained.checkpoint, credit=credit, last_step=1), curriculum, sink)
    assert sink.measured[0][2]["groups/resampled/count"] == 8
    assert len(sink.ended) == (4 + 8) * 4
    assert len({t.task.key for t in sink.ended}) == 12


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "rloo"},
        {"name": "reinforce_pp", "group": 1, "batch": 12},
        {"name": "remax", "group": 1, "batch": 12},
        {"name": "ppo", "assignment": "trajectory", "critic_warmup": 1},
        {"kl_coef": 0.1, "entropy_coef": 0.01, "dual_clip": 3.0, "entropy_mask": 0.2, "clip_high": 0.28},
        {"loss_aggregation": "token_mean", "inner_epochs": 2, "top_p": 0.9, "warmup_steps": 4},
    ],
)
def test_every_algorithm_and_option_moves_the_weights(
    tmp_path: Path, start: StageResult, changes: dict[str, Any]
) -> None:
    job = rl_job(tmp_path, start.checkpoint, reference=start.checkpoint, algorithm=algorithm(**changes))
    sink = RecordingSink()
    assert train_rl(job, make_curriculum(), sink).sha256 != start.sha256
    updates = [values["policy/updates/count"] for _, _, values in sink.measured]
    assert sum(updates) > 0
    warm = changes.get("warmup_steps", 1)
    assert [values["policy/lr/value"] for _, _, values in sink.measured] == [
        1e-3 * min(step / warm, 1) for step in (1, 2)
    ]
    if changes.get("name") == "ppo":
        assert updates[0] == 0
        assert "critic/explained_variance/mean" in sink.measured[0][2]


def test_remax_plays_one_greedy_conversation_per_task_that_no_metric_of_training_counts(
    tmp_path: Path, start: StageResult
) -> None:
    sink = RecordingSink()
    train_rl(rl_job(tmp_path, start.checkpoint, algorithm=algorithm(name="remax")), make_curriculum(), sink)
    trained = [t for t in sink.ended if t.context.phase == "train" and t.context.step == 1]
    greedy = [t for t in sink.ended if t.context.phase == "baseline" and t.context.step == 1]
    assert (len(trained), len(greedy)) == (16, 4)
    assert {t.task.key for t in greedy} == {t.task.key for t in trained}
    returns = {t.task.key: turn_return(t) for t in greedy}
    assert len({t.traj_id for t in greedy} & set(sink.credited)) == 0
    for trajectory in trained:
        _, advantage = sink.credited[int(trajectory.traj_id or 0)]
        assert advantage == pytest.approx([turn_return(trajectory) - returns[trajectory.task.key]] * len(advantage))
    metrics = sink.measured[0][2]
    assert metrics["rollout/attempts/count"] == 16
    assert metrics["rollout/return_sum/mean"] == pytest.approx(sum(sum(map(float, t.rewards)) for t in trained) / 16)
    assert metrics["credit/baseline/mean"] == pytest.approx(sum(returns.values()) / 4)


def turn_return(trajectory: Trajectory) -> float:
    return sum(0.8**t * float(reward or 0.0) for t, reward in enumerate(trajectory.rewards))


def test_remax_resumes_to_the_same_weights(tmp_path: Path, start: StageResult) -> None:
    changes = {"algorithm": algorithm(name="remax"), "last_step": 3}
    whole = train_rl(rl_job(tmp_path / "a", start.checkpoint, **changes), make_curriculum(), RecordingSink())
    job = rl_job(tmp_path / "b", start.checkpoint, **changes)
    with pytest.raises(Interrupted):
        train_rl(job, make_curriculum(), RecordingSink(), interrupt_after(2))
    assert train_rl(job, make_curriculum(), RecordingSink()).sha256 == whole.sha256


def test_a_kl_term_needs_a_reference_model(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a reference model"):
        rl_job(tmp_path, tmp_path, algorithm=algorithm(kl_coef=0.1))


def test_a_job_is_equal_after_json(tmp_path: Path) -> None:
    job = rl_job(
        tmp_path, tmp_path, validation=travel(count=2), users={"travel": ("openai", {"model": "m"})}, model=TINY
    )
    assert RlJob.model_validate_json(job.model_dump_json()) == job


class Outage:
    """A served user that is down (its replies are empty) until the third probe; logs the finished trajectories per probe."""

    def __init__(self, sink: RecordingSink) -> None:
        self.sink = sink
        self.finished_at_probe: list[int] = []

    def __call__(self, body: Body) -> Answer:
        if "Answer with ok." in prompt_text(body):
            self.finished_at_probe.append(len(self.sink.ended))
        return modest_user(body) if len(self.finished_at_probe) >= 3 else Answer("")


def test_training_waits_for_a_user_that_is_down_and_never_scores_the_outage(tmp_path: Path, start: StageResult) -> None:
    sink = RecordingSink()
    outage = Outage(sink)
    with MockServer(outage) as server:
        train_rl(rl_job(tmp_path, start.checkpoint, users=served(server)), make_curriculum(), sink)
    first, second = ([t for t in sink.ended if t.context.step == step] for step in (1, 2))
    with_message = [t for t in first if any(turn.choice == "action" for turn in t.turns)]
    assert with_message
    assert {(t.admitted, t.score) for t in with_message} == {(False, None)}
    assert outage.finished_at_probe == [len(first)] * 3, "it waits between the steps, until the third probe is answered"
    assert any(t.admitted for t in second if any(turn.choice == "action" for turn in t.turns))


def test_a_user_that_stays_down_ends_training_with_an_error(tmp_path: Path, start: StageResult) -> None:
    with MockServer(modest_user, faults={"500": 1.0}) as server:
        job = rl_job(tmp_path, start.checkpoint, users=served(server), patience=0.1)
        with raises("model.server_down"):
            train_rl(job, make_curriculum(), RecordingSink())


class GatedCurriculum(ListCurriculum):
    """Needs the history before a step to name its stage, as curricula with gates do."""

    def stage_of(self, step: int) -> str:
        assert len(self.recorded) >= step - 1, f"the history has no step {len(self.recorded) + 1}"
        return super().stage_of(step)


def test_a_stage_after_a_gated_one_starts_with_the_history_of_its_checkpoint(
    tmp_path: Path, start: StageResult
) -> None:
    def gated() -> GatedCurriculum:
        return GatedCurriculum(travel(count=10), STAGES)

    first = train_rl(rl_job(tmp_path / "1", start.checkpoint, stage="rl-1"), gated(), RecordingSink())
    sink = RecordingSink()
    job = rl_job(tmp_path / "2", first.checkpoint, first_step=3, last_step=4, stage="rl-2", reference=start.checkpoint)
    assert train_rl(job, gated(), sink).step == 4
    assert {t.context.stage for t in sink.ended} == {"rl-2"}


def test_a_sampled_validation_is_reproducible_and_does_not_change_training(tmp_path: Path, start: StageResult) -> None:
    def play(name: str, temperature: float) -> dict[str, list[Any]]:
        sink = RecordingSink()
        job = rl_job(
            tmp_path / name,
            start.checkpoint,
            validation=travel("validation", 0, 5),
            validate_every=1,
            validation_temperature=temperature,
        )
        train_rl(job, make_curriculum(), sink)
        messages: dict[str, list[Any]] = {"train": [], "validate": []}
        for trajectory in sink.ended:
            messages[trajectory.context.phase] += [turn.message for turn in trajectory.turns]
        return messages

    greedy, sampled, repeated = play("greedy", 0.0), play("sampled", 1.0), play("repeated", 1.0)
    assert sampled == repeated
    assert greedy["train"] == sampled["train"]
    assert greedy["validate"] != sampled["validate"]


def test_a_half_deleted_checkpoint_does_not_stop_the_stage(tmp_path: Path, start: StageResult) -> None:
    job = rl_job(tmp_path, start.checkpoint, last_step=3, keep_checkpoints=3)
    with pytest.raises(Interrupted):
        train_rl(job, make_curriculum(), RecordingSink(), interrupt_after(2))
    (tmp_path / "rl" / "checkpoints" / "step-000001" / "state.json").unlink()
    assert train_rl(job, make_curriculum(), RecordingSink()).step == 3


def test_after_the_deletion_of_a_stages_folder_its_logged_turns_are_rewound(tmp_path: Path, start: StageResult) -> None:
    job = rl_job(tmp_path, start.checkpoint)
    train_rl(job, make_curriculum(), RecordingSink())
    shutil.rmtree(job.out_dir)
    sink = RecordingSink()
    train_rl(job, make_curriculum(), sink)
    assert ("rewind", -1) in [(kind, fields.get("step")) for kind, fields in sink.events]


def test_the_seconds_of_a_step_are_kept_after_a_line_that_a_full_disk_tore(tmp_path: Path) -> None:
    job = rl_job(tmp_path, tmp_path, timed=True)
    job.out_dir.mkdir(parents=True, exist_ok=True)
    (job.out_dir / "clock.jsonl").write_text('{"step": 1, "cpu": 2.0, "gpu": 0.0}\n{"step": 2, "cp')
    clock = StepClock(job)
    clock.start()
    seconds = clock.used(2)
    restarted = StepClock(job)
    restarted.start()
    assert restarted.used(2) == seconds
    assert restarted.used(1) == {"seconds/cpu/sum": 2.0, "seconds/gpu/sum": 0.0}


def test_a_stage_in_seconds_ends_when_they_are_used_up_and_ends_there_again_after_a_kill(
    tmp_path: Path, start: StageResult
) -> None:
    job = rl_job(tmp_path / "a", start.checkpoint, last_step=4, seconds=("cpu", 1e-9), timed=True)
    assert train_rl(job, make_curriculum(), RecordingSink()).step == 1

    job = rl_job(tmp_path / "b", start.checkpoint, last_step=4, seconds=("cpu", 1e9), timed=True, checkpoint_every=1)
    with pytest.raises(Interrupted):
        train_rl(job, make_curriculum(), RecordingSink(), interrupt_after(2))
    clock = job.out_dir / "clock.jsonl"
    took = [json.loads(line) for line in clock.read_text().splitlines()]
    assert [line["step"] for line in took] == [1, 2]
    # As if the process had been killed in the step that used up the time: written down, and no checkpoint yet.
    ended = {"step": 3, "cpu": 1e9, "gpu": 0.0}
    clock.write_text("".join(json.dumps(line) + "\n" for line in (*took, ended)))
    sink = RecordingSink()
    assert train_rl(job, make_curriculum(), sink).step == 3
    assert [step for _, step, _ in sink.measured] == [3]
    again = RecordingSink()
    assert train_rl(job, make_curriculum(), again).step == 3
    assert (again.measured, again.events) == ([], [])
