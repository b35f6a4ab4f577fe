"""Plans, parquet files, checkpoints and process trees of a stage."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from omegaconf import OmegaConf
from verl.trainer.sft_trainer import create_sft_dataset

from curricula.gate import Gate
from curricula.schedule import Adaptive
from tests.llama import llama
from tests.makers import raises
from tests.userrl_core.training.verl.rig import TwoStages, make_job
from userrl.run.plan import plan_run
from userrl.run.request import TrainRequest
from userrl_core.distill import to_chat
from userrl_core.errors import ConfigError
from userrl_core.gyms import registry
from userrl_core.gyms.prompt import PromptStyle
from userrl_core.interact import InteractCall, render_call, tool_schema
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task
from userrl_core.rollout import run_episodes
from userrl_core.training.config import CallForm, Cluster
from userrl_core.training.jobs import Best
from userrl_core.training.local.text.calls import style_of
from userrl_core.training.local.text.chat import ChatFormat
from userrl_core.training.local.text.tokenizer import load_tokenizer
from userrl_core.training.model_files import check_hashes, hash_of
from userrl_core.training.verl import checkpoints as files
from userrl_core.training.verl.data import write_rl_parquet, write_sft_parquet
from userrl_core.training.verl.job import HorizonFrom, SinkSpec, StageFile, horizons_of, read_stage_file
from userrl_core.training.verl.machine.folding import fold_adapters
from userrl_core.training.verl.machine.heartbeat import HeartbeatWatch, start_heartbeat
from userrl_core.training.verl.metrics import step_metrics, validation_score
from userrl_core.training.verl.rl import _StageStart, stage_file
from userrl_core.training.verl.sft import prepared
from userrl_core.training.verl.step_plan import HORIZONS, Decision, decide, decided, plan_steps, tasks_by_key
from warehouse import TurnLog, open_warehouse

STAGES = [(1, 5), (6, 10)]
CHATS = "pkg://userrl_core.training.verl.data"


def test_a_plan_is_drawn_once_and_read_by_every_later_start(tmp_path: Path) -> None:
    first = plan_steps(tmp_path, TwoStages(), 1, 4, 2)
    moved_on = TwoStages()
    moved_on.at = 30
    again = plan_steps(tmp_path, moved_on, 1, 4, 2)
    assert again.steps == {step: tuple(keys) for step, keys in first.steps.items()}
    assert again.horizons == {1: 4, 2: 4, 3: 6, 4: 6}
    assert [task.key for task in again.tasks_from(3)] == [key for step in (3, 4) for key in first.steps[step]]
    assert again.state == {"at": 8, "seen": []}


class Adapted(TwoStages):
    """Horizon 4 until two steps are recorded, then 6."""

    schedule = Adaptive(horizons=(4, 6), gate=Gate(at_most=2))

    def horizon(self, step: int, history: Any, group: int | None = None) -> int:
        return self.schedule.horizon(step, [{"step": n, "success": rate} for n, rate in enumerate(self.seen, 1)])


def test_horizons_that_depend_on_the_stage_itself_are_left_open_and_told_one_by_one(tmp_path: Path) -> None:
    plan = plan_steps(tmp_path, Adapted(), 1, 4, 2)
    assert (plan.horizons, plan.decided, sorted(plan.steps)) == ({1: 4}, True, [1, 2, 3, 4])
    assert plan_steps(tmp_path, Adapted(), 1, 4, 2).horizons == {1: 4}
    assert not plan_steps(tmp_path / "fixed", TwoStages(), 1, 4, 2).decided
    assert decided(tmp_path, 3) is None
    for step, turns in [(3, 4), (3, 6), (4, 6)]:
        decide(tmp_path, step, Decision(turns))
    assert [decided(tmp_path, step) for step in (2, 3, 4)] == [None, Decision(6, []), Decision(6, [])]
    # A stage that an earlier version began has lines without tasks.
    with (tmp_path / HORIZONS).open("a") as file:
        file.write('{"step": 5, "turns": 8}\n')
    assert decided(tmp_path, 5) == Decision(8)


class Choosing(TwoStages):
    """Chooses the next task only when the one before was played."""

    def choices(self, step: int) -> list[Task]:
        return self.pool


def test_tasks_that_a_curriculum_chooses_are_left_open_and_told_one_by_one(tmp_path: Path) -> None:
    curriculum = Choosing()
    plan = plan_steps(tmp_path, curriculum, 1, 4, 2)
    assert (plan.chosen, plan.decided, curriculum.at) == (True, True, 0)
    assert set(plan.tasks) == {task.key for task in curriculum.pool}
    assert len(plan.tasks_from(3)) == 4
    again = plan_steps(tmp_path, Choosing(), 1, 4, 2)
    assert (again.chosen, again.state) == (True, {"at": 0, "seen": []})
    decide(tmp_path, 2, Decision(4, ["travel/a", "math/b"]))
    assert decided(tmp_path, 2) == Decision(4, ["travel/a", "math/b"])


def test_the_validation_before_the_first_step_chooses_no_tasks_again(tmp_path: Path) -> None:
    job, curriculum = make_job(tmp_path, tmp_path / "model"), Choosing()
    with TurnLog.open(tmp_path / "warehouse", "r1") as log:
        stage = _StageStart(job, curriculum, log, None)
        stage.decides = stage.chooses = True
        stage.folder.mkdir(parents=True)
        stage._decide(1)
        stage._step(0, {}, None)
    assert curriculum.at == job.algorithm.batch
    assert len((stage.folder / HORIZONS).read_text().splitlines()) == 1


def test_a_restart_draws_for_every_step_also_one_without_a_line(tmp_path: Path) -> None:
    job, curriculum = make_job(tmp_path, tmp_path / "model"), Choosing()
    with TurnLog.open(tmp_path / "warehouse", "r1") as log:
        stage = _StageStart(job, curriculum, log, None)
        stage.chooses, stage.at = True, 2
        stage.folder.mkdir(parents=True)
        (stage.folder / "steps.jsonl").write_text('{"step": 2, "success": 0.5, "tasks": {}}\n')
        stage._replay_statistics()
    assert (curriculum.at, curriculum.seen) == (2 * job.algorithm.batch, [0.5])


@pytest.mark.parametrize(("at", "last_kept"), [(2, 2), (0, -1)])
def test_a_stage_that_is_done_again_voids_its_own_log_and_not_that_of_later_stages(
    tmp_path: Path, at: int, last_kept: int
) -> None:
    with TurnLog.open(tmp_path / "warehouse", "r1") as log:
        stage = _StageStart(make_job(tmp_path, tmp_path / "model"), Choosing(), log, None)
        stage.at = at
        for _ in range(2):
            stage._void_earlier_start()
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        events = warehouse.sql("SELECT stage, step, fields->>'scope' FROM events WHERE kind = 'rewind'").fetchall()
    assert events == [("rl-1", last_kept, "stage")]


def test_a_stage_whose_tasks_depend_on_itself_is_refused_with_the_way_out(tmp_path: Path) -> None:
    class Gated(TwoStages):
        def draw(self, step: int, n: int) -> list[Task]:
            raise ConfigError("recipe.no_such_step", "The history has no step 1.")

    with raises("training.backend_cannot", "step 1"):
        plan_steps(tmp_path, Gated(), 1, 2, 2)


def test_what_verl_cannot_follow_is_known_before_anything_is_spent() -> None:
    asked: dict[str, Any] = {"recipe": "adaptive", "profile": "qwen3-8b", "wandb": "off", "dry_run": True}
    assert [row["horizon"] for row in plan_run(TrainRequest(**asked)).recipe.stage_table()] == ["adaptive"]
    looks = {"schedule.gate.entropy": 0.1, "schedule.gate.tokens": 10**6}
    with raises("training.backend_cannot"):
        plan_run(TrainRequest(**asked, overrides=looks))
    stage = {"steps": 4, "mix": {"travel": 1}}
    gated = {"stages": [{**stage, "horizon": 4, "gates": {"at_most": 2}}, {**stage, "horizon": 6}]}
    with raises("training.backend_cannot", "step 2"):
        plan_run(TrainRequest(**{**asked, "recipe": "equalized-r2g"}, overrides=gated))
    one_gpu = TrainRequest(**{**asked, "profile": "h200-1"}, backend="local")
    assert "rl-1" in plan_run(one_gpu).selected


def test_too_few_tasks_for_a_batch_are_refused(tmp_path: Path) -> None:
    with raises("task.none_left", "algorithm.batch"):
        plan_steps(tmp_path, TwoStages(), 1, 1, 1000)


@pytest.mark.parametrize("text", ['back\\slash "quote"', "zero\x00byte", "null", "日本語", "{}[]:,", "</tool_call>"])
def test_tasks_survive_the_way_to_the_workers_whatever_their_text(tmp_path: Path, text: str) -> None:
    task = Task("travel", "t", "train", {"opening": text, "deep": [{"a": [None, 1.5, text]}]})
    plan = plan_steps(tmp_path, _One(task), 1, 1, 1)
    assert tasks_by_key(str(tmp_path / "tasks.jsonl"))[task.key] == task == plan.tasks[task.key]


class _One(TwoStages):
    def __init__(self, task: Task) -> None:
        super().__init__()
        self.pool = [task]


def test_gyms_of_all_kinds_share_one_schema_and_keep_their_order(tmp_path: Path) -> None:
    tasks = TwoStages().pool[:5]
    assert write_rl_parquet(tmp_path / "train.parquet", tasks, "train", tmp_path / "tasks.jsonl") == 5
    rows = pq.read_table(tmp_path / "train.parquet").to_pylist()
    assert [json.loads(row["userrl"])["task"] for row in rows] == [task.key for task in tasks]
    assert {row["agent_name"] for row in rows} == {"userrl"}
    assert [row["data_source"] for row in rows] == [task.gym for task in tasks]
    with raises("task.none_left"):
        write_rl_parquet(tmp_path / "none.parquet", [], "train", tmp_path / "tasks.jsonl")


def test_conversations_with_and_without_tools_share_a_file(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "interact_with_env", "parameters": {"enum": ["a"]}}}
    message = {"role": "user", "content": "hello"}
    chats = [{"messages": [message], "tools": []}, {"messages": [message, message], "tools": [tool]}]
    assert write_sft_parquet(tmp_path / "sft.parquet", chats) == 2
    rows = pq.read_table(tmp_path / "sft.parquet").to_pylist()
    assert [len(row["messages"]) for row in rows] == [1, 2]
    assert [row["tools"] for row in rows] == [[], [tool]]
    with raises("demonstrations.too_few"):
        write_sft_parquet(tmp_path / "empty.parquet", [])


@pytest.mark.parametrize("prompt_style", ["brief", "full"])
@pytest.mark.parametrize("form", ["json", "line"])
def test_verls_cold_start_reads_the_tokens_that_the_local_one_reads(
    tmp_path: Path, form: CallForm, prompt_style: PromptStyle
) -> None:
    folder = prepared(str(llama(tmp_path / "model")), form, tmp_path / "prepared")
    tokenizer = load_tokenizer(folder)
    tasks = registry.tasks("wish", "train")[:2]
    shown = asyncio.run(run_episodes(tasks, ScriptedPolicy(1.0), horizon=6, prompt_style=prompt_style))
    chats = [to_chat(trajectory) for trajectory in shown]
    write_sft_parquet(tmp_path / "sft.parquet", chats, style_of(tokenizer))
    for row, chat in zip(pq.read_table(tmp_path / "sft.parquet").to_pylist(), chats, strict=True):
        text = tokenizer.apply_chat_template(row["messages"], tools=row.get("tools"), tokenize=False)
        ours = tokenizer.decode(ChatFormat(tokenizer).chat(chat).ids)
        assert text.startswith(ours)
        assert len(text) - len(ours) < len("<|im_start|>assistant") + 2
        assert ("<tool_call>" in text) == (form == "json")
        assert ("# Calls" in text) == (prompt_style == "full")
    same_tokens(tmp_path / "sft.parquet", tokenizer, chats, folder)


def same_tokens(path: Path, tokenizer: Any, chats: list[Any], model: str) -> None:
    """Check that verl's trainer reads the tokens and the mask of the local one, cut at the same length."""
    chat_format = ChatFormat(tokenizer)
    for cutoff in (4096, 60):
        config = OmegaConf.create({"max_length": cutoff, "custom_cls": {"path": CHATS, "name": "ChatDataset"}})
        read = create_sft_dataset([str(path)], config, load_tokenizer(model), None)
        assert len(read) == len(chats)
        for row, chat in zip(read, chats, strict=True):
            encoded = chat_format.chat(chat, cutoff)
            assert row["input_ids"].tolist() == encoded.ids
            assert row["loss_mask"].tolist() == [int(turn >= 0) for turn in encoded.turns]
            assert row["position_ids"].tolist() == list(range(len(encoded.ids)))


