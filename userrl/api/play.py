"""``userrl.play``: one conversation with a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from userrl.people.people import AfterTurn
    from userrl_core.gyms.human_user import Console
    from userrl_core.records import Trajectory


def play(
    gym: str,
    *,
    side: Literal["agent", "user"] = "agent",
    task: str | None = None,
    split: str = "train",
    seed: int = 0,
    turns: int = 16,
    model: str | None = None,
    base_url: str | None = None,
    run: str | None = None,
    skill: float = 0.7,
    person: str = "",
    console: Console | None = None,
    after_turn: AfterTurn | None = None,
) -> Trajectory:
    """Hold one conversation with a person, log it in the run ``people``, and return it.

    side: the person's part. task: an id or the beginning of one; by default the seed draws a task of the split. turns:
    maximum number of turns. model, base_url: a served model on the other side. run: a run whose checkpoint plays the agent.
    skill: the scripted agent's skill. person: a pseudonym. console: where the person reads and types; by default the
    terminal. after_turn: called after each turn with the turn, the conversation so far and whether it was the last. Raises
    ConfigError or GymError with one sentence.
    """
    from curricula.validation import validated
    from userrl.machine.home import quiet_process
    from userrl.people.alone import PlayRequest
    from userrl.people.alone import play as hold
    from userrl_core.gyms.human_user import Console

    quiet_process()
    values = {
        "gym": gym, "side": side, "task": task, "split": split, "seed": seed, "turns": turns, "model": model,
        "base_url": base_url, "run": run, "skill": skill, "person": person,
    }  # fmt: skip
    on_turn = after_turn or (lambda turn, whole, last: None)
    return hold(validated(PlayRequest, values, "play"), console or Console(), on_turn)
