"""``userrl checkpoints``: the checkpoints of a run."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from flows.cli.arguments import Json, RunName
from flows.cli.terminal import plain, plain_json


def checkpoints(
    run: RunName = "latest",
    load: Annotated[
        bool,
        typer.Option(
            "--load",
            help="Load each checkpoint with transformers. Without it, config, tokenizer and headers are checked.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """List a run's checkpoints on disk: step, validation score, size, whether transformers loads them, and path.

    Example: userrl checkpoints latest
    """
    from userrl.reports.checkpoints import listed_checkpoints
    from userrl.run.run import find
    from userrl_core.number_format import NULL, number

    target_run = find(run)
    rows, deleted = listed_checkpoints(target_run, load=load)
    if as_json:
        print(plain_json([row.model_dump(mode="json") for row in rows], indent=1))
        return
    if not rows:
        print(f"{target_run.id} has no checkpoint on disk. It is {target_run.status.state}.")
        return
    wide = max(len("stage"), *(len(row.stage) for row in rows))
    print(f"{'stage':{wide}} {'step':>6} {'score':>6} {'MB':>9} {'transformers':12}  path")
    for row in rows:
        score = NULL if row.score is None else number(row.score)
        state = "problem" if row.problem else "loads" if load else "files ok"
        print(
            f"{row.stage:{wide}} {row.step:>6} {score:>6} {row.megabytes:>9.1f} {state:12}  {row.path}{' *' * row.chosen}"
        )
    for row in rows:
        if row.problem:
            print(f"problem at step {row.step} of {row.stage}: {plain(row.problem)}")
    print("score: mean validation score; *: the checkpoint that validation chose")
    if not load:
        print(
            "files ok: config, tokenizer and headers of the weights are complete; --load loads each with transformers"
        )
    if deleted:
        print(f"{deleted} earlier checkpoints were deleted during training (keep_checkpoints)")
    best = next((row for row in rows if row.chosen), rows[-1])
    print(f"next: userrl evaluate {shlex.quote(str(best.path))}")
