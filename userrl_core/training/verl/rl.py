"""One RL stage on verl, from a job to a checkpoint: the counterpart of the local backend's `train_rl`.

Stages are sequential runs by default. Each is a separate process that starts from the previous stage. A stage can
therefore be reused, repeated or stopped by itself, may use another number of GPUs, and frees the cluster for an
evaluation in between. The horizon is read from the stage file by global step in either case. One run over all steps
(first_step 1, last_step the recipe's) thus sees the same horizons as the sequence.

This module adds checks that verl lacks. The plugin must answer on every node before a step is spent. Exit status 0
without the last step's checkpoint is a failure. No started process outlives the call.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from userrl_core import processes
from userrl_core.errors import CheckpointError, ConfigError, TrainingError
from userrl_core.gyms.taskfile import write_tasks
from userrl_core.json_files import GrowingLines
from userrl_core.records import CheckpointRecord
from userrl_core.served.health import check_users
from userrl_core.sink import Sink
from userrl_core.training.finite import check_losses
from userrl_core.training.jobs import Best, StageResult, begun_marker, void_earlier_start
from userrl_core.training.local.threads import SETTINGS
from userrl_core.training.protocols import Curriculum, Progress
from userrl_core.training.verl import checkpoints as files
from userrl_core.training.verl.config import agents_file, rl_overrides
from userrl_core.training.verl.data import write_rl_parquet
from userrl_core.training.verl.job import (
    HEARTBEATS,
    OUTAGES,
    STAGE_ENV,
    Resume,
    SinkSpec,
    StageFile,
    VerlJob,
    horizons_of,
)
from userrl_core.training.verl.machine.attention import chosen_attention
from userrl_core.training.verl.machine.death_watch import DeathWatch
from userrl_core.training.verl.machine.node_watch import PATIENCE
from userrl_core.training.verl.memory import check_memory, settle
from userrl_core.training.verl.metrics import LOSSES, step_metrics, validation_score
from userrl_core.training.verl.step_plan import HORIZONS, Decision, StepPlan, decide, plan_steps

ENTROPY_MASK = "userrl_core.training.verl.entropy_trainer"
"""Module that registers the trainer of a recipe with an entropy mask; no other stage loads it."""

RAY_LATE = "The current node timed out during startup"
"""Ray's message when its own daemon is not up after 30 s. This limit cannot be set, and a busy host may need longer."""

RAY_STARTS = 3
"""Number of Ray starts before a stage gives up."""


def run_rl(job: VerlJob, curriculum: Curriculum, sink: Sink, progress: Progress | None = None) -> StageResult:
    """Run the stage to its last step; a restart continues from its newest checkpoint.

    curriculum: newly created; the previous stage's state is loaded. sink: this process's; workers open theirs by
    ``job.sink``. The result's checkpoint is a Hugging Face folder.

    Raises ConfigError before anything starts, CheckpointError for an unusable start, TrainingError when verl fails.
    """
    return _StageStart(job, curriculum, sink, progress).run()


