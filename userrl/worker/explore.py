"""AgentEvol's exploration: the newest model plays training tasks, and successes join its training data (`Evolve`)."""

from __future__ import annotations

from userrl.run.job import ProgressWriter, StageJob
from userrl.run.results import DistillResult
from userrl.run.tasks import demonstrated_gyms, sample, tasks_of
from userrl.worker.checkpoint_policy import checkpoint_speaks
from userrl.worker.distill import keep, play
from userrl_core.distill import select_top_k
from userrl_core.errors import TrainingError
from userrl_core.seeding import derive_seed
from userrl_core.sink import Sink


def explore(job: StageJob, sink: Sink, progress: ProgressWriter) -> DistillResult:
    """Sample, keep the successes, and append them to the earlier conversations.

    Raises TrainingError if nothing succeeded and there were no earlier conversations.
    """
    recipe, before, earlier = job.recipe, job.inputs.before, job.inputs.distill
    evolve = recipe.evolve
    if evolve is None or before is None:
        raise TrainingError(
            "stage.not_finished", f"Stage {job.stage} has no model to sample with. Run the stages before it."
        )
    plan = {
        gym: (sample(tasks_of(recipe, gym, "train"), evolve.tasks, job.stage, job.seed), evolve.attempts)
        for gym in demonstrated_gyms(recipe)
    }
    with checkpoint_speaks(job, before.chosen) as speak:
        policy = speak(
            recipe,
            temperature=evolve.temperature,
            top_p=recipe.algorithm.top_p,
            seed=derive_seed("explore", job.stage, job.seed),
            name=job.stage,
        )
        played = play(job, policy, plan, sink, progress, horizon=evolve.horizon, role="train")
    chosen = select_top_k(played, max(len(played), 1), successes=True)
    if not chosen.kept and earlier is None:
        raise TrainingError(
            "demonstrations.too_few",
            f"None of the {len(played)} conversations in stage {job.stage} succeeded, and there are no "
            "demonstrations. Begin with a cold start, or with simpler tasks.",
        )
    before_chats, trained_in = earlier.chats if earlier else None, job.stage.replace("explore", "sft")
    return keep(job, policy.name, played, chosen, sink, earlier=before_chats, trained_in=trained_in)
