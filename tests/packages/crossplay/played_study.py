"""A small cross-play study: its file, conversations as if they were played, and a home that has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from curricula.claims.cross_play import CrossPlay
from userrl_crossplay.conversations import UserConversation
from userrl_crossplay.report import START, CrossPlayReport
from userrl_crossplay.study import ConversationsByCell, measured
from warehouse import TurnLog

SMALL: dict[str, Any] = {
    "kind": "open question",
    "paper": "ours",
    "text": "A small study.",
    "mix": {"wish": 1},
    "train": {"plain": "plain", "wide": "wide"},
    "evaluate": {"plain": {"like": "plain", "users": 2}, "shifted": "shifted", "slips": {"like": "slips", "users": 2}},
    "contrast": {"more": "wide", "than": "plain"},
    "seeds": 4,
    "first_seed": 901,
}


def written(folder: Path, **changed: Any) -> Path:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **changed}))
    return path


def talk(number: int, score: float, told: int = 2) -> UserConversation:
    return UserConversation(f"t{number}", number % 2, score, 5, told, 2, 5, (1, 2, 3))


def played(study: CrossPlay, scores: dict[tuple[str, str], float], seeds: int = 4) -> ConversationsByCell:
    return {
        (seed, row, column): tuple(talk(n, float(n < 10 * share + seed % 2)) for n in range(10))
        for seed in range(901, 901 + seeds)
        for (row, column), share in scores.items()
    }


def small_report(study: CrossPlay) -> CrossPlayReport:
    """Results in which the wide population helps, over a cold start of .3."""
    scores = {(row, column): 0.3 for row in (START, "plain") for column in study.evaluate}
    scores |= {("wide", column): 0.6 for column in study.evaluate}
    return measured(study, played(study, scores), "")


def stored(home: Path, study: CrossPlay, *, ended: int) -> None:
    """Register the study in a home: some runs have ended, and the next one has started."""
    (home / "claims" / study.name).mkdir(parents=True, exist_ok=True)
    places = [(arm, seed) for seed in range(study.seeds) for arm in study.arms]
    with TurnLog.open(home / "warehouse", f"claim-{study.name}", run_fields={"name": f"claim-{study.name}"}) as log:
        about = {"claim": study.name, "hash": study.hash}
        log.event("claim", **about, text=study.text, exploratory="", values=study.model_dump(mode="json"))
        for n, (arm, seed) in enumerate(places[: ended + 1]):
            for state in ("started", "ended")[: 2 if n < ended else 1]:
                log.event("claim_arm", **about, arm=arm, seed=seed, run=f"{arm}-{seed}", state=state)
