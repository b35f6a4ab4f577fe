"""``userrl push``: a checkpoint with a model card on the Hugging Face hub."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.arguments import run_names
from flows.cli.terminal import plain


def push(
    checkpoint: Annotated[
        str,
        typer.Argument(help="A run (its chosen checkpoint), or a checkpoint's folder.", autocompletion=run_names),
    ],
    to: Annotated[str, typer.Option("--to", metavar="OWNER/NAME", help="The model's name on the hub.")],
    only_write: Annotated[
        bool, typer.Option("--only-write", help="Write the folder with its card, and send nothing.")
    ] = False,
    public: Annotated[
        bool, typer.Option("--public", help="Without --only-write: create a public model. Default: private.")
    ] = False,
) -> None:
    """Push a checkpoint to the Hugging Face hub, with a model card made from the report.

    The folder is written first, below `hub` in the home. The token is read from HF_TOKEN, and HF_ENDPOINT names another
    server. The card quotes no conversation. This was tested against a server on this machine, and not run against the hub.

    Example: userrl push latest --to me/errand-agent --only-write
    """
    from userrl.machine.separate import part

    hub = part("userrl-sharing", "hub")
    prepared = hub.prepare(checkpoint, to)
    print(f"wrote {prepared.folder} with README.md, the model card", flush=True)
    for origin in prepared.origins:
        print(f"note: the run used {origin}; the card quotes none of them")
        if prepared.from_scratch:
            print("note: the tokenizer was trained on the run's demonstrations, so its vocabulary has words of them")
    if only_write:
        return
    print(plain(f"pushed {hub.upload(prepared, public=public)}"))
