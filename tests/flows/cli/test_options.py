"""Options that a command would not read as they were written."""

from __future__ import annotations

from importlib import import_module

import pytest
from typer.testing import CliRunner

from flows.cli.main import COMMANDS, app
from flows.cli.options import conditions


def call(words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, words.split())
    return done.exit_code, f"{done.output}{done.exception}"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("train equalized-r2g --seed 1 --seed 2 --dry-run", "--seed is given twice"),
        ("sql from_runs --limit 1 --limit 2", "--limit is given twice"),
        ("warehouse export there --run latest", "--run is read only with --format"),
        ("warehouse export there --format messages --option a=1", "--option is read only without --format"),
        ("warehouse export there --option a=1 --option a=2", "--option a: give each key once"),
        ("scan latest --name x --rubric why", "--rubric is read only with --with judge"),
        ("scan latest --name x --check --pattern why", "--check labels nothing"),
        ("evaluate latest --turns 4,5 --horizon 3", "--horizon is read only without --turns"),
        ("reproduce --list --seeds 3", "--seeds is not read with --list"),
        ("sql from_runs --json --format csv", "each name a row format"),
        ("compare a b --json --format junit --policy x", "each name what is printed"),
        ("tasks list --split test", "Name the gym"),
        ("play travel --skill 1", "--skill is read only with --as user"),
        ("play travel --run latest", "--run is read only with --as user"),
        ("play travel --as user --run latest --horizon 3", "--horizon is read only without --run"),
        ("play travel --as user --model m --skill 1", "--skill is read only without --model"),
        ("play travel --base-url http://127.0.0.1:1/v1", "--base-url is read only with --model"),
        ("sweep run gamma --renew --fresh", "--renew is read only without --fresh"),
        ("evaluate demonstrator --temperature 0.5", "which no temperature changes"),
        ("evaluate --demonstrator --temperature 0", "which no temperature changes"),
        ("sql from_runs --seconds 1e300", "--seconds"),
        ("evaluate demonstrator --turns ²", "Write --turns as"),
        ("evaluate demonstrator --horizon -1", "--horizon"),
        ("scan latest --name x --check --on turn", "--on is read only without --check"),
        ("show 1 --full --json", "--full is read only without --json"),
        ("server --password --port 4400", "starts no server"),
        ("serve-user --model m --command echo{port} --memory 0.5", "--memory is read only without --command"),
        ("serve-user --model m --command echo{port} -- --dtype half", "extra is read only without --command"),
        ("serve-tools outfitter --data .", "is ours and reads no --data"),
        ("tasks synthesise --out x --data .", "--data is read only with --from"),
        ("compare a b --policy x --by label:x --format junit", "Omit one"),
        ("evaluate userrl-table3:ours --demonstrator --profile laptop", "sets all sizes"),
        ("tasks validate travel --all", "name gyms, or give --all"),
    ],
)
def test_an_option_that_would_not_be_read_is_refused(words: str, sentence: str) -> None:
    status, output = call(words)
    assert status != 0
    assert sentence in output


def test_options_that_may_be_repeated_and_flags_may_be_given_twice() -> None:
    _, output = call("train equalized-r2g --profile laptop --dry-run --set seed_unknown=1 --set seed_unknown2=2")
    assert "given twice" not in output
    assert call("runs list --json --json")[0] == 0
    assert call("evaluate userrl-table3 --list")[0] == 0


def test_each_condition_in_a_help_text_names_an_option_of_its_command() -> None:
    for name, (module, _) in COMMANDS.items():
        import_module(f"flows.cli.{module}")
        command = app_command(name)
        for below in (command, *getattr(command, "commands", {}).values()):
            names = {name for option in below.params for name in option.opts}
            for option in below.params:
                for _, other, _ in conditions(option):
                    assert other in names, (name, option.name)


def app_command(name: str) -> object:
    from typer.main import get_command

    return get_command(app).get_command(None, name)  # type: ignore[attr-defined]
