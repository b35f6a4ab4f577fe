"""A home with one trained run: two real checkpoints of a tiny model, one deleted, with scores and a report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from curricula import load
from tests.userrl_core.training.toys import TINY, chats
from tests.warehouse.makers import play
from userrl.reports.run_report import RunReport
from userrl.run.results import GymScore, KeptDemonstrations
from userrl.run.run import RunInfo, run_fields
from userrl_core.json_files import with_checksum, write_json
from userrl_core.records import CheckpointRecord
from userrl_core.training.local.checkpoint import CheckpointState, write_checkpoint
from userrl_core.training.local.model import build_model
from userrl_core.training.local.state import save_model
from userrl_core.training.local.text.tokenizer import render, train_tokenizer
from warehouse import TurnLog

RUN = "small-s3-0123456789"
QUOTED = "a sentence from a conversation"


def make_home(home: Path) -> Path:
    """Write the home and return the folder of the chosen checkpoint, step 2."""
    recipe, folder = load("equalized-r2g", profile="laptop-quick"), home / "runs" / RUN
    stages, tokenizer = folder / "stages", train_tokenizer(render(chats(20)), TINY.vocab_size)

    def checkpoint(stage: str, step: int) -> tuple[Path, CheckpointState]:
        model, there = build_model(TINY, tokenizer, step), stages / stage / "checkpoints" / f"step-{step:06d}"
        return there, write_checkpoint(there, lambda into: save_model(model, tokenizer, into), stage=stage, step=step)

    made = [checkpoint("sft", 60), checkpoint("rl-1", 2)]
    best = made[1][0]
    with TurnLog.open(home / "warehouse", RUN, run_fields=run_fields(recipe, seed=3, backend="local")) as log:
        for step, score in enumerate((0.25, 0.5, 0.75)):
            play(log, [score], step=step, phase="validate", score=score, text=QUOTED)
            play(log, [score], step=step + 1, score=score / 2)
        for number in range(4):
            play(log, [1.0], task=f"e{number}", split="test", stage="evaluate", phase="evaluate", policy="RL", step=2)
        for (path, state), score in zip(made, (0.25, 0.75), strict=True):
            log.checkpoint(CheckpointRecord(state.id, str(path), state.stage, state.step, state.sha256, score=score))
        log.checkpoint(CheckpointRecord("rl-1-000001-x", str(best.with_name("step-000001")), "rl-1", 1, "x", score=0.5))
    info = RunInfo(
        id=RUN,
        created=1.0,
        name="small",
        recipe=recipe.name,
        profile=recipe.profile,
        seed=3,
        resolved=recipe.resolved(),
    )
    write_json(folder / "run.json", with_checksum(asdict(info)))
    write_json(folder / "status.json", {"state": "completed"})
    report = RunReport(
        run=RUN,
        recipe=recipe.name,
        profile=recipe.profile,
        seed=3,
        demonstrations=KeptDemonstrations(
            policy="scripted", played=20, kept=10, dropped={}, mean=0.5, mean_kept=1.0, by_gym={}
        ),
        table={
            "SFT": {"travel": GymScore(score=0.25, stderr=0.125)},
            "RL": {"travel": GymScore(score=0.75, stderr=0.125)},
        },
        horizon=6,
        test_tasks=12,
        checkpoint=str(best),
        data={"travel": "ours"},
        warehouse=str(home / "warehouse"),
        folder=str(folder),
    )
    write_json(folder / "report.json", report.model_dump(mode="json"))
    return best
