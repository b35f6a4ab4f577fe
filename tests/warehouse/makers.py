"""Small makers of records for the warehouse's tests."""

from __future__ import annotations

from collections.abc import Sequence

from userrl_core.records import ModelCall, Phase, RolloutContext, StopReason, Task, Trajectory, Turn
from userrl_core.sink import Sink

ASKED = [{"role": "system", "content": "You are a guest."}, {"role": "user", "content": "<b>Which room?</b>"}]


def make_task(gym: str = "travel", id: str = "t1", *, split: str = "train", tier: str = "") -> Task:
    return Task(gym, id, split, {"question": id}, tier=tier)  # type: ignore[arg-type]


def make_turn(number: int, reward: float | None, *, calls: int = 0, text: str = "hello") -> Turn:
    return Turn(
        number,
        "action",
        text,
        "thinking",
        f"{text} {number}",
        f"observation {number}",
        reward,
        prompt_tokens=10,
        completion_tokens=5,
        policy_seconds=0.5,
        env_seconds=0.25,
        token_ids=[1, 2, number],
        logprobs=[-0.5, -0.25, -1.0],
        info={"number": number},
        model_calls=[
            ModelCall("user", "gpt-4o", 100, 20, 0.2, price=0.001, prompt=ASKED, reply="As you say.")
            for _ in range(calls)
        ],
    )


def play(
    log: Sink,
    rewards: Sequence[float | None],
    *,
    gym: str = "travel",
    task: str = "t1",
    split: str = "train",
    tier: str = "",
    stage: str = "rl-1",
    step: int = 1,
    phase: Phase = "train",
    attempt: int = 0,
    group: str | None = None,
    score: float | None = 1.0,
    stop_reason: StopReason = "success",
    policy: str = "model",
    calls: int = 0,
    end: bool = True,
    credits: Sequence[float] | None = None,
    text: str = "hello",
) -> Trajectory:
    """Play one trajectory into a log, turn by turn; a null reward makes it inadmissible."""
    trajectory = Trajectory(
        make_task(gym, task, split=split, tier=tier),
        attempt=attempt,
        horizon=8,
        seed=2**62 + attempt,
        context=RolloutContext(stage, step, phase, policy, "c1" if phase == "evaluate" else None),
        group=group if group is not None else f"{step}/{gym}/{task}",
        messages=[{"role": "system", "content": "You help."}],
    )
    log.begin(trajectory)
    for number, reward in enumerate(rewards, 1):
        turn = make_turn(number, reward, calls=calls, text=text)
        trajectory.turns.append(turn)
        log.turn(trajectory, turn)
    if end:
        trajectory.admitted = None not in rewards
        trajectory.reject_reason = None if trajectory.admitted else "user_error"
        trajectory.score, trajectory.stop_reason = score, stop_reason
        log.end(trajectory)
    if credits is not None:
        assert trajectory.traj_id is not None
        log.credits(trajectory.traj_id, credits, [c * 2 for c in credits])
    return trajectory
