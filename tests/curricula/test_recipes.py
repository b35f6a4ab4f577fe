import json
import math
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import yaml

import curricula
from curricula import feasibility
from curricula.feasibility import check_credit, check_horizons
from tests.makers import raises
from userrl_core.errors import ConfigError

ALL = [
    (name, profile)
    for name in curricula.recipe_names()
    for profile in (None, *curricula.profile_names())
    if name != "horizon-fork" or profile in (None, "laptop")
]


def load(name="equalized-r2g", profile="laptop-quick", overrides=None, **rest):
    return curricula.load(name, profile, overrides, check=False, **rest)


def refusal(overrides, name="equalized-r2g", profile="laptop-quick"):
    with pytest.raises(ConfigError) as caught:
        load(name, profile, overrides)
    return str(caught.value)


@pytest.fixture
def write(tmp_path):
    def write_recipe(text, name="mine.yaml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_recipe


@pytest.mark.parametrize(("name", "profile"), ALL)
def test_every_recipe_loads_under_every_profile_and_survives_json(name, profile):
    recipe = load(name, profile)
    again = curricula.from_resolved(json.loads(json.dumps(recipe.resolved())))
    assert again.resolved() == recipe.resolved()
    assert again.hash == recipe.hash
    ways = [recipe.along(branch) for branch in recipe.branches or ("",)]
    assert max(sum(planned.steps for planned in way) for way in ways) == recipe.total_steps
    horizons = [recipe.schedule.levels()[0].horizon] if recipe.planned_stages else []
    horizons += [planned.horizon for planned in recipe.planned_stages if planned.horizon is not None]
    assert horizons == sorted(horizons)


def test_a_recipe_for_the_laptop_alone_is_refused_under_another_profile():
    with raises("profile.other_recipe", "'qwen3-8b'"):
        load("horizon-fork", "qwen3-8b")


def test_runs_on_may_be_one_name_and_must_be_names(write):
    with raises("profile.other_recipe", "stages for profile laptop alone, and 'h200-1' is another"):
        load(write("extends: equalized-r2g\nruns_on: laptop\n"), "h200-1")
    for value in ("3", "[3]", "{laptop: 1}"):
        with raises("recipe.invalid_value", "'runs_on' must be a list of names"):
            load(write(f"extends: equalized-r2g\nruns_on: {value}\n"), "laptop")


@pytest.mark.parametrize("name", curricula.recipe_names())
def test_every_recipe_names_its_source(name):
    assert len(load(name, None).source) > 3


@pytest.mark.parametrize("name", curricula.recipe_names())
def test_every_value_of_a_recipe_file_has_an_origin(name):
    recipe = load(name, None)
    assert recipe.origin("credit.shaping").where.startswith("recipe ")
    assert recipe.origin("credit.shaping").citation


def test_the_paper_recipe_reads_as_table_6():
    recipe = load("equalized-r2g", None)
    rl = recipe.algorithm
    assert (rl.batch, rl.group, rl.lr, rl.minibatches, rl.kl_coef, rl.entropy_coef) == (128, 8, 1e-6, 8, 0.0, 0.0)
    assert (rl.max_prompt_tokens, rl.max_response_tokens, rl.temperature) == (1152, 8192, 1.0)
    assert (recipe.credit.gamma, recipe.credit.k) == (0.8, 2.0)
    assert recipe.total_steps == 15 * (2426 // 128)
    assert recipe.schedule.horizon(1) == 16
    sft = recipe.cold_start
    assert (sft.epochs, sft.lr, sft.schedule, sft.warmup, sft.cutoff, sft.batch) == (3, 1e-5, "cosine", 0.1, 16384, 32)
    assert recipe.split.held_out == ("intention", "telepathy", "search")


@pytest.mark.parametrize(
    ("name", "shaping", "score", "form"),
    [
        ("equalized-r2g", "equalized", "r2g", "released"),
        ("equalized-sum", "equalized", "sum", "released"),
        ("em-r2g", "em", "r2g", "released"),
        ("r2g-r2g", "r2g", "r2g", "paper"),
        ("naive-sum", "naive", "sum", "paper"),
    ],
)
def test_the_five_settings_name_shaping_score_and_form(name, shaping, score, form):
    credit = load(name).credit
    assert (credit.shaping, credit.score, credit.form) == (shaping, score, form)


def test_tarl_reads_as_table_5():
    recipe = load("grpo", "tarl-8b")
    rl = recipe.algorithm
    assert (rl.group, rl.batch, rl.temperature, rl.top_p, rl.clip, rl.grad_norm, rl.inner_epochs) == (
        4,
        32,
        0.7,
        0.95,
        0.2,
        1.0,
        1,
    )
    assert (rl.kl_coef, rl.kl_reward_coef, rl.lr, rl.critic_lr) == (0.003, 0.001, 1e-6, 1e-5)
    assert recipe.schedule.horizon(250) == 30
    judge = load("tarl", None).judge
    assert judge is not None
    assert (judge.terminal, judge.deviation, judge.good) == (10.0, -5.0, 5.0)


def test_retail_and_math_take_turns_batch_by_batch():
    recipe = load("tarl", None)
    assert [recipe.mix(step) for step in (1, 2, 3)] == [{"tau": 1.0}, {"math": 1.0}, {"tau": 1.0}]


def test_released_and_paper_scaling_inter_differ_where_the_paper_differs():
    released, paper = load("scaling-inter-textcraft", None), load("scaling-inter-textcraft-paper", None)
    assert [stage.horizon for stage in released.planned_stages] == [10, 20, 30]
    assert [stage.horizon for stage in paper.planned_stages] == [10, 20]
    web = load("scaling-inter-webarena-paper", None)
    assert (web.algorithm.lr, web.algorithm.group, web.planned_stages[-1].horizon) == (5e-7, 4, 15)
    assert web.origin("algorithm.lr").citation == "AgentGym-RL appendix B: 5.0e-7"


def test_the_sft_baseline_has_no_rl_stage():
    recipe = load("sft-agentgym", None)
    assert recipe.cold_start.lr == 1e-4
    assert recipe.planned_stages == ()
    assert recipe.total_steps == 0
    with raises("recipe.no_such_step"):
        recipe.schedule.horizon(1)


def test_the_laptop_profile_swaps_in_its_stages_and_keeps_the_credit():
    recipe = load("em-r2g")
    assert [(stage.first, stage.last, stage.horizon) for stage in recipe.planned_stages] == [
        (1, 15, 4),
        (16, 30, 5),
        (31, 60, 6),
    ]
    assert recipe.credit.shaping == "em"
    assert recipe.model.path is None
    assert recipe.gym("travel").tasks == {"tier": "tiny"}


def test_a_profile_fits_a_recipe_with_a_schedule_of_its_own():
    assert [stage.horizon for stage in load("scaling-inter").planned_stages] == [4, 5, 6]
    assert load("adaptive").planned_stages[0].horizon is None


def test_a_pretrained_model_over_the_laptop_profile():
    assert load(overrides={"model.path": "Qwen/Qwen3-0.6B"}).model.path == "Qwen/Qwen3-0.6B"


def test_stage_of_names_the_stage_of_every_step():
    recipe = load()
    assert [recipe.stage_of(step).name for step in (1, 15, 16, 30, 31, 60)] == [
        "rl-1",
        "rl-1",
        "rl-2",
        "rl-2",
        "rl-3",
        "rl-3",
    ]
    with raises("recipe.no_such_step", "steps 1 to 60"):
        recipe.stage_of(61)


def test_a_stage_with_a_gate_ends_early_and_the_last_one_gets_its_steps():
    stages = [
        {"steps": 10, "horizon": 4, "mix": {"travel": 1}, "gates": {"success": 0.5, "window": 1}},
        {"steps": 5, "horizon": 6, "mix": {"function": 1}},
    ]
    recipe = load(overrides={"stages": stages})
    history = [{"step": 1, "success": 0.0}, {"step": 2, "success": 0.9}, {"step": 3, "success": 0.0}]
    assert recipe.schedule.horizon(2, history) == 4
    assert recipe.schedule.horizon(3, history) == 6
    stage = recipe.stage_of(3, history)
    assert (stage.name, stage.first, stage.last) == ("rl-2", 3, 15)
    assert recipe.mix(4, history) == {"function": 1.0}


def test_overrides_reach_lists_blocks_and_every_stage():
    recipe = load(
        overrides={"stages.*.mix": {"travel": 1, "function": 2}, "stages[2].steps": 5, "algorithm": {"lr": 1e-3}}
    )
    assert all(stage.mix == {"travel": 1.0, "function": 2.0} for stage in recipe.stages)
    assert recipe.total_steps == 35
    assert (recipe.algorithm.lr, recipe.algorithm.batch) == (1e-3, 8)
    assert recipe.origin("algorithm.lr").where == "override"
    assert recipe.origin("algorithm.batch").where == "profile laptop-quick"


def test_an_override_of_one_value_keeps_its_neighbours_origins():
    recipe = load(overrides={"credit.gamma": 0.9})
    assert recipe.origin("credit.gamma").where == "override"
    assert recipe.origin("credit.shaping").where == "recipe equalized-r2g"


def test_the_same_recipe_has_the_same_hash_and_another_value_another():
    assert load().hash == load().hash
    assert load().hash != load(overrides={"credit.gamma": 0.9}).hash
    assert load().hash != load("equalized-sum").hash


def test_a_sentence_about_a_wrong_value_does_not_quote_pages_of_it():
    with raises("recipe.invalid_value", "(given: 'xxx") as caught:
        load(overrides={"algorithm.lr": "x" * 100_000})
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"credit.gama": 0.9}, "unknown key 'credit.gama' (did you mean 'gamma'?)"),
        ({"stages.0.horizn": 4}, "unknown key 'stages.0.horizn' (did you mean 'horizon'?)"),
        ({"gyms.travel.tsks": {}}, "unknown key 'gyms.travel.tsks' (did you mean 'tasks'?)"),
        ({"algoritm.lr": 1}, "unknown key 'algoritm' (did you mean 'algorithm'?)"),
        ({"stages.7.horizon": 4}, "Use 0 to 2 or *"),
        ({"stages.0.horizon": 0}, "stages.0.horizon: input should be greater than 0 (given: 0)"),
        ({"evaluate.horizon": 3_000_000_000}, "evaluate.horizon: input should be less than or equal to 10000"),
        ({"demonstrations.top_k": -1}, "demonstrations.top_k: input should be greater than 0"),
        ({"stages.1.horizon": 3}, "horizon 3 follows 4; horizons never shrink"),
        ({"stages.0.mix": {}}, "the mix is empty; name at least one gym"),
        ({"stages.0.mix": 5}, "stages.0.mix: give keys with values"),
        (
            {"stages": [{"steps": 2, "horizon": 4, "alternate": True}]},
            "stages.0.alternate: input should be a list",
        ),
        ({"evaluate.gyms": "wish"}, "'equalized-r2g': evaluate.gyms: input should be 'all' or a list (given: 'wish')."),
        ({"stages.0.mix": {"travel": 0}}, "greater than 0"),
        ({"stages.0.mix": {"telepathy": 1}}, "trains on telepathy, which is held out"),
        ({"algorithm.group": 1}, "group of 1"),
        ({"algorithm.lr": "fast"}, "algorithm.lr: input should be a valid number"),
        ({"algorithm.lr": float("nan")}, "algorithm.lr"),
        ({"algorithm.lr": float("inf")}, "algorithm.lr"),
        ({"credit.gamma": 1.2}, "credit.gamma: input should be less than or equal to 1"),
        ({"schedule": {"kind": "steep"}}, "fixed, stages, scaling_inter, adaptive"),
        ({"schedule": {"kind": "fixed", "turns": 6}}, "in addition to the schedule"),
        ({"profile": "qwen3-8b"}, "cannot be overridden"),
        ({"algorithm.lr.x": 1}, "goes into a single value"),
        ({"algorithm.name": "rloo", "credit.shaping": "em"}, "rloo does not divide an advantage among turns"),
        ({"algorithm.name": "remax", "credit.shaping": "em"}, "remax does not divide an advantage among turns"),
        (
            {"algorithm.name": "remax", "credit.shaping": "equalized", "credit.filter": "resample"},
            "remax can learn from these; set it to drop or keep",
        ),
        ({"algorithm.name": "remax", "algorithm.kl_reward_coef": 0.1}, "whose tokens pay no KL penalty"),
        ({"algorithm.name": "ppo", "credit.shaping": "naive", "credit.form": "paper"}, "set it to equalized"),
    ],
)
def test_refusals_say_in_one_sentence_what_to_change(overrides, message):
    said = refusal(overrides)
    assert message in said.replace("Input", "input")
    assert "\n" not in said