class _StageStart:
    def __init__(self, job: VerlJob, curriculum: Curriculum, sink: Sink, progress: Progress | None) -> None:
        self.computed = job.cluster.device == "cuda" and (job.init / "config.json").is_file()
        job = settle(job, job.init) if self.computed else job
        self.job, self.curriculum, self.sink, self.progress = job, curriculum, sink, progress
        self.folder = job.out_dir / "verl"
        self.root = self.folder / "checkpoints"
        self.resume, self.at = starting_point(job, self.root)
        # The cold start, or a stage before whose shards do not fit: their Hugging Face folder lies within a checkpoint.
        sources = [*filter(None, [self.resume.path]), job.init, *list(job.init.parents)[:2]]
        self.parent = next((card.id for folder in sources if (card := files.read_card(folder))), None)
        self.decides = self.chooses = False
        self.done: set[int] = set()
        self.metrics: dict[str, float] = {}

    def run(self) -> StageResult:
        job = self.job
        if self.computed:
            check_memory(job, job.init)
        check_gpus(job)
        check_users(job.users)
        previous_checkpoint = stage_before(job)
        state = files.read_curriculum(previous_checkpoint) if previous_checkpoint is not None else None
        if state is not None:
            self.curriculum.load_state_dict(state)
        plan = plan_steps(self.folder, self.curriculum, job.first_step, job.last_step, job.algorithm.batch)
        self.curriculum.load_state_dict(plan.state)
        self.decides, self.chooses = plan.decided, plan.chosen
        self._replay_statistics()
        if (card := files.read_card(self.root / f"global_step_{self.at}")) is not None:
            self._log_checkpoint(card)  # again: a killed start may have described it without its row
        if self.at < job.last_step:
            self._void_earlier_start()
            self._prepare(plan)
            self._train()
        return self._result()

    def _prepare(self, plan: StepPlan) -> None:
        from userrl_core.training.local.model import check_elsewhere

        job, folder = self.job, self.folder
        check_elsewhere(self.resume.model)
        self.sink.tasks([*plan.tasks.values(), *job.validation])
        write_rl_parquet(folder / "train.parquet", plan.tasks_from(self.at + 1), "train", folder / "tasks.jsonl")
        validation = job.validation or list(plan.tasks.values())[:1]  # verl wants a file even where it is never read
        write_tasks(folder / "validation.jsonl", validation)
        write_rl_parquet(folder / "validation.parquet", validation, "validate", folder / "validation.jsonl")
        stage_file(job, plan, folder, self.sink).write(folder / "stage.json")
        (folder / "agents.yaml").write_text(agents_file(folder / "stage.json"))
        overrides = rl_overrides(job, folder, self.resume, chosen_attention(job.cluster))
        (folder / "overrides.txt").write_text("\n".join(overrides) + "\n")
        (folder / "fatal").unlink(missing_ok=True)
        (folder / HORIZONS).unlink(missing_ok=True)
        self._decide(self.at + 1)
        if self.resume.path is not None:
            files.forget_dataloader(self.resume.path)

    def _train(self) -> None:
        job = self.job
        count = len(list(self.folder.glob("metrics-*.jsonl")))
        metrics = GrowingLines(self.folder / f"metrics-{count}.jsonl")
        steps = GrowingLines(self.folder / "steps.jsonl", from_end=True)
        stats: dict[int, dict[str, Any]] = {}
        several = job.cluster.nodes > 1
        deaths = DeathWatch(self.folder, self.folder / HEARTBEATS, patience=PATIENCE + 10.0 if several else 0.0)
        outages = GrowingLines(self.folder / OUTAGES, from_end=True)
        reported: set[str] = set()
        moved = time.monotonic()

        def read() -> int:
            """Process new lines. Return the number of finished steps."""
            finished_lines = list(metrics)
            for line in steps:  # the credit actor's line of a step is there before verl's
                stats[int(line["step"])] = line
            for line in finished_lines:
                self._step(int(line["step"]), line["data"], stats.get(int(line["step"])))
            return len(finished_lines)

        def tick() -> None:
            nonlocal moved
            if deaths.failed():  # no step is read any more: it would lack conversations
                deaths.check(over=False)
                return
            if read() > 0:
                moved = time.monotonic()
                reported.clear()
            for outage in outages:  # every conversation that meets it says so
                if outage["address"] not in reported:
                    self.sink.event("user_down", stage=job.stage, **outage)
                    reported.add(outage["address"])
            deaths.check(over=job.last_step in self.done)
            limit = job.stall if self.done else job.first_stall
            if time.monotonic() - moved > limit:
                words = processes.last_words(self.folder / "output.txt")
                raise TrainingError("process.stalled", f"No step finished within {limit:g} s. {words}")

        env = {
            **SETTINGS,
            "RAY_USAGE_STATS_ENABLED": "0",
            "HYDRA_FULL_ERROR": "1",
            "VERL_FILE_LOGGER_PATH": str(metrics.path),
        }
        if job.algorithm.entropy_mask is not None:
            modules = os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",")
            env["VERL_USE_EXTERNAL_MODULES"] = ",".join(filter(None, [*modules, ENTROPY_MASK]))
        env[STAGE_ENV] = json.dumps(sorted([*env, processes.TAGS]))
        scratch = None
        if job.cluster.ray_address is None:
            # Sockets lie in it, and their paths may have 107 bytes at most: a short name in the temporary folder.
            scratch = Path(tempfile.gettempdir()) / f"userrl-ray-{secrets.token_hex(8)}"
            env["USERRL_RAY_DIR"] = str(scratch)
        command = [job.cluster.python or sys.executable, "-u", "-m", "userrl_core.training.verl.main", str(self.folder)]
        for start in range(RAY_STARTS):
            moved = time.monotonic()
            try:
                processes.run(
                    command, self.folder, name="verl", env=env, on_tick=tick, scratch=scratch, stall=job.stall
                )
                break
            except processes.ProcessDied as error:
                if RAY_LATE not in str(error) or start + 1 == RAY_STARTS:
                    raise
        deaths.check(over=True, final=True)
        read()

    def _step(self, step: int, data: Mapping[str, Any], stats: Mapping[str, Any] | None) -> None:
        job = self.job
        check_losses({name: data[name] for name in LOSSES if name in data}, job.stage, step)
        score = validation_score(data, job.validation)
        self.metrics = step_metrics(data, stats, score)
        if step > 0:
            self.done.add(step)
            self.metrics["curriculum/horizon/value"] = float(self.curriculum.horizon(step, ()))
        if stats is not None:
            self._inform_curriculum(stats)
            self.metrics |= self.curriculum.metrics()
        if step > 0:  # the validation before the first step, whose tasks are chosen, comes as step 0
            self._decide(step + 1)
        self.sink.metrics(self.metrics, stage=job.stage, step=step)
        folder = self.root / f"global_step_{step}"
        if files.weights(folder):
            card = files.describe(folder, job.stage, self.parent, score)
            self.parent = card.id
            self.sink.flush()
            self._log_checkpoint(card)
            files.prune(self.root, job.keep_checkpoints, self._best())
        if self.progress is not None and step > 0:
            self.progress(step, job.total_steps or job.last_step, self.metrics)

    def _log_checkpoint(self, card: files.CheckpointCard) -> None:
        path = str(files.hf_folder(self.root / f"global_step_{card.step}"))
        self.sink.checkpoint(
            CheckpointRecord(card.id, path, card.stage, card.step, card.sha256, card.parent, card.score)
        )

    def _result(self) -> StageResult:
        """Return the last checkpoint, after checking that the stage trained all its steps."""
        job = self.job
        folder = files.newest(self.root)
        reached = files.step_of(folder) if folder is not None else None
        if folder is None or reached != job.last_step:
            raise TrainingError(
                "training.no_checkpoint",
                f"verl ended without an error, but its last checkpoint is of step {reached}, not "
                f"{job.last_step}. See {self.folder / 'output.txt'}.",
            )
        silent = sorted(set(range(self.at + 1, job.last_step + 1)) - self.done)
        if silent:
            raise TrainingError(
                "training.no_checkpoint",
                f"verl ended without an error, but did not train step {silent[0]}. See {self.folder / 'output.txt'}.",
            )
        card = files.describe(folder, job.stage, self.parent)
        previous_card = files.read_card(self.resume.path) if self.resume.path else None
        if previous_card is not None and previous_card.step < card.step and previous_card.sha256 == card.sha256:
            self.sink.event("nothing_learnt", stage=job.stage, step=card.step)
        files.save_curriculum(folder, self.curriculum.state_dict())
        return StageResult(
            checkpoint=files.hf_folder(folder),
            id=card.id,
            sha256=card.sha256,
            step=card.step,
            best=self._best(),
            metrics=self.metrics,
        )

    def _replay_statistics(self) -> None:
        """Give the curriculum the statistics of earlier starts of this stage, up to the resumed step."""
        lines_by_step = {int(line["step"]): line for line in GrowingLines(self.folder / "steps.jsonl")}
        for step in range(self.job.first_step, self.at + 1):
            self._choose(step)
            if step in lines_by_step:  # a step without conversations has none
                self._inform_curriculum(lines_by_step[step])

    def _inform_curriculum(self, stats: Mapping[str, Any]) -> None:
        success = stats.get("success")  # none where no attempt was admitted, which is no failure of the policy
        step, numbers = int(stats["step"]), stats.get("numbers", {})
        curriculum_metrics = {} if success is None else {"rollout/success/mean": float(success)}
        curriculum_metrics |= {name: float(numbers[name]) for name in ("groups/mixed/share",) if name in numbers}
        if stats.get("turns") is not None:
            curriculum_metrics["rollout/turns/mean"] = float(stats["turns"])
            curriculum_metrics["curriculum/horizon/value"] = float(self.curriculum.horizon(step, ()))
        for task, success in stats["tasks"].items():
            self.curriculum.observe(task, success, conversations=stats.get("conversations", {}).get(task, 1))
        self.curriculum.record(step, curriculum_metrics)

    def _choose(self, step: int) -> list[str]:
        """Return the keys of the tasks that the curriculum chooses for a step, none where they are planned."""
        return [task.key for task in self.curriculum.draw(step, self.job.algorithm.batch)] if self.chooses else []

    def _decide(self, step: int) -> None:
        """Announce horizon and tasks of a step whose predecessors are recorded, where the agent loops wait for them."""
        if self.decides and step <= self.job.last_step:
            decide(self.folder, step, Decision(self.curriculum.horizon(step, ()), self._choose(step)))

    def _best(self) -> Best | None:
        return files.best_of(self.root, self.job.best)

    def _void_earlier_start(self) -> None:
        """Void the rows that an earlier start of this stage logged for steps that are played again."""
        marker = begun_marker(self.job.out_dir)
        if marker.exists():
            first = self.job.first_step
            void_earlier_start(marker, self.sink, self.job.stage, first, self.at if self.at >= first else None)
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.write_text("")


