"""A recipe: one named experiment, from demonstrations to the held-out evaluation, with every value checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, PrivateAttr, StringConstraints, model_validator

from curricula.gate import History
from curricula.identity import former_identity_values, identity_values
from curricula.options import check_options
from curricula.schedule import Adaptive, AnySchedule, GroupSchedule, Level, Span, Stages, place
from curricula.spec import (
    FOLDER,
    Demonstrations,
    Evaluate,
    Evolve,
    GymSetup,
    Hardware,
    SplitConfig,
    Stage,
)
from curricula.task_curriculum import AnyCurriculum, Uniform
from userrl_core.errors import Check, ConfigError, refuse_first
from userrl_core.gyms.published import PAPER_GYMS, Edition
from userrl_core.judging.config import InterventionConfig
from userrl_core.rewards.config import CreditConfig
from userrl_core.rewards.judge import JudgeConfig
from userrl_core.seeding import content_hash
from userrl_core.settings import Settings
from userrl_core.training.config import NO_ADAPTERS, AlgorithmConfig, ModelConfig, SftConfig


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """A stage at its place in the run.

    number: from 1. first, last: training steps, both included. horizon: the answer of `Recipe.horizon` for all its steps;
    None if the answer depends on the history, as only under an adaptive schedule.
    """

    number: int
    first: int
    last: int
    horizon: int | None
    stage: Stage
    branch: str = ""
    """The branch of the stage; empty for stages that all branches share."""

    @property
    def name(self) -> str:
        """The stage's name in the warehouse: ``rl-1`` ... ``rl-n``, or ``rl-2-a`` on a branch ``a``."""
        return f"rl-{self.number}-{self.branch}" if self.branch else f"rl-{self.number}"

    @property
    def steps(self) -> int:
        """Number of training steps (with a gate: the maximum)."""
        return self.last - self.first + 1

    def mix(self, step: int) -> dict[str, float]:
        """Return gyms and weights of a step's batch; a single gym if gyms alternate."""
        gyms = self.stage.alternate
        if gyms:
            return {gyms[(step - self.first) % len(gyms)]: 1.0}
        return dict(self.stage.mix)


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a value: ``recipe NAME``, ``profile NAME``, ``override`` or ``default``, and its published source."""

    where: str
    citation: str = ""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A replaced value: ``where`` wrote ``old`` under ``key``, and ``by`` replaced it by ``new``."""

    key: str
    old: Any
    where: str
    new: Any
    by: str


MAX_STEPS = 10_000
"""Number of steps reserved for a stage given in seconds, until training shows its real end."""

BranchName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]{0,15}$")]