def test_unknown_recipes_and_profiles_name_the_nearest():
    with raises("file.unknown_name", "did you mean 'equalized-r2g'"):
        curricula.load("equalised-r2g")
    with raises("file.unknown_name", "did you mean 'laptop'"):
        curricula.load("equalized-r2g", "labtop")


def test_a_horizon_in_which_nothing_can_be_solved_is_refused(monkeypatch):
    monkeypatch.setattr(feasibility, "solving_turns", lambda *_: [4, 5])
    recipe = load(overrides={"stages.0.horizon": 2})
    with raises("recipe.short_horizon", "'travel'"):
        check_horizons(recipe)
    allowed = load(overrides={"stages.0.horizon": 2, "allow_short_horizon": True})
    assert "cannot solve any task" in check_horizons(allowed)[0]


def test_a_horizon_in_which_fewer_than_half_can_be_solved_is_warned_about(monkeypatch):
    monkeypatch.setattr(feasibility, "solving_turns", lambda *_: [4, 5, 5, 7])
    found = check_horizons(load())
    assert len(found) == 1
    assert "lets only 25%" in found[0]


def test_the_gyms_themselves_are_asked_when_a_recipe_is_loaded():
    with raises("recipe.short_horizon"):
        curricula.load("equalized-r2g", "laptop-quick", {"stages.0.horizon": 3})
    with pytest.warns(UserWarning, match="cannot solve any task"):
        curricula.load("equalized-r2g", "laptop-quick", {"stages.0.horizon": 3, "allow_short_horizon": True})


