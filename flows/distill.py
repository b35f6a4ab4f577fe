"""Demonstrations on their own: any policy with any user, the best of every gym."""

from __future__ import annotations

from flows.machine.home import settle

settle()

from typing import Any  # noqa: E402

from prefect import flow  # noqa: E402

from flows.run.plan import make_plan  # noqa: E402
from flows.run.stage import run_stage  # noqa: E402


@flow(name="distill", flow_run_name="{recipe}-{seed}")
def distill(
    recipe: str = "equalized-r2g",
    profile: str | None = "laptop",
    seed: int = 0,
    name: str = "",
    policy: str | None = None,
    user: dict[str, Any] | str | None = None,
    top_k: int | None = None,
    overrides: dict[str, Any] | None = None,
    fresh: bool = False,
) -> dict[str, Any]:
    """Play and keep demonstrations; returns where the chats are and what was dropped and why.

    policy: ``scripted`` or a served model's name. user: who answers, a kind or {kind, options}. top_k: how many are kept.
    None leaves each as the recipe and profile say.
    """
    given = {"policy": policy, "user": user, "top_k": top_k}
    chosen = {f"demonstrations.{key}": value for key, value in given.items() if value is not None}
    plan = make_plan(recipe, profile, "local", seed, name or "distill", {**(overrides or {}), **chosen})
    with plan.begin(fresh=fresh) as run:
        result = run_stage(run, plan.job(run, "distill", {}))
        run.set_status("completed")
    return {"run": run.id, **result}


if __name__ == "__main__":
    distill()
