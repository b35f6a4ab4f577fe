"""``userrl model fetch|list``: the pretrained models of this home."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.arguments import Json
from flows.cli.terminal import plain, plain_json
from userrl.machine.home import quiet_process

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Fetch pretrained models, and list them.")


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="A known model such as smollm2-135m, or a new name with --from.")],
    source: Annotated[
        Path | None,
        typer.Option("--from", help="A GGUF file, a Hugging Face folder, or a copy of a known model's file."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Download, convert and check a model; does nothing if this home has it. Example: userrl model fetch smollm2-135m."""
    quiet_process()
    os.environ.setdefault("TQDM_DISABLE", "1")
    from userrl.machine.fetch import fetch as fetch_model
    from userrl.machine.pretrained import models_dir

    already_fetched = True

    def say(text: str) -> None:
        nonlocal already_fetched
        already_fetched = False
        typer.echo(plain(text), err=True)

    record = fetch_model(name, source, say)
    if as_json:
        typer.echo(plain_json(record, indent=2))
        return
    check = "perplexity" if "perplexity" in record else "similarity"
    typer.echo(
        plain(
            f"{record['title']}: {record['parameters'] / 1e6:.1f} M parameters, {record['architecture']}, licence "
            f"{record['licence']}, {check} {record[check]:.3g}, in {models_dir() / name}"
        )
    )
    if check == "similarity":
        typer.echo("it was there already" if already_fetched else "its files have the right hashes")
        typer.echo("Next: userrl audit user RUN")
        return
    typer.echo("it was there already" if already_fetched else plain(f"it answers: {record['greedy_answer']}"))
    typer.echo(f"Next: userrl train scaling-inter --profile laptop-lm   or: --set model.path={name}")


@app.command("list")
def list_models(as_json: Json = False) -> None:
    """List the models of this home and those that can be fetched. Example: userrl model list."""
    from userrl.machine.pretrained import MODELS, fetched

    have = fetched()
    if as_json:
        fetched_records = [{**record, "fetched": True} for record in have.values()]
        missing = [
            {"name": name, "title": release.title, "licence": release.licence, "fetched": False}
            for name, release in MODELS.items()
            if name not in have
        ]
        typer.echo(plain_json([*fetched_records, *missing], indent=2))
        return
    for name, record in have.items():
        typer.echo(
            plain(
                f"{name:<18} {record['title']:<36} {record['parameters'] / 1e6:>6.1f} M  {record['licence']}  "
                f"{record['source']}"
            )
        )
    for name, release in MODELS.items():
        if name not in have:
            typer.echo(
                f"{name:<18} {release.title:<36} {release.parameters / 1e6:>6.1f} M  {release.licence}  not fetched "
                f"({release.megabytes:g} MB)"
            )
    typer.echo("Next: userrl model fetch NAME")