def test_a_gym_without_training_tasks_is_refused_when_a_recipe_is_loaded():
    with raises("task.none_left", "Gym 'verifiers' has no training tasks"):
        curricula.load("equalized-r2g", "laptop-quick", {"stages.*.mix": {"verifiers": 1}})


def test_a_gym_that_does_not_exist_is_named_with_the_nearest():
    with raises("gym.no_such_gym", "'travle'", "did you mean 'travel'"):
        curricula.load("equalized-r2g", "laptop-quick", {"stages.*.mix": {"travle": 1}})
    for key, value in (("split.held_out", ["travle"]), ("stages.*.tasks", {"travle": {"tier": "tiny"}})):
        with raises("gym.no_such_gym", "'travle'"):
            curricula.load("equalized-r2g", "laptop-quick", {key: value})
    assert load(overrides={"split.held_out": ["webshop", "webarena"]}).split.held_out == ("webshop", "webarena")


@pytest.mark.parametrize(
    ("credit", "bounds", "code"),
    [
        ({"shaping": "r2g", "form": "released"}, (-0.5, 1.0), "credit.negative"),
        ({"shaping": "naive", "form": "released"}, (-0.5, 1.0), "credit.negative"),
        ({"shaping": "em"}, (0.0, 2.0), "credit.out_of_range"),
    ],
)
def test_rewards_that_do_not_fit_the_credit_are_refused_when_the_recipe_is_loaded(credit, bounds, code, monkeypatch):
    monkeypatch.setattr(feasibility, "reward_range", lambda *_: bounds)
    with raises(code):
        check_credit(load(overrides={"credit": credit}))
    monkeypatch.setattr(feasibility, "reward_range", lambda *_: (-0.5, 1.0))
    check_credit(load(overrides={"credit": {"shaping": "r2g", "form": "paper"}}))


