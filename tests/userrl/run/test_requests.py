"""From what a flow is asked to what a trainer is handed: every value named once, none lost on the way."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.schema_tools.validation import validate

from curricula import load, profile_names, recipe_names
from curricula.recipe import Recipe
from curricula.validation import unknown_key
from tests.makers import raises
from tests.places import ROOT
from tests.userrl_core.training.toys import RecordingSink
from userrl.reports.run_report import RunReport
from userrl.reports.run_summary import facts
from userrl.run.job import Inputs, ProgressWriter, StageJob
from userrl.run.plan import plan_run
from userrl.run.request import DistillRequest, EvaluateRequest, SweepRequest, TrainRequest, requested, takes
from userrl.run.results import DistillResult, TrainResult
from userrl.worker.distill import distill
from userrl.worker.train import rl_job, sft_job
from userrl_core.settings import Settings
from userrl_core.training.jobs import RlJob, SftJob
from userrl_core.training.verl.job import VerlJob, VerlSftJob

FLOWS = ROOT / "flows"
UNUSUAL: dict[str, Any] = {
    "algorithm.clip_high": 0.3,
    "algorithm.max_prompt_tokens": 777,
    "algorithm.weight_decay": 0.05,
    "credit.gamma": 0.7,
    "cold_start.cutoff": 555,
    "model.prompt_style": "full",
    "evaluate.every": 7,
    "evaluate.horizon": 9,
    "evaluate.temperature": 0.25,
    "on_format_error": "continue",
    "hardware.workers": 3,
    "gyms.travel.config": {"step_penalty": 0.01},
}


@pytest.mark.parametrize(
    ("name", "model"),
    [("train", TrainRequest), ("distill", DistillRequest), ("evaluate", EvaluateRequest), ("sweep", SweepRequest)],
)
def test_prefect_shows_the_fields_of_a_request_with_their_defaults_and_what_they_are(
    name: str, model: type[Settings]
) -> None:
    shown = load_flow_from_entrypoint(f"{FLOWS / name}.py:{name}").parameters.properties
    fields = model.model_fields
    defaults = {key: list(f.default) if isinstance(f.default, tuple) else f.default for key, f in fields.items()}
    assert {key: value["default"] for key, value in shown.items()} == defaults  # JSON has no tuples
    assert {key: value["description"] for key, value in shown.items()} == {
        key: f.description for key, f in fields.items()
    }
    assert all(field.description for field in fields.values())


@pytest.mark.parametrize(
    ("request_of", "given", "said"),
    [
        (TrainRequest, {"name": "na\udcffme"}, "name: 'na\\udcffme' is not text in UTF-8"),
        (EvaluateRequest, {"model": "m\ud800"}, "model: 'm\\ud800' is not text in UTF-8"),
        (EvaluateRequest, {"gyms": ["travel", "\ud800"]}, "gyms: '\\ud800' is not text in UTF-8"),
        (EvaluateRequest, {"tasks": 10**400}, "tasks: give a number below 2 to the 63rd"),
        (EvaluateRequest, {"user": {"kind": "openai", "options": {"max_tokens": -(10**400)}}}, "user.options.max_tokens: give"),
        (TrainRequest, {"overrides": {"algorithm.\udcff": 1}}, "a parameter's name: 'algorithm.\\udcff' is not text"),
    ],
)  # fmt: skip
def test_what_no_file_or_database_can_hold_is_refused(request_of: type[Settings], given: Any, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        request_of.model_validate(given)


def test_a_form_offers_the_shipped_recipes_and_profiles_and_takes_a_file_too() -> None:
    schema = load_flow_from_entrypoint(f"{FLOWS / 'train'}.py:train").parameters.model_dump_for_openapi()
    for name, shipped, own in (("recipe", recipe_names(), "mine.yaml"), ("profile", profile_names(), None)):
        offered = schema["properties"][name]["anyOf"]
        assert set(shipped) <= set(offered[0]["enum"])
        for value in (shipped[0], own):
            assert validate({name: value}, schema) == []
        assert len(validate({name: 3}, schema)) == 1
    assert len(validate({"seed": "abc"}, schema)) == 1


def test_a_function_of_a_request_is_called_with_its_fields_and_refuses_in_a_sentence() -> None:
    @takes(TrainRequest)
    def asked(request: TrainRequest) -> TrainRequest:
        return request

    assert asked(seed=3, budget={"hours": 2}) == TrainRequest(seed=3, budget={"hours": 2.0})
    with raises("recipe.invalid_value", "budget.hours"):
        asked(budget={"hours": 0})
    with pytest.raises(TypeError, match="sead"):
        asked(sead=1)


@pytest.mark.parametrize(
    ("given", "faults"),
    [
        ({"recipe": "equalised"}, 1),
        ({"recipe": "equalized-r2g", "profile": "laptp"}, 1),
        ({"recipe": "mine.yaml", "profile": "here/mine"}, 0),
        ({"overrides": {"algorithm.lr": 1e-4, "stages[0].horizon": 4, "credit": {"gamma": 0.5}}}, 0),
        ({"overrides": {"algoritm.lr": 1e-4}}, 1),
        ({"recipe": "equalised", "profile": "laptp", "overrides": {"lr": 1}, "seed": "x"}, 4),
        ({"overrides": None, "profile": None}, 0),
    ],
)
def test_the_schema_of_a_deployment_refuses_unknown_recipes_profiles_and_blocks(
    given: dict[str, Any], faults: int
) -> None:
    schema = load_flow_from_entrypoint(f"{FLOWS / 'train'}.py:train").parameters.model_dump_for_openapi()
    assert len(validate(given, schema)) == faults


def test_a_refusal_names_all_faults_at_once() -> None:
    values = {"recipe": "equalised", "profile": "laptp", "seed": -1, "overrides": {"algoritm.lr": 1, "credit.gama": 1}}
    with raises("recipe.invalid_value") as caught:
        requested(TrainRequest, values, "train")
    for fault in (
        "seed",
        "'equalised' (did you mean",
        "'laptp' (did you mean",
        "'algoritm' (did",
        "'credit.gama' (did",
    ):
        assert fault in str(caught.value), fault
    with raises("file.unknown_name") as caught:
        requested(TrainRequest, {"recipe": "equalised"}, "train")
    assert str(caught.value).startswith("There is no recipe 'equalised'")
    with raises("recipe.unknown_key") as caught:
        load("grpo", overrides={"algorithm.lrr": 1, "credit.gama": 1, "evaluate.horizn": 3})
    assert all(key in str(caught.value) for key in ("'algorithm.lrr'", "'credit.gama'", "'evaluate.horizn'"))


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("algorithm.lr", None),
        ("stages.0.horizon", None),
        ("stages[*].mix", None),
        ("gyms.travel.config.anything", None),
        ("algorithm.lr.more", None),
        ("credit.gama", "There is no key 'credit.gama' (did you mean 'gamma'?)."),
        ("credits.gamma", "There is no key 'credits' (did you mean 'credit'?)."),
    ],
)
def test_an_override_key_is_checked_against_the_recipes_fields(key: str, sentence: str | None) -> None:
    assert unknown_key(Recipe, key) == sentence


@pytest.mark.parametrize(("rl_kind", "sft_kind"), [(RlJob, SftJob), (VerlJob, VerlSftJob)])
def test_what_a_recipe_says_reaches_both_trainers_through_the_job_file(
    rl_kind: type[RlJob], sft_kind: type[SftJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    plan = plan_run(
        TrainRequest(
            profile="laptop-quick", overrides=UNUSUAL, seed=5, keep_checkpoints=4, wandb="off", budget={"money": 3.0}
        )
    )
    cold = TrainResult(checkpoint=tmp_path / "cold", sha256="s")
    with plan.begin() as run:
        rl = StageJob.read(plan.job(run, "rl-2", Inputs(before=cold, reference=cold)).write())
        sft = StageJob.read(plan.job(run, "sft").write())
    recipe = plan.recipe
    assert rl.recipe.resolved() == recipe.resolved()
    assert (rl.options.keep_checkpoints, rl.options.wandb, rl.options.budget.money) == (4, "off", 3.0)

    trained = rl_job(rl_kind, rl)
    assert (trained.model, trained.algorithm, trained.credit) == (recipe.model, recipe.algorithm, recipe.credit)
    assert (trained.algorithm.clip_high, trained.algorithm.max_prompt_tokens, trained.credit.gamma) == (0.3, 777, 0.7)
    assert (trained.validate_every, trained.validation_horizon, trained.validation_temperature) == (7, 9, 0.25)
    assert (trained.seed, trained.keep_checkpoints, trained.init) == (5, 4, tmp_path / "cold")
    assert (trained.first_step, trained.last_step, trained.total_steps) == (16, 30, 60)
    assert (trained.on_format_error, trained.gym_config) == ("continue", {"travel": {"step_penalty": 0.01}})

    shown = DistillResult(
        chats=tmp_path / "chats",
        used_tasks=tmp_path / "used",
        policy="scripted",
        played=1,
        kept=1,
        dropped={},
        mean=1.0,
        mean_kept=1.0,
        by_gym={},
        turns=3,
    )
    supervised = sft_job(sft_kind, sft.model_copy(update={"inputs": Inputs(distill=shown)}))
    assert (supervised.model, supervised.sft, supervised.chats) == (recipe.model, recipe.cold_start, shown.chats)
    assert supervised.sft.cutoff == 555


def test_fields_of_given_conversations_that_are_not_read_are_named_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    call = {"name": "interact_with_env", "arguments": {"choice": "action", "content": "area?"}}
    reply = {"role": "assistant", "content": None, "tool_calls": [{"function": call}], "time": 3}
    (tmp_path / "chats.json").write_text(
        json.dumps({"messages": [{"role": "user", "content": "Go."}, reply, reply]}, indent=1)
    )
    given = {"cold_start.data": str(tmp_path / "chats.json")}
    plan = plan_run(TrainRequest(profile="laptop-quick", overrides=given, wandb="off"))
    with plan.begin() as run:
        job = StageJob.read(plan.job(run, "distill").write())
    result = distill(job, RecordingSink(), ProgressWriter(tmp_path / "progress"))
    assert (result.kept, result.turns, result.unread) == (1, 2, {"time": 2})
    report = RunReport(run="r", recipe="x", profile=None, seed=0, demonstrations=result, warehouse="", folder="")
    (note,) = [text for text in map(str, facts(report)) if "does not read" in text]
    assert "given conversations: time (2)." in note


def test_a_plan_resolves_its_recipe_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    monkeypatch.setenv("USERRL_SLOTS", "cpu-0")
    loading, called = import_module("curricula.load"), []
    for step in ("sources", "validated"):
        real = getattr(loading, step)
        monkeypatch.setattr(loading, step, lambda *given, real=real: called.append(real.__name__) or real(*given))
    plan_run(TrainRequest(recipe="horizon-fork", dry_run=True))
    assert called == ["sources", "validated"]


def test_a_run_from_scratch_without_a_cold_start_says_what_its_first_stages_are_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    without = {"cold_start.enabled": False}
    sentence = "cold_start.enabled is false: stage distill only gives"
    plan = plan_run(TrainRequest(profile="laptop-quick", overrides=without, wandb="off"))
    assert plan.stages[:2] == ("distill", "sft")
    assert any(text.startswith(sentence) for text in plan.says)
    plan = plan_run(TrainRequest(profile="laptop-quick", wandb="off"))
    assert not any(text.startswith(sentence) for text in plan.says)


def test_a_run_says_first_how_long_it_takes_then_in_one_line_what_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    plan = plan_run(TrainRequest(profile="laptop-quick", overrides={"evaluate.tasks": 10}, wandb="off"))
    takes, replaced = plan.says
    assert takes.startswith("This run will take about 1 min")
    assert replaced.startswith(f"{len(plan.recipe.replaced)} values of the recipe were replaced (profile laptop-quick")
    assert takes in plan.describe()
    with plan.begin():
        pass
    assert plan.says == (replaced,)  # a part of the work may be done
    assert plan_run(TrainRequest(profile="laptop-quick", until="sft", wandb="off")).estimate is None


def test_a_dry_run_says_what_a_start_on_this_machine_would_be_refused_for(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("{name: own, extends: equalized-r2g, cold_start: {data: no.jsonl}}")
    sentence = "cold_start.data names no.jsonl, which is no file. Give the right path."
    with raises("file.missing", sentence):
        plan_run(TrainRequest(recipe=str(own), wandb="off"))
    assert (
        plan_run(TrainRequest(recipe=str(own), dry_run=True)).describe().endswith(f"It cannot start here. {sentence}")
    )
    assert "cannot start" not in plan_run(TrainRequest(dry_run=True)).describe()


def test_distillation_alone_needs_no_gpu_and_a_dry_run_of_it_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    asked: dict[str, Any] = {
        "recipe": "equalized-r2g",
        "profile": "h200-1",
        "until": "distill",
        "wandb": "off",
        "overrides": {"data": "ours", "demonstrations.policy": "gpt-4o"},
    }
    with raises("model.no_key", "OPENAI_API_KEY"):
        plan_run(TrainRequest(**asked))
    assert "It cannot start here. The demonstrator" in plan_run(TrainRequest(**asked, dry_run=True)).describe()
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    assert plan_run(TrainRequest(**asked)).selected == ("distill",)
    with raises("profile.none_fits"):
        plan_run(TrainRequest(**asked | {"until": "sft"}))


def test_a_run_names_the_values_of_a_file_of_ones_own_that_the_profile_replaces(tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text("{name: mine, extends: equalized-r2g, algorithm: {lr: 2.0e-3, critic_lr: 1e-3}}")
    of_profile = load("equalized-r2g", "laptop").algorithm
    assert (of_profile.lr, of_profile.critic_lr) == (0.001, 0.001)
    told = [text for text in plan_run(TrainRequest(recipe=str(own), wandb="off")).says if "your recipe" in text]
    assert told == [
        "Profile laptop replaces values of your recipe: algorithm.lr 0.002 by 0.001. To keep one, write it below "
        "'profiles: {laptop: ...}' in your file, or use --set."
    ]
    assert not any("your recipe" in text for text in plan_run(TrainRequest(wandb="off")).says)