@pytest.mark.parametrize("form", ["json", "line"])
def test_verls_cold_start_reads_any_conversation_as_the_local_one_does(tmp_path: Path, form: CallForm) -> None:
    folder = prepared(str(llama(tmp_path / "model")), form, tmp_path / "prepared")
    call = {"role": "assistant", "content": render_call(InteractCall("action", "coat"))}
    results = [{"role": "tool", "content": "red"}, {"role": "tool", "name": "shop", "content": "blue"}]
    user, system = {"role": "user", "content": "Go on."}, {"role": "system", "content": "Hurry."}
    chats: list[dict[str, Any]] = [
        {"messages": [user, call, *results, {**call, "train": False}, call], "tools": []},
        {"messages": [call, user, call, system, results[0], call, user], "tools": [tool_schema(["action"])]},
    ]
    tokenizer = load_tokenizer(folder)
    for style in (style_of(tokenizer), None):  # None: the model is not on the machine that writes the file
        write_sft_parquet(tmp_path / "sft.parquet", chats, style)
        same_tokens(tmp_path / "sft.parquet", tokenizer, chats, folder)


def test_a_prepared_model_links_the_weights_and_is_prepared_again_after_a_kill(tmp_path: Path) -> None:
    source = llama(tmp_path / "model")
    template = load_tokenizer(source).chat_template
    for _ in range(2):
        folder = Path(prepared(str(source), "line", tmp_path / "prepared"))
    assert (folder / "model.safetensors").resolve() == (source / "model.safetensors").resolve()
    assert style_of(load_tokenizer(folder)).line
    assert load_tokenizer(source).chat_template == template
    assert prepared(str(source), "json", tmp_path / "none") == str(source)