def test_a_step_penalty_makes_rewards_negative_and_released_r2g_is_refused():
    overrides = {"gyms.travel.config": {"step_penalty": 0.1}, "credit": {"shaping": "r2g", "form": "released"}}
    with raises("credit.negative", "-0.1"):
        curricula.load("equalized-r2g", "laptop-quick", overrides)


def test_the_keys_of_an_anchor_are_merged(write):
    text = "stages:\n  - &first {steps: 3, horizon: 8, mix: {travel: 1}}\n  - {<<: *first, horizon: 10}\n"
    recipe = load(write(f"extends: equalized-r2g\n{text}"))
    assert [(stage.steps, stage.horizon) for stage in recipe.stages] == [(3, 8), (3, 10)]


def test_a_recipe_of_ones_own(write):
    path = write("name: mine\nextends: equalized-r2g\nsource: ours\ncredit: {gamma: 0.7}\n")
    recipe = load(path)
    assert (recipe.name, recipe.credit.gamma, recipe.credit.shaping) == ("mine", 0.7, "equalized")
    assert recipe.origin("credit.gamma").where == "recipe mine"


@pytest.mark.parametrize(
    ("text", "code", "fact"),
    [
        ("name: mine\nname: yours\n", "file.unreadable", "'name' is given twice"),
        ("extends: grpo\nevaluate: {tasks: 012}\n", "file.unreadable", "line 2: YAML reads 012 as the number 10"),
        ("extends: grpo\nevaluate: {tasks: 1:30}\n", "file.unreadable", "YAML reads 1:30 as the number 90"),
        ("extends: grpo\ncredit: {gamma: 0:0.5}\n", "file.unreadable", "YAML reads 0:0.5 as the number 0.5"),
        ("extends: grpo\nevaluate: {tasks: yes}\n", "recipe.invalid_value", "evaluate.tasks is a truth value"),
        (
            "extends: grpo\nstages: [{steps: 4, horizon: true, mix: {travel: 1}}]\n",
            "recipe.invalid_value",
            "stages.0.horizon is a truth value",
        ),
        (
            "extends: grpo\nstages: [{steps: 4, horizon: 8, mix: {travel: on}}]\n",
            "recipe.invalid_value",
            "stages.0.mix.travel is a truth value",
        ),
        ("- a\n- b\n", "file.unreadable", "no mapping"),
        ("name: [1\n", "file.unreadable", "YAML"),
        ("name: mine\nextends: mine.yaml\n", "file.missing", "mine.yaml"),
        ("name: mine\nstages: [{horizon: 4, mix: {travel: 1}}]\n", "recipe.conflict", "exactly one of steps, epochs"),
        ("name: mine\nstages: [{steps: 4, mix: {travel: 1}}]\n", "recipe.missing_key", "has no horizon"),
        ("name: mine\nstages: [{epochs: 4, horizon: 4, mix: {travel: 1}}]\n", "recipe.missing_key", "rl_tasks"),
        ("name: mine\nstages: [{tokens: 9000, horizon: 4, mix: {travel: 1}}]\n", "recipe.missing_key", "batch_tokens"),
        ("name: mine\nsources: 3\n", "recipe.invalid_value", "'sources'"),
        ("{" * 2_000, "file.unreadable", ""),
        ("name: mine\nx: !!python/object/apply:os.system [echo]\n", "file.unreadable", "YAML"),
    ],
)
def test_broken_files_are_refused_in_one_sentence(write, text, code, fact):
    with raises(code, fact):
        load(write(text), None)


