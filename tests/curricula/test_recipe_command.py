import json

import pytest
from typer.testing import CliRunner

import curricula
from curricula.gains import gains
from curricula.yaml_files import read
from flows.cli.main import app
from flows.cli.training.recipe import parse_changes
from tests.makers import raises
from userrl_core.number_format import with_limits

runner = CliRunner()


def test_show_prints_the_stage_table_and_where_values_came_from():
    done = runner.invoke(
        app, ["recipe", "show", "scaling-inter", "--profile", "laptop-quick", "--set", "algorithm.lr=1e-4"]
    )
    assert done.exit_code == 0
    assert "rl-2       15    16    30        5  travel" in done.output
    lr = next(line for line in done.output.splitlines() if line.startswith("algorithm.lr "))
    assert lr.split() == ["algorithm.lr", "0.0001", "override"]
    gamma = next(line for line in done.output.splitlines() if line.startswith("credit.gamma "))
    assert gamma.endswith("recipe equalized-r2g: UserRL table 6")


def test_show_json_names_a_source_for_every_value():
    done = runner.invoke(app, ["recipe", "show", "equalized-r2g", "--profile", "none", "--json"])
    assert done.exit_code == 0
    shown = json.loads(done.output)
    assert shown["total_steps"] == 270
    assert shown["sources"]["algorithm.lr"] == {"where": "recipe equalized-r2g", "citation": "UserRL table 6"}
    assert shown["sources"]["credit.ddof"] == {"where": "default", "citation": "ours"}
    assert all(source["citation"] or source["where"] == "override" for source in shown["sources"].values())


def test_list_names_recipes_and_profiles():
    done = runner.invoke(app, ["recipe", "list", "--json"])
    listed = json.loads(done.output)
    assert {"equalized-r2g", "tarl", "scaling-inter-textcraft"} <= {row["name"] for row in listed["recipes"]}
    assert {"laptop", "qwen3-8b"} <= set(listed["profiles"])
    head, first, *_, last = runner.invoke(app, ["recipe", "list"]).output.splitlines()
    assert head.split() == ["recipe", "RL", "steps", "gyms", "minutes", "gain", "source"]
    assert (head.index("gyms"), head.index("gain")) == (first.index("errand"), first.index("+"))
    assert "Next: userrl recipe show" in last


def test_a_control_says_why_it_is_expected_to_fail_and_only_itself(tmp_path):
    assert (
        "control: expected to fail, because raw turn rewards"
        in runner.invoke(app, ["recipe", "show", "naive-sum"]).output
    )
    (tmp_path / "mine.yaml").write_text("extends: naive-sum\ncredit: {shaping: equalized}\n")
    assert "control: expected" not in runner.invoke(app, ["recipe", "show", str(tmp_path / "mine.yaml")]).output
    (tmp_path / "warm.yaml").write_text("extends: equalized-r2g-no-sft\ncold_start: {enabled: true}\n")
    assert curricula.load(str(tmp_path / "warm.yaml"), profile="laptop").control == ""
    assert curricula.load("equalized-r2g-no-sft", profile="laptop").control
    assert not curricula.load("equalized-r2g-no-sft").control


def test_what_is_expected_of_a_recipe_is_no_part_of_its_identity():
    recipe = curricula.load("naive-sum", profile="laptop")
    other = recipe.model_copy(update={"control": ""})
    assert (other.hash, other.former_hash) == (recipe.hash, recipe.former_hash)


def test_the_list_has_the_gain_of_each_measured_recipe_or_that_it_is_a_control():
    lines = {
        line.split()[0]: line
        for line in runner.invoke(app, ["recipe", "list"]).output.splitlines()
        if " steps " in line
    }
    for name, gain in gains().items():
        control = curricula.load(name, profile="laptop", check=False).control
        expected = "control" if control else with_limits(gain, 2, sign=True)
        assert f" {gain.cpu_seconds / 60:.1f} min  {expected} " in lines[name]
    assert "  control  " in lines["naive-sum"]
    assert "  control  " in lines["em-r2g-no-sft"]


def test_what_cannot_be_used_ends_with_one_sentence_and_code_1():
    for arguments, code in (
        (["show", "nope"], "file.unknown_name"),
        (["show", "equalized-r2g", "--set", "x"], "argument.malformed"),
        (["show", "grpo", "--set", "credit.gama=1"], "recipe.unknown_key"),
    ):
        done = runner.invoke(app, ["recipe", *arguments])
        assert done.exit_code == 1
        assert done.output.startswith("error: ")
        assert done.output.endswith(f" [{code}]\n")
        assert len(done.output.strip().splitlines()) == 1