class Recipe(Settings):
    """A named experiment. Pure data: the same recipe gives the same answer for a step at any time."""

    name: str
    """Name of the experiment."""

    source: str = "ours"
    """Paper, section and table that it follows."""

    control: str = ""
    """Why this recipe is expected to fail, for a negative control. A recipe that extends it does not inherit this."""

    profile: str | None = None
    """Profile of the loaded recipe."""

    suite: str = ""
    """Suite of a recipe that is only an evaluation."""

    gyms: dict[str, GymSetup] = Field(default_factory=dict)
    """Settings of each gym. Gyms that are not named have their defaults."""

    split: SplitConfig = SplitConfig()
    """Train, validation and test."""

    demonstrations: Demonstrations = Demonstrations()
    """Demonstrations to distil before the cold start."""

    cold_start: SftConfig = SftConfig()
    """Supervised fine-tuning before RL."""

    model: ModelConfig = ModelConfig()
    """Weights to train."""

    credit: CreditConfig = CreditConfig()
    """Shaping, scoring and advantage form."""

    judge: JudgeConfig | None = None
    """Judge that scores the turns of finished training conversations; null: only the gyms' rewards."""

    intervention: InterventionConfig | None = None
    """Interruption of wrong steps in training conversations; null: all steps are carried out."""

    algorithm: AlgorithmConfig = AlgorithmConfig()
    """Policy-gradient algorithm and optimisation."""

    stages: tuple[Stage, ...] = ()
    """Spans of training; empty: no RL."""

    evolve: Evolve | None = None
    """AgentEvol, which replaces RL stages; null: none."""

    branches: dict[BranchName, tuple[Stage, ...]] = Field(default_factory=dict)
    """Continuations after the last shared stage. Each begins at its checkpoint and has its own stages, for
    comparisons from the same start. Branches run in parallel if the machine has room.
    """

    horizons: AnySchedule | None = Field(default=None, alias="schedule")
    """Schedule of horizons, which replaces the stages' own."""

    curriculum: AnyCurriculum = Uniform()
    """Choice of training tasks within each gym; uniform: every task once per epoch."""

    rl_tasks: PositiveInt | None = None
    """Size of the published RL task set, which defines epochs in a recipe as published. If tasks can be counted, the
    available ones define them (`Stage.pool`).
    """

    data: Literal["ours", "published", "published-or-ours"] = "ours"
    """Tasks of all gyms: our own, the papers' (refused for a gym whose published tasks are missing), or the papers'
    if available. A gym with its own `published` keeps that.
    """

    published: Edition = "released"
    """Published training tasks: the released combined list (2,426), or the paper's count (2,686)."""

    data_folder: str | None = None
    """Folder of the published data (with userrl, userbench, tau-bench, agentgym); null: $USERRL_PUBLISHED_DATA, else
    data in this home, which `userrl tasks import` makes.
    """

    evaluate: Evaluate = Evaluate()
    """Held-out evaluation and validation."""

    hardware: Hardware = Hardware()
    """Machine and backend."""

    on_format_error: Literal["end", "continue"] = "end"
    """Effect of a reply without a readable call: end the episode, as published, or continue it."""

    allow_short_horizon: bool = False
    """true turns the refusal of a horizon in which no task of a gym can be solved into a warning."""

    alarms: dict[str, Any] = Field(default_factory=dict)
    """Collapse alarms and their actions."""

    _absent: dict[str, str] = PrivateAttr(default_factory=dict)
    _origins: dict[str, Origin] = PrivateAttr(default_factory=dict)
    _replaced: tuple[Replaced, ...] = PrivateAttr(default=())
    _warnings: tuple[str, ...] = PrivateAttr(default=())

    @model_validator(mode="after")
    def _fits_together(self) -> Recipe:
        for block in (self.judge, self.intervention):
            if block is not None:
                check_options("openai", block.options)
        refuse_first(self._conflicts())
        if self.stages and self.horizons is None:
            _ = self.schedule  # which refuses stages that do not follow each other
        refuse_first(self._without_effect())
        return self

    def _conflicts(self) -> Iterator[Check]:
        """Yield what is wrong with stages, branches and schedule."""
        placed = {f"stages[{number}]": stage for number, stage in enumerate(self.stages)}
        for name, branch in self.branches.items():
            placed |= {f"branches.{name}[{number}]": stage for number, stage in enumerate(branch)}
        conflict, missing, scheduled = "recipe.conflict", "recipe.missing_key", self.horizons is not None
        too_long = any(self._steps(stage) > MAX_STEPS for stage in placed.values())
        yield self.evolve is not None and self.stages, conflict, "evolve replaces the stages of RL; omit one of them"
        yield too_long, "recipe.invalid_value", f"a stage has at most {MAX_STEPS:,} steps; write fewer"
        both = "branches have their own horizons; omit the schedule or the branches"
        yield self.branches and scheduled, conflict, both
        for at, stage in placed.items():
            problem = "has gates, and its run has branches, which begin at a known step; omit one of them"
            yield self.branches and stage.gates is not None, conflict, f"{at} {problem}"
            problem = "has no horizon; give one, or a schedule for the whole run"
            yield not scheduled and stage.horizon is None, missing, f"{at} {problem}"
            problem = "has a horizon or gates in addition to the schedule; omit one of them"
            yield scheduled and (stage.horizon is not None or stage.gates is not None), conflict, f"{at} {problem}"
            problem = "has its length in seconds; give it a horizon instead of the schedule, or the gate cpu_seconds"
            yield scheduled and stage.timed, conflict, f"{at} {problem}"
            problem = "has its length in seconds, and another stage has gates; give those cpu_seconds instead"
            yield stage.timed and any(other.gates for other in self.stages), conflict, f"{at} {problem}"
            problem = "has its length in epochs; set rl_tasks, or give its length in steps"
            uncounted = stage.pool is None and self.rl_tasks is None
            yield stage.epochs is not None and uncounted, missing, f"{at} {problem}"
            problem = f"has oversample, and the recipe has the curriculum {self.curriculum.kind}; omit one of them"
            yield stage.oversample and not isinstance(self.curriculum, Uniform), conflict, f"{at} {problem}"
            problem = "has its length in tokens; set algorithm.batch_tokens, or give its length in steps"
            yield stage.tokens is not None and self.algorithm.batch_tokens is None, missing, f"{at} {problem}"
            held_out = sorted(set(stage.gyms) & set(self.split.held_out))
            problem = (
                f"trains on {''.join(held_out[:1])}, which is held out; remove it from the mix or from split.held_out"
            )
            yield held_out, conflict, f"{at} {problem}"

    def _without_effect(self) -> Iterator[Check]:
        """Yield what an algorithm cannot use."""
        name, credit = self.algorithm.name, self.credit
        yield (
            name != "grpo" and credit.shaping != "equalized",
            "credit.no_effect",
            f"credit.shaping {credit.shaping} would have no effect, because {name} does not divide an advantage among turns; "
            "set it to equalized, or algorithm.name to grpo",
        )
        yield (
            name == "remax" and credit.filter == "resample",
            "credit.no_effect",
            "credit.filter resample draws tasks again whose trajectories score alike, and remax can learn from these; set it "
            "to drop or keep",
        )
        yield (
            name == "dpo" and credit.filter == "keep",
            "credit.no_effect",
            "credit.filter keep would have no effect, because dpo compares pairs and a group of equal scores has none; set it to "
            "drop or resample",
        )
        adapters = self.cold_start.lora is not None
        yield self.cold_start.enabled and adapters and self.model.path is None, "recipe.conflict", NO_ADAPTERS
        yield (
            self.model.calls == "lean" and (adapters or self.algorithm.lora),
            "recipe.conflict",
            "model.calls lean adds tokens whose embeddings have to be trained, and adapters do not train them; set it to json "
            "or line, or lora to null",
        )

    @cached_property
    def schedule(self) -> AnySchedule:
        """The horizon of every step: the named schedule, or the stages' own horizons. Raises ConfigError without any stage."""
        if isinstance(self.horizons, Adaptive):
            return self.horizons.within(self.total_steps) if self.stages else self.horizons
        if self.horizons is not None:
            return self.horizons
        if not self.stages:
            raise ConfigError(
                "recipe.no_such_step", f"Recipe '{self.name}' has no RL stages, so no step has a horizon."
            )
        return Stages(
            spans=tuple(
                Span(steps=self._steps(stage), horizon=_own_horizon(stage), gate=stage.gates) for stage in self.stages
            )
        )

    def horizon(
        self, step: int, history: History = (), group: int | None = None, *, seed: int = 0, branch: str = ""
    ) -> int:
        """Return the maximum agent turns of a trajectory in a step, counted from 1 (AgentGym-RL section 3.3).

        history: the recorded steps before it, which gates and probes read. group: counted from 0 in its step, for schedules
        that tell groups apart; None: the horizon of the step. seed: the run's, for drawn horizons. branch: the branch that
        is trained. Raises ConfigError for a step that the recipe does not have.
        """
        if branch:  # it has neither a schedule nor gates
            return _own_horizon(self.stage_of(step, history, branch).stage)
        if isinstance(self.schedule, GroupSchedule):
            return self.schedule.horizon(step, history, group, seed)
        return self.schedule.horizon(step, history)

    @property
    def total_steps(self) -> int:
        """Number of training steps, along the longest branch if there are branches."""
        return max((planned.last for planned in self.planned_stages), default=0)

    @cached_property
    def planned_stages(self) -> tuple[PlannedStage, ...]:
        """The stages in order. A stage that a schedule divides becomes one per horizon. Branches follow one another."""
        planned: list[PlannedStage] = []
        ways = {"": self.stages, **self.branches}
        for branch, stages in ways.items():
            first = 1 if not branch else 1 + max((p.last for p in planned if not p.branch), default=0)
            for stage in stages:
                end = first + self._steps(stage) - 1
                while first <= end:
                    horizon, last = self._piece(stage, first, end)
                    planned.append(PlannedStage(len(planned) + 1, first, last, horizon, stage, branch))
                    first = last + 1
        return tuple(planned)

    def along(self, branch: str) -> tuple[PlannedStage, ...]:
        """Return the stages up to the end of a branch; for ``""`` those that all branches share."""
        return tuple(planned for planned in self.planned_stages if planned.branch in ("", branch))

    def stage_of(self, step: int, history: History = (), branch: str = "") -> PlannedStage:
        """Return the stage of a step. If gates ended earlier stages early, first and last reflect that.

        Raises ConfigError for a step outside 1 ... total_steps.
        """
        way = self.along(branch)
        total = max((planned.last for planned in way), default=0)
        if not 1 <= step <= total:
            raise ConfigError(
                "recipe.no_such_step", f"Recipe '{self.name}' has training steps 1 to {total}. There is no step {step}."
            )
        if not any(stage.gates for stage in self.stages):
            return next(planned for planned in way if step <= planned.last)
        # Level 0: the horizon is not needed, only where the gates end each stage.
        levels = tuple(Level(0, self._steps(stage), stage.gates) for stage in self.stages)
        index, first, last = place(levels, step, history)
        if last is None or index == len(levels) - 1:
            last = self.total_steps  # the last stage gets the steps that gates saved
        return PlannedStage(index + 1, first, last, self.stages[index].horizon, self.stages[index])

    def mix(self, step: int, history: History = ()) -> dict[str, float]:
        """Return gyms and their weights in a step's batch."""
        return self.stage_of(step, history).mix(step)

    def gym(self, name: str) -> GymSetup:
        """Return a gym's settings."""
        return self.gyms.get(name, GymSetup())

    @property
    def evaluation_gyms(self) -> tuple[str, ...]:
        """The gyms whose test split is evaluated."""
        return PAPER_GYMS if self.evaluate.gyms == "all" else tuple(self.evaluate.gyms)

    @property
    def played_gyms(self) -> tuple[str, ...]:
        """The gyms of training and of the evaluation."""
        return tuple(dict.fromkeys((*self.training_gyms, *self.evaluation_gyms)))

    @property
    def absent(self) -> dict[str, str]:
        """Gyms without the requested published tasks when the recipe was loaded, with the reasons."""
        return self._absent

    def data_of(self, gym: str) -> str:
        """Return a gym's tasks in words."""
        place = self.gym(gym).published
        if place == FOLDER:
            part = "the paper's counts" if self.published == "paper" else "the released list"
            return f"published ({part})"
        if place is not None:
            return f"published ({place})"
        why = f": {self._absent[gym]}" if gym in self._absent else ""
        return f"ours, since its published tasks were not found{why}" if self.data == "published-or-ours" else "ours"

    @property
    def evaluation_top_p(self) -> float:
        """Nucleus of sampling in validation and evaluation; 1 for greedy decoding."""
        return (self.evaluate.top_p or self.algorithm.top_p) if self.evaluate.temperature > 0 else 1.0

    @property
    def most_turns(self) -> int:
        """The longest horizon of training, or the evaluation's without training."""
        if not self.stages:
            return self.evaluate.horizon
        planned = [stage.horizon for stage in self.planned_stages if stage.horizon is not None]
        return max([self.schedule.levels()[-1].horizon, *planned])

    @property
    def training_gyms(self) -> tuple[str, ...]:
        """All gyms of all stages, in order of appearance."""
        return tuple(dict.fromkeys(gym for planned in self.planned_stages for gym in planned.stage.gyms))

    def stage_table(self) -> list[dict[str, Any]]:
        """Return one row per planned stage: stage, steps, first, last, horizon, mix, gates."""
        return [
            {
                "stage": planned.name,
                "steps": planned.steps,
                "first": planned.first,
                "last": planned.last,
                "horizon": planned.horizon if planned.horizon is not None else "adaptive",
                "mix": dict.fromkeys(planned.stage.alternate, 1.0) or dict(planned.stage.mix),
                "alternate": bool(planned.stage.alternate),
                "gates": planned.stage.gates.model_dump(exclude_none=True) if planned.stage.gates else None,
                "cpu_seconds": planned.stage.cpu_seconds,
                "gpu_seconds": planned.stage.gpu_seconds,
            }
            for planned in self.planned_stages
        ]

    def resolved(self) -> dict[str, Any]:
        """Return every value, JSON-able. `Recipe.model_validate` makes the same recipe from it."""
        return self.model_dump(mode="json")

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The values behind hashes and ids (see `curricula.identity`)."""
        return identity_values(self)

    @cached_property
    def hash(self) -> str:
        """The experiment's identity without seed and backend, in 16 hex digits."""
        return content_hash(self.identity)

    @cached_property
    def former_identity(self) -> dict[str, Any]:
        """The values that ids were computed from up to commit f197b02."""
        return former_identity_values(self)

    @cached_property
    def former_hash(self) -> str:
        """The recipe's hash up to commit f197b02."""
        return content_hash(self.former_identity)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings from loading."""
        return self._warnings

    @property
    def replaced(self) -> tuple[Replaced, ...]:
        """Values of weaker layers that stronger ones replaced. Empty for a recipe read back in resolved form."""
        return self._replaced

    def origin(self, key: str) -> Origin:
        """Return the origin of the value at a dotted key."""
        while key:
            if key in self._origins:
                return self._origins[key]
            key = key.rpartition(".")[0]
        return Origin("default", "ours")

    def _steps(self, stage: Stage) -> int:
        if stage.steps is not None:
            return stage.steps
        if stage.timed:
            return MAX_STEPS
        if stage.tokens is not None:
            return max(round(stage.tokens / (self.algorithm.batch_tokens or stage.tokens)), 1)
        # Whole batches only, as in the released training: what is left of an epoch is not trained on.
        batches = max((stage.pool or self.rl_tasks or 0) // self.algorithm.batch, 1)
        return max(round((stage.epochs or 0) * batches), 1)

    def _piece(self, stage: Stage, first: int, end: int) -> tuple[int | None, int]:
        """Return the horizon from step ``first`` on, and the last step up to ``end`` that has it."""
        if self.horizons is None:
            return stage.horizon, end
        if self.horizons.adaptive:
            return None, end
        index, _, last = place(self.horizons.levels(), first)
        return self.horizons.levels()[index].horizon, end if last is None or last < first else min(last, end)


def _own_horizon(stage: Stage) -> int:
    """Return the horizon that a stage gives itself. A recipe without a schedule was refused if a stage gives none."""
    if stage.horizon is None:
        raise ConfigError("recipe.missing_key", "A stage has no horizon. Give one, or a schedule for the whole run.")
    return stage.horizon