ONE_STAGE = [{"steps": 3, "horizon": 4, "mix": {"wish": 1}}]


def openai(**options):
    return {"kind": "openai", "options": {"model": "m", **options}}


@pytest.mark.parametrize(
    ("key", "value", "code", "fact"),
    [
        ("algorithm.betas", [0.9, 1.0], "recipe.invalid_value", "algorithm.betas.1: input should be less than 1"),
        ("cold_start.betas", [-0.1, 0.9], "recipe.invalid_value", "cold_start.betas.0: input should be greater than"),
        ("gyms.wish.user", {"population": {"hesitation": True}}, "recipe.invalid_value", "hesitation is a truth value"),
        ("evaluate.user", {"population": {"patience": {"of": [3, True]}}}, "recipe.invalid_value", "patience.of.1 is"),
        ("evaluate.user", {"population": {"patience": {"of": [math.inf]}}}, "user.bad_option", "be a finite number"),
        ("gyms.wish.config", {"step_penalty": True}, "gym.bad_option", "step_penalty is a truth value"),
        ("gyms.wish.evaluation", {"step_penalty": math.nan}, "gym.bad_option", "step_penalty"),
        ("gyms.agentgym.tasks", {"first": True}, "task.bad_option", "first is a truth value"),
        ("stages.*.tasks", {"wish": {"sizes": [True]}}, "task.bad_option", "not [True]"),
        ("evaluate.user", openai(temperature=True), "recipe.invalid_value", "options.temperature is a truth"),
        ("demonstrations.user", openai(timeout=math.inf), "user.bad_option", "option timeout"),
        ("judge", {"model": "m", "options": {"retries": True}}, "recipe.invalid_value", "judge.options.retries is a truth"),
    ],
)  # fmt: skip
def test_a_number_in_a_free_block_is_neither_a_truth_value_nor_infinite(key, value, code, fact):
    with raises(code, fact):
        curricula.load("equalized-r2g", "laptop", {key: value})