def test_a_prepared_checkpoint_is_checked_and_passes_the_check_itself(tmp_path: Path) -> None:
    source = llama(tmp_path / "model")
    hashes = {file.name: hash_of([file]) for file in source.iterdir()}
    (source / "state.json").write_text(json.dumps({"files": hashes}))
    check_hashes(Path(prepared(str(source), "line", tmp_path / "prepared")))
    with (source / "tokenizer.json").open("a") as file:
        file.write(" ")
    with raises("checkpoint.damaged", "tokenizer.json does not match its hash"):
        prepared(str(source), "line", tmp_path / "again")


def test_a_prepared_model_follows_its_source_to_another_folder(tmp_path: Path) -> None:
    prepared(str(llama(tmp_path / "model")), "line", tmp_path / "prepared")
    moved = (tmp_path / "model").rename(tmp_path / "moved")
    folder = Path(prepared(str(moved), "line", tmp_path / "prepared"))
    assert (folder / "model.safetensors").resolve() == (moved / "model.safetensors").resolve()
    with raises("checkpoint.missing", "hf download"):
        prepared("nobody/nothing", "line", tmp_path / "none")


def test_the_stage_file_says_the_horizon_of_any_step(tmp_path: Path) -> None:
    plan = plan_steps(tmp_path, TwoStages(), 1, 4, 2)
    written = stage_file(make_job(tmp_path, tmp_path), plan, tmp_path)
    written.write(tmp_path / "stage.json")
    found = read_stage_file(str(tmp_path / "stage.json"))
    assert found == written
    assert [found.horizon(step) for step in (0, 1, 2, 3, 4, 99)] == [4, 4, 4, 6, 6, 6]
    assert horizons_of({3: 6, 1: 4, 2: 4}) == (HorizonFrom(step=1, turns=4), HorizonFrom(step=3, turns=6))


