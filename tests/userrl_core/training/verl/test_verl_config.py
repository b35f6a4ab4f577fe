"""Recipes become verl's own configuration, value by value, and verl accepts it."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

import curricula
from tests.makers import raises
from tests.places import ROOT
from tests.userrl_core.training.verl.rig import make_job, make_model
from userrl_core.rewards import CreditConfig
from userrl_core.training.config import AlgorithmConfig, Cluster, LoraSettings
from userrl_core.training.verl import checkpoints as files
from userrl_core.training.verl.config import compose, literal, merged, rl_overrides, sft_overrides
from userrl_core.training.verl.flags import micro_tokens
from userrl_core.training.verl.job import Resume, VerlJob, VerlSftJob
from userrl_core.training.verl.machine.attention import chosen_attention
from userrl_core.training.verl.memory import check_memory
from userrl_core.training.verl.rl import check_gpus, stage_before, starting_point

GOLDEN = Path(__file__).parent / "golden"
PROFILES = ("qwen3-4b", "qwen3-8b", "qwen2.5-3b", "qwen2.5-7b")


def job_of(name: str, profile: str) -> VerlJob:
    recipe = curricula.load(name, profile=profile, check=False)
    init = Path("/runs/golden/sft/verl/checkpoints/global_step_93/huggingface")
    return VerlJob(
        model=recipe.model,
        algorithm=recipe.algorithm,
        credit=recipe.credit,
        cluster=recipe.hardware,
        validate_every=recipe.evaluate.every,
        validation_horizon=recipe.evaluate.horizon,
        out_dir=Path("/runs/golden/rl-1"),
        init=init,
        reference=init,
        last_step=270,
    )


def sft_job() -> VerlSftJob:
    recipe = curricula.load("equalized-r2g", profile="qwen3-8b", check=False)
    return VerlSftJob(
        model=recipe.model,
        sft=recipe.cold_start,
        cluster=recipe.hardware,
        out_dir=Path("/runs/golden/sft"),
        chats=Path("/runs/golden/distill/chats.jsonl"),
    )


def golden(name: str, found: list[str]) -> None:
    """Compare with the file, which `python -m tests.userrl_core.training.verl.test_verl_config` writes."""
    assert found == (GOLDEN / f"{name}.txt").read_text().splitlines()


def golden_lists() -> dict[str, list[str]]:
    job = job_of("equalized-r2g", "qwen3-8b")
    sft = sft_job()
    return {
        "qwen3-8b": rl_overrides(job, job.out_dir / "verl", Resume(str(job.init))),
        "qwen3-8b-sft": sft_overrides(sft, sft.out_dir / "verl", "Qwen/Qwen3-8B", 1000),
    }


@pytest.mark.parametrize("name", ["qwen3-8b", "qwen3-8b-sft"])
def test_the_overrides_of_the_papers_profile_are_those_of_the_golden_file(name: str) -> None:
    golden(name, golden_lists()[name])


def test_verl_accepts_the_papers_profile_and_reads_table_6_in_it() -> None:
    config = compose(golden_lists()["qwen3-8b"])
    assert (config.data.train_batch_size, config.actor_rollout_ref.rollout.n) == (128, 8)
    assert (config.data.max_prompt_length, config.data.max_response_length) == (1152, 8192)
    actor = config.actor_rollout_ref.actor
    assert (actor.ppo_mini_batch_size, actor.optim.lr, actor.use_kl_loss, actor.entropy_coeff) == (16, 1e-6, False, 0)
    assert actor.loss_agg_mode == "seq-mean-token-mean"
    assert (config.trainer.n_gpus_per_node, config.trainer.nnodes, config.trainer.total_training_steps) == (8, 1, 270)
    assert config.algorithm.adv_estimator == "userrl"
    assert (config.algorithm.userrl.gamma, config.algorithm.userrl.k) == (0.8, 2.0)
    assert config.actor_rollout_ref.rollout.max_model_len == 9344
    assert config.actor_rollout_ref.rollout.temperature == 1.0


def test_verl_accepts_the_papers_cold_start() -> None:
    config = compose(golden_lists()["qwen3-8b-sft"], name="sft_trainer_engine")
    assert (config.data.train_batch_size, config.data.max_length) == (32, 16384)
    assert (config.optim.lr, config.optim.lr_scheduler_type, config.optim.lr_warmup_steps) == (1e-5, "cosine", 9)
    assert config.trainer.total_training_steps == 93


@pytest.mark.parametrize("profile", PROFILES)
def test_every_verl_profile_fits_its_machine(profile: str) -> None:
    job = job_of("equalized-r2g", profile)
    check_memory(job, job.model.path)


def test_the_page_of_flags_is_of_this_code_and_verl_takes_every_profile() -> None:
    tables = runpy.run_path(str(ROOT / "scripts" / "verl_tables.py"))
    for page, text in tables["pages"]().items():
        assert page.read_text() == text, "python scripts/verl_tables.py --write"


def test_tarls_two_kl_weights_go_to_verls_two_places() -> None:
    job = job_of("tarl", "tarl-8b")
    config = compose(rl_overrides(job, Path("/runs/x"), Resume("Qwen/Qwen3-8B")))
    actor = config.actor_rollout_ref.actor
    assert (actor.use_kl_loss, actor.kl_loss_coef, actor.kl_loss_type) == (True, 0.003, "low_var_kl")
    assert (config.algorithm.use_kl_in_reward, config.algorithm.kl_ctrl.kl_coef) == (True, 0.001)


@pytest.mark.parametrize(
    ("algorithm", "estimator", "critic"),
    [
        ("grpo", "userrl", False),
        ("rloo", "userrl_rloo", False),
        ("ppo", "gae", True),
        ("reinforce_pp", "userrl_reinforce_pp", False),
        ("remax", "userrl_remax", False),
    ],
)
def test_each_algorithm_composes(tmp_path: Path, algorithm: str, estimator: str, critic: bool) -> None:
    job = make_job(
        tmp_path, tmp_path, algorithm=AlgorithmConfig(name=algorithm, batch=4, group=2), cluster=Cluster(gpus=1)
    )
    # verl opens the critic's model while it checks its configuration, so there has to be one.
    model = make_model(tmp_path / "model", [{"messages": [{"role": "user", "content": "hello"}], "tools": []}])
    config = compose(rl_overrides(job, tmp_path, Resume(str(model))))
    from verl.trainer.ppo.utils import need_critic

    assert config.algorithm.adv_estimator == estimator
    assert need_critic(config) == critic
    if critic:
        assert config.critic.optim.lr == 1e-5
    else:
        assert config.algorithm.userrl.stage_file == str(tmp_path / "stage.json")


def test_adapters_reach_verls_actor_and_cold_start_and_a_full_training_names_none() -> None:
    job, cold = job_of("equalized-r2g", "qwen3-8b"), sft_job()
    folder, start = Path("/runs/x"), Resume("Qwen/Qwen3-8B")
    lora = LoraSettings(rank=8, alpha=16, targets=("q_proj", "v_proj"))
    adapted = job.model_copy(update={"algorithm": job.algorithm.model_copy(update={"lora": lora})})
    model = compose(rl_overrides(adapted, folder, start)).actor_rollout_ref.model
    assert (model.lora_rank, model.lora_alpha, list(model.target_modules)) == (8, 16, ["q_proj", "v_proj"])
    assert model.lora.merge, "the engine gets whole weights"
    assert not [line for line in rl_overrides(job, folder, start) if "lora" in line]
    cold = cold.model_copy(update={"sft": cold.sft.model_copy(update={"lora": LoraSettings()})})
    found = compose(sft_overrides(cold, folder, "Qwen/Qwen3-8B", 10_000), name="sft_trainer_engine").model
    assert (found.lora_rank, found.lora_alpha, found.target_modules) == (16, 32, "all-linear")


def test_the_thinking_of_a_model_reaches_verls_templates() -> None:
    folder, start, silent = Path("/runs/x"), Resume("Qwen/Qwen3-8B"), {"thinking": False}
    job, cold = job_of("equalized-r2g", "qwen3-8b"), sft_job()
    job = job.model_copy(update={"model": job.model.model_copy(update=silent)})
    cold = cold.model_copy(update={"model": cold.model.model_copy(update=silent)})
    sft = compose(sft_overrides(cold, folder, start.model, 10_000), name="sft_trainer_engine")
    for config in (compose(rl_overrides(job, folder, start)), sft):
        assert dict(config.data.apply_chat_template_kwargs) == {"enable_thinking": False}


def test_an_entropy_mask_asks_for_the_trainer_that_has_it(tmp_path: Path) -> None:
    job = job_of("tarl-entropy-mask", "tarl-8b")
    config = compose(rl_overrides(job, Path("/runs/x"), Resume("Qwen/Qwen3-8B")))
    assert config.trainer.v1.trainer_mode == "userrl_entropy_mask"
    assert dict(config.algorithm.entropy_mask) == {"share": 0.2, "compared": True}
    assert "entropy_mask" not in compose(golden_lists()["qwen3-8b"]).algorithm


@pytest.mark.parametrize(
    ("checkpoints", "validations", "validates", "saves"),
    [(10, 4, True, 4), (10, 25, True, 25), (10, 20, True, 10), (10, 50, True, 10), (10, 4, False, 10)],
)
def test_every_validation_finds_its_checkpoint_on_disk(
    tmp_path: Path, checkpoints: int, validations: int, validates: bool, saves: int
) -> None:
    more: dict[str, Any] = {} if validates else {"validation": []}
    job = make_job(tmp_path, tmp_path, checkpoint_every=checkpoints, validate_every=validations, **more)
    found = rl_overrides(job, tmp_path, Resume("m"))
    assert f"trainer.save_freq={saves}" in found
    assert f"trainer.test_freq={validations if validates else -1}" in found


def test_paths_with_quotes_commas_and_spaces_reach_verl_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "it's a = {strange}, place [1]"
    config = compose(rl_overrides(make_job(folder, folder), folder, Resume(str(folder))))
    assert config.data.train_files == str(folder / "train.parquet")
    assert config.actor_rollout_ref.model.path == str(folder)


def test_a_clusters_own_overrides_have_the_last_word_and_a_key_occurs_once(tmp_path: Path) -> None:
    job = make_job(tmp_path, tmp_path, cluster=Cluster(gpus=1, overrides=("actor_rollout_ref.rollout.n=3",)))
    found = rl_overrides(job, tmp_path, Resume("m"))
    assert [o for o in found if "rollout.n=" in o] == ["actor_rollout_ref.rollout.n=3"]
    assert len({o.partition("=")[0].lstrip("+") for o in found}) == len(found)
    assert merged(["a=1", "b=2"], ["+a=3"]) == ["+a=3", "b=2"]
    with raises("argument.malformed"):
        merged([], ["nonsense"])


def test_a_wrong_override_is_refused_in_verls_own_words(tmp_path: Path) -> None:
    job = make_job(tmp_path, tmp_path, cluster=Cluster(gpus=1, overrides=("actor_rollout_ref.rollout.nn=3",)))
    with raises("training.backend_cannot"):
        compose(rl_overrides(job, tmp_path, Resume("m")))


@pytest.mark.parametrize(
    ("change", "code", "advice"),
    [
        ({"credit": CreditConfig(filter="resample")}, "training.backend_cannot", "drop or keep"),
        ({"algorithm": AlgorithmConfig(batch=5, minibatches=2)}, "hardware.uneven_batch", "multiple"),
        (
            {"cluster": Cluster(gpus=3), "algorithm": AlgorithmConfig(batch=4, group=2)},
            "hardware.uneven_batch",
            "evenly",
        ),
        ({"cluster": Cluster(gpus=1, nodes=2)}, "hardware.no_cluster", "ray start"),
        ({"cluster": Cluster(gpus=1, micro_tokens=100)}, "recipe.invalid_value", "micro_tokens"),
        ({"cluster": Cluster(gpus=2, sequence_parallel=2, attention="sdpa")}, "install.missing", "flash-attn"),
    ],
)
def test_what_verl_cannot_do_is_refused_with_the_way_out(
    tmp_path: Path, change: dict[str, Any], code: str, advice: str
) -> None:
    with raises(code, advice):
        rl_overrides(make_job(tmp_path, tmp_path, **change), tmp_path, Resume("m"))


@pytest.mark.parametrize(("body", "attention"), [("", "flash_attention_2"), ("raise ImportError('libcudart')", "sdpa")])
def test_attention_is_what_the_trainers_own_interpreter_imports(tmp_path: Path, body: str, attention: str) -> None:
    (tmp_path / "flash_attn.py").write_text(body)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert chosen_attention(Cluster(gpus=1, python=str(python))) == attention
    assert chosen_attention(Cluster(gpus=1, python=str(python), attention="sdpa")) == "sdpa"
    split = Cluster(gpus=2, sequence_parallel=2, python=str(python))
    if attention == "sdpa":
        with raises("install.missing"):
            chosen_attention(split)
    else:
        assert chosen_attention(split) == attention
    job = make_job(tmp_path, tmp_path, algorithm=AlgorithmConfig(name="ppo", batch=4), cluster=Cluster(gpus=1))
    found = [line for line in rl_overrides(job, tmp_path, Resume("m"), attention) if "attn_implementation" in line]
    assert found == [
        f"+{model}.override_config.attn_implementation={attention}"
        for model in ("actor_rollout_ref.model", "critic.model")
    ]


def test_verl_loads_a_critic_with_the_attention_of_its_configuration(tmp_path: Path) -> None:
    import torch
    import verl  # noqa: F401  loads our plugin
    from transformers import AutoConfig
    from verl.utils.model import load_valuehead_model

    model = make_model(tmp_path / "model", [{"messages": [{"role": "user", "content": "hello"}], "tools": []}])
    config = AutoConfig.from_pretrained(model, attn_implementation="sdpa", num_labels=1)
    critic = load_valuehead_model(str(model), torch.float32, config, trust_remote_code=False)
    assert critic.config._attn_implementation == "sdpa"
    assert critic(torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 1)


def test_a_cpu_is_never_asked_for_flash_attention_and_a_wrong_interpreter_is_named() -> None:
    assert chosen_attention(Cluster(device="cpu", python="/no/such/python")) == "sdpa"
    assert chosen_attention(Cluster(device="npu", python="/no/such/python")) == "flash_attention_2"
    with raises("install.missing", "hardware.python"):
        chosen_attention(Cluster(gpus=1, python="/no/such/python"))


def test_too_few_demonstrations_for_one_step_are_refused() -> None:
    with raises("demonstrations.too_few"):
        sft_overrides(sft_job(), Path("out"), "m", 31)


def test_sequence_parallelism_shares_a_conversation_of_full_length(tmp_path: Path) -> None:
    job = make_job(tmp_path, tmp_path, cluster=Cluster(gpus=8, sequence_parallel=4))
    assert micro_tokens(job) == (128 + 384) / 4


def test_values_are_written_in_hydras_grammar() -> None:
    assert [literal(v) for v in (None, True, 1e-6, "a/b", "a b", "it's", ["x", "y z"])] == [
        "null",
        "True",
        "1e-06",
        "a/b",
        "'a b'",
        r"'it\'s'",
        "[x,'y z']",
    ]


def checkpoint(root: Path, step: int, gpus: int) -> Path:
    folder = root / f"global_step_{step}"
    (folder / "actor" / "huggingface").mkdir(parents=True)
    (folder / "actor" / "huggingface" / "model.safetensors").write_bytes(b"x")
    (folder / "actor" / f"model_world_size_{gpus}_rank_0.pt").write_bytes(b"x")
    return folder


def test_a_stage_continues_from_the_stage_before_with_its_optimizer(tmp_path: Path) -> None:
    before = checkpoint(tmp_path / "rl-1", 2, gpus=1)
    job = make_job(tmp_path / "rl-2", before / "actor" / "huggingface", first_step=3, last_step=4)
    resume, at = starting_point(job, tmp_path / "rl-2" / "verl" / "checkpoints")
    assert (resume.path, resume.weights_only, at) == (before, False, 2)


def test_on_another_number_of_gpus_weights_come_from_the_hugging_face_folder(tmp_path: Path) -> None:
    before = checkpoint(tmp_path / "rl-1", 2, gpus=8)
    job = make_job(tmp_path / "rl-2", before / "actor" / "huggingface", first_step=3, last_step=4)
    resume, at = starting_point(job, tmp_path / "rl-2" / "verl" / "checkpoints")
    assert resume.model == str(before / "actor" / "huggingface")
    assert resume.weights_only
    assert resume.path is not None
    assert (resume.path.name, at) == ("global_step_2", 2)
    config = compose(rl_overrides(job, tmp_path / "rl-2", resume))
    assert list(config.actor_rollout_ref.actor.checkpoint.load_contents) == []
    assert config.trainer.resume_from_path == str(resume.path)


def test_a_checkpoint_of_the_wrong_step_is_refused(tmp_path: Path) -> None:
    before = checkpoint(tmp_path / "rl-1", 5, gpus=1)
    job = make_job(tmp_path / "rl-2", before / "actor" / "huggingface", first_step=3, last_step=4)
    with raises("checkpoint.wrong_step", "step 5"):
        starting_point(job, tmp_path / "rl-2" / "verl" / "checkpoints")


@pytest.mark.parametrize("gpus", [1, 8])
def test_a_runs_first_stage_takes_the_model_of_another_verl_run_and_nothing_else(tmp_path: Path, gpus: int) -> None:
    before = checkpoint(tmp_path / "another" / "rl-3", 50, gpus)
    files.save_curriculum(before, {"at": 99, "seen": [1.0]})
    model = before / "actor" / "huggingface"
    root = tmp_path / "rl-1" / "verl" / "checkpoints"
    job = make_job(tmp_path / "rl-1", model, first_step=1, last_step=4)
    assert stage_before(job) is None
    assert starting_point(job, root) == (Resume(str(model)), 0)
    assert stage_before(make_job(tmp_path / "rl-1", model, first_step=51, last_step=52)) == before

    own = checkpoint(root, 2, gpus=1)
    files.describe(own, "rl-1", None)
    resume, at = starting_point(job, root)
    assert (resume.path, at) == (own, 2)


def test_a_stage_that_may_not_see_its_gpus_is_refused_before_ray_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(tmp_path, tmp_path, cluster=Cluster(gpus=8))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with raises("hardware.too_few_gpus"):
        check_gpus(job)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    check_gpus(job)


if __name__ == "__main__":
    for name, overrides in golden_lists().items():
        (GOLDEN / f"{name}.txt").write_text("\n".join(overrides) + "\n")