@pytest.mark.parametrize("profile", ["laptop", "qwen3-8b"])
@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ({"evaluate.horizon": "abc", "stages": ONE_STAGE}, "evaluate.horizon"),
        ({"evaluate.horizon": math.nan, "stages": ONE_STAGE}, "evaluate.horizon"),
        ({"algorithm.max_response_tokens": "abc", "stages": ONE_STAGE}, "algorithm.max_response_tokens"),
        ({"demonstrations.top_k": "x"}, "demonstrations.top_k"),
        ({"demonstrations.episodes": math.inf}, "demonstrations.episodes"),
    ],
)
def test_a_value_that_is_no_number_is_named_where_lengths_are_computed_with_it(profile, overrides, key):
    with raises("recipe.invalid_value", key):
        curricula.load("equalized-r2g", profile, overrides)


def test_a_recipe_that_was_stored_with_a_truth_value_still_opens():
    stored = curricula.load("equalized-r2g", "laptop").resolved()
    stored["gyms"]["wish"]["user"]["population"] = {"hesitation": True}
    assert curricula.from_resolved(stored).gym("wish").user.population == {"hesitation": True}


def test_a_profile_with_a_misspelt_size_of_a_gym_is_refused(tmp_path):
    (tmp_path / "mine.yaml").write_text("small: {travel: {taks: {tier: tiny}}}\n")
    with raises("recipe.unknown_key", "small.travel", "did you mean 'tasks'"):
        curricula.load("equalized-r2g", tmp_path / "mine.yaml")


@pytest.mark.parametrize("profiles", ["3", "{laptop-quick: 3}", "{laptop-quick: [1]}"])
def test_what_a_recipe_says_for_a_profile_must_be_fields(write, profiles):
    with raises("recipe.invalid_value"):
        load(write(f"name: mine\nprofiles: {profiles}\n"), "laptop-quick")


def test_a_recipe_that_extends_itself_is_refused(write):
    path = write("name: mine\n")
    path.write_text(f"name: mine\nextends: {path}\n", encoding="utf-8")
    with raises("recipe.circular"):
        load(path, None)


def test_a_profile_may_not_touch_the_experiment(write):
    profile = write("credit: {gamma: 0.5}\n", "greedy.yaml")
    with raises("profile.recipe_key", "'credit'"):
        load("equalized-r2g", profile)
    profile = write("algorithm: {name: ppo}\n", "sly.yaml")
    with raises("profile.recipe_key", "'algorithm.name'"):
        load("equalized-r2g", profile)