def test_one_run_over_all_steps_sees_the_horizons_of_the_sequential_stages(tmp_path: Path) -> None:
    def horizons(folder: Path, first: int, last: int) -> StageFile:
        return stage_file(make_job(folder, folder), plan_steps(folder, TwoStages(), first, last, 2), folder)

    whole = horizons(tmp_path / "whole", 1, 4)
    parts = [horizons(tmp_path / "a", 1, 2), horizons(tmp_path / "b", 3, 4)]
    assert [whole.horizon(step) for step in (1, 2, 3, 4)] == [
        parts[(step - 1) // 2].horizon(step) for step in (1, 2, 3, 4)
    ]


def test_a_sink_that_nobody_offers_is_refused() -> None:
    with raises("install.missing"):
        SinkSpec(name="cellar").open()


def test_a_card_of_unknown_memory_must_be_told() -> None:
    assert Cluster(gpu="A100-80GB").memory_gb == 80.0
    with raises("recipe.missing_key"):
        _ = Cluster(gpu="Z900").memory_gb
    assert Cluster(gpu="Z900", gpu_memory=12.0).memory_gb == 12.0


def complete(root: Path, step: int, weights: bytes, score: float | None = None) -> files.CheckpointCard:
    folder = root / f"global_step_{step}"
    (folder / "actor" / "huggingface").mkdir(parents=True)
    (folder / "actor" / "huggingface" / "model.safetensors").write_bytes(weights)
    return files.describe(folder, "rl-1", None, score)


def test_the_best_checkpoint_and_the_newest_ones_survive_pruning(tmp_path: Path) -> None:
    for step, score in ((1, 0.2), (2, 0.9), (3, 0.4), (4, 0.9)):
        complete(tmp_path, step, bytes([step]), score)
    best = files.best_of(tmp_path, Best(path=tmp_path, id="old", step=0, score=0.1))
    assert best is not None
    assert best.step == 2  # the earlier one at a tie
    files.prune(tmp_path, 1, best)
    assert sorted(folder.name for folder in tmp_path.glob("global_step_*")) == ["global_step_2", "global_step_4"]


def test_the_checkpoint_that_a_stage_continues_is_logged_again(tmp_path: Path) -> None:
    root = tmp_path / "verl" / "checkpoints"
    card = complete(root, 2, b"a", score=0.5)
    (root / files.TRACKER).write_text("2")
    (root / "global_step_2" / "actor" / "model_world_size_1_rank_0.pt").touch()
    with TurnLog.open(tmp_path / "warehouse", "r1") as log:
        _StageStart(make_job(tmp_path, tmp_path / "model"), TwoStages(), log, None).run()
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        logged = warehouse.sql("SELECT checkpoint, path, step, score FROM checkpoints").fetchall()
    assert logged == [(card.id, str(files.hf_folder(root / "global_step_2")), 2, 0.5)]


def test_a_checkpoint_whose_step_was_not_logged_is_not_gone_on_from(tmp_path: Path) -> None:
    complete(tmp_path, 1, b"a")
    unlogged = tmp_path / "global_step_2" / "actor" / "huggingface"
    unlogged.mkdir(parents=True)
    (unlogged / "model.safetensors").write_bytes(b"b")
    (tmp_path / files.TRACKER).write_text("2")
    assert files.newest(tmp_path) == tmp_path / "global_step_2"
    assert files.settled(tmp_path) == tmp_path / "global_step_1"


def test_a_tracker_without_weights_or_with_rubbish_names_no_checkpoint(tmp_path: Path) -> None:
    assert files.newest(tmp_path) is None
    (tmp_path / files.TRACKER).write_text("7")
    assert files.newest(tmp_path) is None
    (tmp_path / files.TRACKER).write_text("seven")
    assert files.newest(tmp_path) is None
    with raises("checkpoint.damaged"):
        files.weights_hash(tmp_path)


def test_a_rollout_worker_that_died_is_noticed_and_a_living_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "old-1.json").write_text("{}")
    watch = HeartbeatWatch(tmp_path, grace=0.0)
    assert watch.dead() == []
    start_heartbeat(str(tmp_path))
    assert watch.dead() == []
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    host = socket.gethostname()
    (tmp_path / f"{host}-{process.pid}.json").write_text(json.dumps({"host": host, "pid": process.pid}))
    (tmp_path / "elsewhere-7.json").write_text(json.dumps({"host": "elsewhere", "pid": 7}))
    assert watch.dead() == [f"{host}-{process.pid}"]
    os.utime(tmp_path / "elsewhere-7.json", (0, 0))
    assert sorted(watch.dead()) == sorted(["elsewhere-7", f"{host}-{process.pid}"])


