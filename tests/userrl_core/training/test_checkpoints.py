"""Checkpoint folders: atomic, verified, exact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.makers import raises
from tests.userrl_core.training.toys import TINY, chats
from userrl_core.training.local.checkpoint import (
    CheckpointState,
    newest,
    prune,
    read_checkpoint,
    step_folder,
    write_checkpoint,
)
from userrl_core.training.local.model import build_model, load_model
from userrl_core.training.local.optimizer import adamw, clip_and_step
from userrl_core.training.local.state import TrainState, load_checkpoint
from userrl_core.training.local.text.tokenizer import render, train_tokenizer

TOKENIZER = train_tokenizer(render(chats(20)), TINY.vocab_size)


def write(root: Path, step: int, text: str = "weights") -> CheckpointState:
    def fill(folder: Path) -> None:
        (folder / "model.safetensors").write_text(f"{text} {step}")
        (folder / "trainer").mkdir()
        (folder / "trainer" / "trainer.json").write_text("{}")

    return write_checkpoint(step_folder(root, step), fill, stage="rl-1", step=step, score=0.5)


def test_a_written_checkpoint_is_read_back(tmp_path: Path) -> None:
    state = write(tmp_path, 3)
    assert read_checkpoint(step_folder(tmp_path, 3)) == state
    assert set(state.files) == {"model.safetensors", "trainer/trainer.json"}
    assert state.id == f"rl-1-000003-{state.sha256[:12]}"


def test_the_checkpoints_hash_is_that_of_the_weights_alone(tmp_path: Path) -> None:
    first = write(tmp_path / "a", 1)
    second = write(tmp_path / "b", 1)
    other = write(tmp_path / "c", 1, "other")
    assert first.sha256 == second.sha256 != other.sha256


def test_a_failed_write_leaves_the_older_checkpoint(tmp_path: Path) -> None:
    state = write(tmp_path, 1)

    def fill(folder: Path) -> None:
        (folder / "model.safetensors").write_text("half")
        raise OSError("disk full")

    with raises("file.not_writable"):
        write_checkpoint(step_folder(tmp_path, 1), fill, stage="rl-1", step=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]
    assert newest(tmp_path) == (step_folder(tmp_path, 1), state)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "model.safetensors").write_text("changed"), "model.safetensors does not match its hash"),
        (lambda f: (f / "model.safetensors").unlink(), "has no file model.safetensors"),
        (lambda f: (f / "state.json").unlink(), "it has no state.json"),
        (lambda f: (f / "state.json").write_text('{"format": 1'), "unreadable state.json"),
        (lambda f: (f / "state.json").write_text("[" * 100_000), "unreadable state.json"),
    ],
)
def test_a_damaged_checkpoint_is_never_loaded(tmp_path: Path, damage: object, message: str) -> None:
    write(tmp_path, 1)
    write(tmp_path, 2)
    damage(step_folder(tmp_path, 2))  # type: ignore[operator]
    with raises("checkpoint.damaged", message):
        read_checkpoint(step_folder(tmp_path, 2))
    skipped: list[str] = []
    checkpoint = newest(tmp_path, report=lambda folder, reason: skipped.append(folder.name))
    assert checkpoint is not None
    assert checkpoint[0].name == "step-000001"
    assert skipped == ["step-000002"]


def test_a_checkpoint_that_names_files_outside_itself_is_refused(tmp_path: Path) -> None:
    folder = step_folder(tmp_path, 1)
    write(tmp_path, 1)
    state = json.loads((folder / "state.json").read_text())
    state["files"]["../../etc/passwd"] = "0"
    (folder / "state.json").write_text(json.dumps(state))
    with raises("checkpoint.unsafe"):
        read_checkpoint(folder)


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with raises("checkpoint.missing"):
        read_checkpoint(tmp_path / "nowhere")
    with raises("checkpoint.missing"):
        load_checkpoint(tmp_path / "nowhere", TINY, "cpu")
    assert newest(tmp_path / "nowhere") is None


def test_a_folder_that_holds_no_model_is_named(tmp_path: Path) -> None:
    with raises("checkpoint.missing"):
        load_model(tmp_path, TINY)


def test_the_leftover_of_a_killed_pruning_is_removed_by_the_next_one(tmp_path: Path) -> None:
    for step in (1, 2):
        write(tmp_path, step)
    (tmp_path / ".step-000000.deleted").mkdir()
    prune(tmp_path, 1, None)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000002"]


def test_a_linked_checkpoint_is_pruned_and_replaced(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write(tmp_path, step)
    for name in ("step-000001", "step-000003"):
        (tmp_path / name).rename(tmp_path / f"disk-{name}")
        (tmp_path / name).symlink_to(f"disk-{name}")
    prune(tmp_path, 2, None)
    write(tmp_path, 3, "other")
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-000002", "step-000003"]
    assert (tmp_path / "step-000003" / "model.safetensors").read_text() == "other 3"
    assert (tmp_path / "disk-step-000003" / "model.safetensors").read_text() == "weights 3"


def test_a_hub_name_is_passed_to_the_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # as in the processes of a run
    with raises("checkpoint.missing"):
        load_checkpoint(Path("nobody/nothing"), TINY, "cpu")
    with raises("checkpoint.missing"):
        load_checkpoint(tmp_path / "nothing", TINY, "cpu")


def test_pruning_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    for step in range(1, 6):
        write(tmp_path, step)
    removed = prune(tmp_path, 2, step_folder(tmp_path, 1))
    assert [folder.name for folder in removed] == ["step-000002", "step-000003"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000001", "step-000004", "step-000005"]


def make_state(seed: int = 0) -> TrainState:
    model = build_model(TINY, TOKENIZER, seed)
    generator = torch.Generator().manual_seed(seed)
    return TrainState(model, TOKENIZER, adamw(model, 1e-3, (0.9, 0.95), 0.01), generator, kind="rl")


def take_step(state: TrainState) -> torch.Tensor:
    ids = torch.randint(0, 300, (2, 8), generator=state.generator)
    state.model(input_ids=ids, labels=ids).loss.backward()
    clip_and_step(state.optimizer, state.model.parameters(), 1.0)
    return ids


def test_training_continues_exactly_from_a_checkpoint(tmp_path: Path) -> None:
    state = make_state()
    take_step(state)
    state.step, state.history, state.curriculum = 1, [{"step": 1, "success": 0.1 + 0.2}], {"at": [1, 2]}
    write_checkpoint(step_folder(tmp_path, 1), state.save, stage="rl-1", step=1)

    other = make_state(seed=9)
    other.model = load_checkpoint(step_folder(tmp_path, 1), TINY, "cpu")[0]
    other.optimizer = adamw(other.model, 1e-3, (0.9, 0.95), 0.01)
    assert other.restore(step_folder(tmp_path, 1))
    assert (other.step, other.history, other.curriculum) == (state.step, state.history, state.curriculum)
    for _ in range(3):
        assert torch.equal(take_step(state), take_step(other))
    for own, restored in zip(state.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(own, restored)


def test_steps_too_small_for_bfloat16_accumulate_also_across_a_checkpoint(tmp_path: Path) -> None:
    config = TINY.model_copy(update={"dtype": "bfloat16"})

    def make(model: object) -> TrainState:
        return TrainState(model, TOKENIZER, adamw(model, 1e-4, (0.9, 0.95), 0.0), torch.Generator(), kind="rl")  # type: ignore[arg-type]

    state = make(build_model(config, TOKENIZER, 0))
    weight = state.model.model.norm.weight
    for _ in range(30):
        weight.grad = torch.ones_like(weight)
        clip_and_step(state.optimizer, [weight], 1e9)
    before = weight.detach().clone()
    assert weight.dtype == torch.bfloat16
    assert float(before[0]) == pytest.approx(1 - 30e-4, abs=2**-8)
    assert float(before[0]) < 1
    write_checkpoint(tmp_path / "a", state.save, stage="rl-1", step=0)
    other = make(load_checkpoint(tmp_path / "a", config, "cpu")[0])
    assert other.restore(tmp_path / "a")
    for continued in (state, other):
        for _ in range(30):
            continued.model.model.norm.weight.grad = torch.ones_like(weight)
            clip_and_step(continued.optimizer, [continued.model.model.norm.weight], 1e9)
    assert torch.equal(state.model.model.norm.weight, other.model.model.norm.weight)
    assert float(weight.detach()[0]) < float(before[0])


def test_the_optimiser_of_another_kind_of_training_is_not_continued(tmp_path: Path) -> None:
    state = make_state()
    state.kind = "sft"
    write_checkpoint(step_folder(tmp_path, 1), state.save, stage="sft", step=1)
    assert not make_state().restore(step_folder(tmp_path, 1))


def test_the_same_state_gives_the_same_hash(tmp_path: Path) -> None:
    first = write_checkpoint(tmp_path / "a", make_state().save, stage="rl-1", step=0)
    second = write_checkpoint(tmp_path / "b", make_state().save, stage="rl-1", step=0)
    other = write_checkpoint(tmp_path / "c", make_state(seed=1).save, stage="rl-1", step=0)
    assert first.files == second.files
    assert other.sha256 != first.sha256


def test_no_file_of_a_checkpoint_is_a_pickle(tmp_path: Path) -> None:
    state = make_state()
    take_step(state)
    written = write_checkpoint(tmp_path / "a", state.save, stage="rl-1", step=0)
    assert {Path(name).suffix for name in written.files} <= {".json", ".safetensors", ".jinja"}