def test_every_recipe_passes_the_gyms_checks_on_the_laptop():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        curricula.load("equalized-r2g", "laptop-quick")
        curricula.load("scaling-inter", "laptop-quick")


def test_importing_recipes_loads_neither_torch_nor_prefect_nor_duckdb():
    code = (
        "import sys, curricula; curricula.load('equalized-r2g', 'laptop');"
        "print([m for m in ('torch', 'prefect', 'duckdb', 'transformers', 'optuna') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_resolved_recipe_is_itself_under_the_profile_it_holds(tmp_path: Path) -> None:
    changed = curricula.load("equalized-r2g", "laptop-quick", {"stages.*.horizon": 6, "algorithm.lr": 3e-4})
    file = tmp_path / "winner.yaml"
    file.write_text(yaml.safe_dump(changed.resolved()))
    again = curricula.load(file, "laptop-quick")
    assert again.resolved() == changed.resolved()
    assert again.hash == changed.hash
    assert curricula.load(file).resolved() == changed.resolved()


def test_a_stage_given_in_tokens_has_as_many_steps_as_they_fill() -> None:
    recipe = curricula.Recipe.model_validate(
        {
            "name": "mine",
            "algorithm": {"batch_tokens": 4096},
            "stages": [
                {"tokens": 150_000, "horizon": 6, "mix": {"errand": 1}},
                {"tokens": 100, "horizon": 9, "mix": {"errand": 1}},
            ],
        }
    )
    assert [(stage.first, stage.last, stage.horizon) for stage in recipe.planned_stages] == [(1, 37, 6), (38, 38, 9)]


FORK = {
    "name": "fork",
    "stages": [{"steps": 3, "horizon": 6, "mix": {"errand": 1}}],
    "branches": {
        "a": [{"steps": 6, "horizon": 6, "mix": {"errand": 1}}],
        "b": [{"steps": 2, "horizon": 10, "mix": {"errand": 1}}, {"steps": 4, "horizon": 16, "mix": {"wish": 1}}],
    },
}


def test_an_empty_mapping_ends_a_recipes_branches() -> None:
    assert curricula.load("horizon-fork", "laptop").branches
    assert curricula.load("horizon-fork", "laptop", {"branches": {}}).branches == {}


def test_branches_go_on_from_the_last_common_stage_with_stages_of_their_own() -> None:
    recipe = curricula.Recipe.model_validate(FORK)
    rows = [(s.name, s.first, s.last, s.horizon) for s in recipe.planned_stages]
    assert rows == [("rl-1", 1, 3, 6), ("rl-2-a", 4, 9, 6), ("rl-3-b", 4, 5, 10), ("rl-4-b", 6, 9, 16)]
    assert [recipe.stage_of(step, branch="b").name for step in (3, 4, 9)] == ["rl-1", "rl-3-b", "rl-4-b"]
    assert recipe.stage_of(4, branch="a").name == "rl-2-a"
    assert [recipe.horizon(step, branch="b") for step in (3, 4, 9)] == [6, 10, 16]
    assert (recipe.total_steps, recipe.training_gyms) == (9, ("errand", "wish"))
    assert curricula.Recipe.model_validate(recipe.resolved()).planned_stages == recipe.planned_stages


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"schedule": {"kind": "fixed", "turns": 6}, "stages": [{"steps": 3, "mix": {"errand": 1}}]},
            "their own horizons",
        ),
        ({"branches": {"A b": [{"steps": 3, "horizon": 6, "mix": {"errand": 1}}]}}, "pattern"),
        ({"branches": {"a": [{"steps": 3, "mix": {"errand": 1}}]}}, r"branches.a\[0\] has no horizon"),
        ({"stages": [{"steps": 3, "horizon": 6, "mix": {"errand": 1}, "gates": {"at_most": 3}}]}, "has gates"),
    ],
)
def test_branches_that_do_not_fit_are_refused(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        curricula.Recipe.model_validate({**FORK, **changes})