def test_verls_numbers_get_our_names_and_what_is_no_number_is_left_out() -> None:
    data = {"actor/entropy": 1.5, "critic/score/mean": 0.25, "odd": float("nan"), "text": "x", "own": 3}
    stats = {
        "admitted": 3,
        "attempts": 4,
        "success": 0.5,
        "turns": 2.0,
        "score": None,
        "return_sum": 0.5,
        "numbers": {"groups/all/count": 2.0},
    }
    assert step_metrics(data, stats, 0.75) == {
        "policy/entropy/mean": 1.5,
        "verl/critic/score/mean": 0.25,
        "rollout/return_sum/mean": 0.5,
        "verl/own": 3.0,
        "groups/all/count": 2.0,
        "rollout/admitted/share": 0.75,
        "rollout/success/mean": 0.5,
        "rollout/turns/mean": 2.0,
        "validate/score/mean": 0.75,
    }


def test_gyms_count_in_validation_by_their_number_of_tasks() -> None:
    tasks = [Task("travel", str(i), "validation", {}) for i in range(3)] + [Task("math", "m", "validation", {})]
    data = {"val-aux/travel/score/mean@1": 0.2, "val-aux/math/score/mean@1": 1.0}
    assert validation_score(data, tasks) == pytest.approx((3 * 0.2 + 1.0) / 4)
    assert validation_score({}, tasks) is None