def starting_point(job: VerlJob, root: Path) -> tuple[Resume, int]:
    """Return verl's starting point and the last completed step.

    The starting point is the stage's newest checkpoint, else the previous stage's, else the model itself. Shards can
    be resumed only by as many GPUs as wrote them. On another number, weights come from the Hugging Face folder and
    the optimizer is new. Raises CheckpointError where the stage cannot continue.
    """
    own_checkpoint = files.settled(root)
    folder = own_checkpoint or stage_before(job)
    gpus = job.cluster.all_gpus
    size = files.world_size(folder) if folder is not None else None
    if folder is None or size is None:  # a model from elsewhere, or the cold start
        if _measures_distance(job) and job.reference is not None and job.reference != job.init:
            raise ConfigError(
                "training.backend_cannot",
                f"verl measures the distance to the model that it starts from ({job.init}), not to "
                f"{job.reference}. Start from the reference model.",
            )
        if job.first_step == 1:
            return Resume(str(job.init)), 0
        if not job.init.is_dir():
            raise CheckpointError(
                "checkpoint.wrong_step", f"{job.init} is not a checkpoint that step {job.first_step} can start from."
            )
        return Resume(str(job.init), _entry(root, job.first_step - 1), weights_only=True), job.first_step - 1
    step = files.step_of(folder) or 0
    if not job.first_step - 1 <= step <= (job.last_step if own_checkpoint else job.first_step - 1):
        raise CheckpointError(
            "checkpoint.wrong_step",
            f"{folder} ends at step {step}, and a stage that begins at step {job.first_step} cannot continue it.",
        )
    if size == gpus:
        # The reference of the distance is the model that verl starts from; its weights are then replaced by the shards'.
        return Resume(str(job.reference or files.hf_folder(folder)), folder), step
    if _measures_distance(job):
        raise ConfigError(
            "checkpoint.wrong_step",
            f"{folder} was written by {size} GPUs. On {gpus} GPUs the distance to the reference model would be "
            f"measured from this checkpoint. Run this stage on {size} GPUs.",
        )
    return Resume(str(files.hf_folder(folder)), _entry(root, step), weights_only=True), step