def test_the_next_command_trains_what_was_shown_without_a_server():
    shown = ["show", "equalized-r2g", "--profile", "laptop-quick", "--set", "stages.*.mix={travel: 1}"]
    assert runner.invoke(app, ["recipe", *shown]).output.splitlines()[-1] == (
        "Next: userrl train equalized-r2g --profile laptop-quick --set 'stages.*.mix={travel: 1}'"
    )


def test_a_persons_values_are_shown_as_theirs_and_not_as_the_base_s(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("extends: equalized-r2g\ncredit: {gamma: 0.93}\nprofiles: {laptop: {algorithm: {lr: 0.0003}}}\n")
    lines = runner.invoke(app, ["recipe", "show", str(file), "--profile", "laptop"]).output.splitlines()
    assert lines[1] == "your own; other values from recipe equalized-r2g: UserRL 4.1 and table 6"
    came_from = {
        line.split()[0]: line.split(maxsplit=2)[2] for line in lines if line.startswith(("credit", "algorithm"))
    }
    assert came_from["credit.gamma"] == "recipe mine: yours"
    assert came_from["credit.score"] == "recipe equalized-r2g: UserRL section 3"
    assert came_from["algorithm.lr"] == "recipe mine, for profile laptop: yours"


def test_a_misspelt_gym_is_one_sentence_with_the_nearest_name(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("extends: equalized-r2g\nstages: [{steps: 4, horizon: 4, mix: {travle: 1}}]\n")
    done = runner.invoke(app, ["recipe", "show", str(file)])
    assert done.exit_code == 1
    sentence = (
        "error: Recipe 'mine' names a gym 'travle', which does not exist (did you mean 'travel'?). Known: agentgym, "
    )
    assert done.output.startswith(sentence)
    assert len(done.output.splitlines()) == 1


def test_a_shipped_recipe_of_an_environment_that_is_not_here_can_be_looked_at():
    done = runner.invoke(app, ["recipe", "show", "fixed-webarena", "--profile", "none"])
    assert done.exit_code == 0
    assert "needs the environment webarena, which this version does not have" in done.output


def test_changes_are_read_as_yaml():
    assert parse_changes(["stages.*.mix={travel: 1}", "model.path=null", "algorithm.lr=0.1", "name=a=b"]) == {
        "stages.*.mix": {"travel": 1},
        "model.path": None,
        "algorithm.lr": 0.1,
        "name": "a=b",
    }


@pytest.mark.parametrize(
    "changes",
    [
        ["credit.gamma=0.5", "credit.gamma=0.9"],
        ["credit.gamma=0.5", "credit={gamma: 0.9, k: 2}"],
        ["credit={k: 2, gamma: 0.5}", "credit.gamma=0.9"],
    ],
)
def test_a_key_that_is_given_twice_is_refused(changes):
    with raises("argument.malformed", f"'{changes[0]}' and '{changes[1]}' both give credit.gamma. Keep one."):
        parse_changes(changes)


UNREADABLE = {
    "9" * 5000: "is no int. Put text in quotes",
    "2026-02-30": "2026-02-30 is no timestamp. Put text in quotes",
    "!!int abc": "abc is no int. Put text in quotes",
    "!!float a b": "a b is no float. Put text in quotes",
    "!!int ''": "an empty value is no int. Put text in quotes",
    "!!bool foo": "foo is no bool. Put text in quotes",
    "!!timestamp foo": "foo is no timestamp. Put text in quotes",
    "[" * 2000: "it is nested too deeply",
    "a\0": "it holds the character '\\x00'",
}


@pytest.mark.parametrize("value", UNREADABLE, ids=range(len(UNREADABLE)))
def test_a_value_that_yaml_cannot_read_is_one_sentence_in_a_change_and_in_a_file(tmp_path, value):
    with raises("argument.malformed", "The value of 'a' cannot be read as YAML: ", UNREADABLE[value]) as caught:
        parse_changes([f"a={value}"])
    assert len(str(caught.value)) < 300
    (tmp_path / "mine.yaml").write_text(f"extends: equalized-r2g\na: {value}\n")
    with raises("file.unreadable", UNREADABLE[value]) as caught:
        read(tmp_path / "mine.yaml")
    assert "\n" not in str(caught.value)


def test_a_recipe_in_another_encoding_is_refused_with_the_remedy(tmp_path):
    (tmp_path / "mine.yaml").write_bytes("extends: equalized-r2g".encode("utf-16"))
    with raises("file.unreadable", "mine.yaml is not UTF-8 text. Save it as UTF-8."):
        read(tmp_path / "mine.yaml")