@pytest.mark.parametrize("tied", [True, False])
def test_verls_adapters_are_folded_once_into_a_model_that_everyone_loads(tmp_path: Path, tied: bool) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

    shape = Qwen3Config(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, tie_word_embeddings=tied,
    )  # fmt: skip
    model = get_peft_model(Qwen3ForCausalLM(shape), LoraConfig(r=2, lora_alpha=6, target_modules="all-linear"))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    folder = tmp_path / "global_step_3"
    hf = folder / "actor" / "huggingface"
    shape.architectures = ["Qwen3ForCausalLM"]
    shape.save_pretrained(hf)
    (hf / "chat_template.jinja").write_text("template")
    save_file({name: tensor.clone() for name, tensor in model.state_dict().items()}, hf / "model.safetensors")
    (folder / "actor" / "lora_train_meta.json").write_text(json.dumps({"r": 2, "lora_alpha": 6}))

    card = files.describe(folder, "rl-1", None)
    assert card.sha256 == files.weights_hash(folder)
    loaded = AutoModelForCausalLM.from_pretrained(hf)
    ids = torch.tensor([[3, 1, 60]])
    assert float((loaded(ids).logits - model.eval()(ids).logits).detach().abs().max()) < 1e-5
    assert ("lm_head.weight" in load_file(hf / "model.safetensors")) is not tied
    assert (hf / "chat_template.jinja").read_text() == "template"
    fold_adapters(hf)
    assert files.weights_hash(folder) == card.sha256
    assert sorted(path.name for path in (folder / "actor").iterdir()) == ["huggingface", "lora_train_meta.json"]
