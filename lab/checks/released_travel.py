"""Play the same actions on UserRL's released TravelGym and on ours, and compare rewards and ends.

    python -m lab.checks.released_travel CHECKOUT [--sequences 240] [--seed 0] [--record FILE]

CHECKOUT is a clone of SalesforceAIResearch/UserRL. Its gym plays our tasks, because its own option databases are not
public. The released judge and user are models; here our rule user judges for both gyms. A sequence is clean: it avoids the
departures listed in docs/reference/departures.md (a volunteered preference, an id of another trip, a partly refused answer). Exits
with 1 if more than one sequence in 240 differs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import curricula
from userrl_core.gyms import make, tasks
from userrl_core.gyms.travel.rule_user import RuleTravelUser, query_for, question_for
from userrl_core.gyms.travel.world import ASPECTS, Aspect, World
from userrl_core.interact import InteractCall
from userrl_core.records import Task

TURNS = 16
QUIET = 3
"""Messages without an elicitation after which the user volunteers a preference. A clean sequence stops before that."""
KINDS = {"other": "1", "held": "2", "not_held": "3", "too_vague": "4"}
RECORDED = 10


@dataclass(frozen=True, slots=True)
class Played:
    """The rewards of one sequence, and the number of actions at the end of the episode. None: it did not end."""

    rewards: list[float]
    ended: int | None

    def agrees(self, other: Played) -> bool:
        """Return whether two gyms gave the same rewards and ended at the same action."""
        paid = zip(self.rewards, other.rewards, strict=False)
        return self.ended == other.ended and all(abs(ours - theirs) < 1e-9 for ours, theirs in paid)


def main() -> int:
    """Print the number of sequences that agree under each rule for the end."""
    parser = argparse.ArgumentParser(description="The released TravelGym beside ours.")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--sequences", type=int, default=240)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path, help="write the first ten sequences with the released rewards")
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.checkout / "gyms" / "TravelGym"))
    rng, ours = random.Random(arguments.seed), tasks("travel", "test")
    config = curricula.load("userrl-released", check=False).gym("travel").config
    differing: dict[str, list[int]] = {"all_best": [], "all_chosen": []}
    recorded: list[dict[str, Any]] = []
    for number in range(arguments.sequences):
        index = rng.randrange(len(ours))
        actions = clean_actions(ours[index], rng)
        released = asyncio.run(play_released(ours[index], actions))
        for end_when, numbers in differing.items():
            if not asyncio.run(play_ours(ours[index], actions, {**config, "end_when": end_when})).agrees(released):
                numbers.append(number)
        recorded.append(
            {
                "index": index,
                "task": ours[index].id,
                "actions": actions,
                "rewards": released.rewards,
                "ended": released.ended,
            }
        )
    for end_when, numbers in differing.items():
        agree = arguments.sequences - len(numbers)
        print(f"{end_when}: {agree} of {arguments.sequences} agree; differing: {numbers[:10]}")
    print(f"the recipe userrl-released has end_when: {config.get('end_when', 'all_best')}")
    if arguments.record is not None:
        lines = ",\n".join(json.dumps(entry) for entry in recorded[:RECORDED])
        arguments.record.write_text(f"[\n{lines}\n]\n")
    return int(len(differing["all_best"]) * 240 > arguments.sequences)


# -- actions --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Known:
    """The state of a sequence so far."""

    asked: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    quiet: int = 0


def clean_actions(task: Task, rng: random.Random) -> list[tuple[str, str]]:
    """Return random questions, searches and answers, right and wrong, without known differences between the gyms."""
    world, state = World.of(task.payload), _Known()
    return [_action(task, world, state, rng) for _ in range(TURNS)]


def _action(task: Task, world: World, state: _Known, rng: random.Random) -> tuple[str, str]:
    draw = rng.random()
    if draw < 0.4:
        preference = rng.choice(list(world.preferences.values()))
        new = preference.id not in state.asked and preference.aspect not in state.closed
        if new:
            state.asked.add(preference.id)
            state.quiet = 0
            return "action", question_for(preference, task.tier)
        if state.quiet < QUIET:
            state.quiet += 1
            return "action", question_for(preference, task.tier)
    elif draw < 0.45 and state.quiet < QUIET:
        state.quiet += 1
        return "action", "Thank you for telling me."
    aspects = list(world.aspects.values())
    if draw < 0.65:
        city_override = "Atlantis" if rng.random() < 0.2 else None
        return "search", _query(rng.choice(aspects), task.tier, city_override)
    still = [aspect for aspect in aspects if aspect.name not in state.closed]
    if not still or rng.random() < 0.1:
        return "answer", _one(rng.choice(aspects), state, rng)
    chosen = rng.sample(still, rng.randint(1, len(still)) if rng.random() < 0.3 else 1)
    return "answer", ", ".join(_one(aspect, state, rng) for aspect in chosen)


def _one(aspect: Aspect, state: _Known, rng: random.Random) -> str:
    state.closed.add(aspect.name)
    return _choice(aspect, rng)


def _choice(aspect: Aspect, rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.6:
        return aspect.best
    ids = [str(option["id"]) for option in aspect.options]
    return rng.choice(sorted(aspect.correct) if kind < 0.8 else ids)


def _query(aspect: Aspect, tier: str, city_override: str | None) -> str:
    query = query_for(aspect, tier)
    city = aspect.arguments.get("city", aspect.arguments.get("destination", ""))
    return query.replace(str(city), city_override) if city_override is not None else query


# -- the two gyms ---------------------------------------------------------------------------------------------------


async def play_ours(task: Task, actions: Sequence[tuple[str, str]], config: Mapping[str, Any]) -> Played:
    """Play the actions on our gym with the rule user."""
    gym = make("travel", task, **config)
    gym.reset(seed=0)
    rewards: list[float] = []
    for choice, content in actions:
        rewards.append(float((await gym.step(InteractCall(choice, content))).reward or 0.0))
        if gym.done:
            return Played(rewards, len(rewards))
    return Played(rewards, None)


async def play_released(task: Task, actions: Sequence[tuple[str, str]]) -> Played:
    """Play the actions on the released gym, through the step function of its trainer and its evaluation."""
    from travelgym import get_default_config  # type: ignore[import-not-found]  # on the path once the checkout is named
    from travelgym.env import prompt_async, travel_env  # type: ignore[import-not-found]

    user, world = RuleTravelUser(task, random.Random(0)), World.of(task.payload)

    async def judge_search(request: str, *_: Any) -> dict[str, str]:
        judgement = await user.match(request, [])
        verdict = {"match": "True", "wrong": "False", "unrelated": "N/A"}[judgement.kind]
        return {"alignment_judgement": verdict, "alignment_aspect": judgement.aspect or ""}

    async def judge_message(message: str, _task: Any, _model: Any, _history: Any, available: Any) -> dict[str, str]:
        judgement = await user.judge(message, [world.preferences[preference["id"]] for preference in available], [])
        return {"type": KINDS[judgement.kind], "preference_id": judgement.preference_id or ""}

    async def reply(*_: Any) -> dict[str, str]:
        return {"response": "Yes."}

    prompt_async.async_generate_judge_search = judge_search
    prompt_async.async_generate_judge_response = judge_message
    prompt_async.async_model_call = reply
    travel_env.load_tasks = lambda config: [_released_task(task, world)]
    settings = get_default_config()
    settings.max_steps = TURNS + 1
    settings.search_correct_reward, settings.preference_correct_reward = 0.0, 0.8
    env = travel_env.TravelEnv(config=settings)
    rewards: list[float] = []
    for choice, content in actions:
        _, reward, terminated, _, _ = await env.step_async(f"[{choice}] {content}")
        rewards.append(float(reward))
        if terminated:
            return Played(rewards, len(rewards))
    return Played(rewards, None)


def _released_task(task: Task, world: World) -> dict[str, Any]:
    preferences = {
        name: {
            "preferences": [[name, p.category, p.preference, p.implicit, ""] for p in aspect.preferences],
            "correct_ids": sorted(aspect.correct),
            "best_id": aspect.best,
        }
        for name, aspect in world.aspects.items()
    }
    return {
        "id": task.id,
        "scenario": world.scenario,
        "dimensions": [name for name in world.aspects if name in ASPECTS],
        "initial_desc": world.scenario,
        "preferences": preferences,
        "all_options": {name: [dict(option) for option in aspect.options] for name, aspect in world.aspects.items()},
        "arguments": {name: dict(aspect.arguments) for name, aspect in world.aspects.items()},
    }


if __name__ == "__main__":
    raise SystemExit(main())