def stage_before(job: VerlJob) -> Path | None:
    """Return the verl checkpoint that this stage continues; None for a run's first stage, which treats any checkpoint
    as a plain model.
    """
    return files.owner(job.init) if job.first_step > 1 else None


def _measures_distance(job: VerlJob) -> bool:
    return job.algorithm.kl_coef > 0 or job.algorithm.kl_reward_coef > 0


def check_gpus(job: VerlJob) -> None:
    """Raise ConfigError when this process may see fewer GPUs than the stage needs: Ray would wait for them for ever."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or job.cluster.device != "cuda" or job.cluster.ray_address is not None:
        return
    count = len([part for part in visible.split(",") if part.strip()])
    if count < job.cluster.node_gpus:
        raise ConfigError(
            "hardware.too_few_gpus",
            f"The stage needs {job.cluster.node_gpus} GPUs, and CUDA_VISIBLE_DEVICES shows {count} "
            f"({visible!r}). Give the stage all of them, or lower hardware.gpus.",
        )


def stage_file(job: VerlJob, plan: StepPlan, folder: Path, sink: Sink | None = None) -> StageFile:
    """Return the settings for the processes of the stage. sink: if it has an incarnation of the run, workers join it."""
    spec = job.sink
    incarnation = getattr(sink, "incarnation", None)
    if spec is not None and incarnation is not None:
        spec = SinkSpec(name=spec.name, options={**spec.options, "join": incarnation})
    return StageFile(
        job=job.model_copy(update={"validation": []}),
        horizons=horizons_of(plan.horizons),
        decided=plan.decided,
        sink=spec,
        folder=folder,
    )


def _entry(root: Path, step: int) -> Path:
    """Create an empty checkpoint folder that only tells verl the step, for weights that come from elsewhere."""
    folder = root.parent / "entry" / f"global_step_{step}"
    (folder / "actor").mkdir(parents=True, exist_ok=True)
    return folder
