"""A value that a recipe marks as released code is the value of the released script.

The figures were read from examples/train of AgentGym-RL (82402a9) and from examples/sglang_multiturn/train.sh and eval/eval.sh of
UserRL (cf55a30).
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

import curricula
from curricula.recipe import Recipe


class Script(NamedTuple):
    """The values of one training script of AgentGym-RL.

    rounds: turns, of each span where they grow. prompt, response and tokens: lengths in tokens.
    """

    rounds: tuple[int, ...]
    group: int
    batch: int
    mini_batch: int
    inner_epochs: int
    epochs: int
    prompt: int
    response: int
    tokens: int


SCRIPTS = {
    "scaling-inter-webarena": Script((8, 12, 15), 4, 32, 4, 2, 25, 750, 14098, 512),
    "scaling-inter-searchqa": Script((5, 8, 10), 4, 32, 8, 2, 20, 1024, 8192, 512),
    "scaling-inter-textcraft": Script((10, 20, 30), 8, 32, 8, 2, 30, 512, 10240, 512),
    "scaling-inter-babyai": Script((6, 13, 20), 4, 32, 8, 2, 20, 512, 8192, 512),
    "scaling-inter-sciworld": Script((10, 20, 30), 8, 16, 8, 1, 10, 1024, 8192, 200),
    "fixed-webarena": Script((15,), 4, 32, 4, 2, 25, 750, 14098, 512),
    "fixed-searchqa": Script((5,), 4, 32, 8, 2, 20, 1024, 8192, 512),
    "fixed-textcraft": Script((30,), 8, 32, 8, 2, 30, 512, 10240, 512),
    "fixed-babyai": Script((20,), 8, 16, 8, 1, 10, 1024, 4096, 200),
    "fixed-sciworld": Script((20,), 8, 16, 8, 1, 10, 1024, 4096, 200),
}
SPANS = {"scaling-inter-webarena": 80}
"""Steps of a span where they are not 100."""
EVALUATED = {"webarena": 15, "textcraft": 30, "babyai": 20, "sciworld": 30, "searchqa": 30}
"""max_rounds of the evaluation scripts."""


def load(name: str) -> Recipe:
    return curricula.load(name, check=False)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_recipe_of_agentgym_rl_has_the_values_of_its_released_script(name: str) -> None:
    recipe, script = load(name), SCRIPTS[name]
    algorithm = recipe.algorithm
    assert recipe.origin("algorithm.group").citation == "released code"
    assert (
        algorithm.group,
        algorithm.batch,
        algorithm.minibatches,
        algorithm.inner_epochs,
        algorithm.max_response_tokens,
        algorithm.max_tokens,
    ) == (
        script.group,
        script.batch,
        script.batch // script.mini_batch,
        script.inner_epochs,
        script.response,
        script.tokens,
    )
    assert (algorithm.name, algorithm.clip, algorithm.kl_coef, algorithm.entropy_coef, algorithm.lr) == (
        "grpo",
        0.2,
        0.001,
        0.001,
        1e-6,
    )
    # One trajectory to a micro-batch, each a mean over its tokens: a mean over trajectories.
    assert algorithm.loss_aggregation == "trajectory_mean"
    span = SPANS.get(name, 100)
    assert tuple(recipe.schedule.horizon(1 + span * number) for number in range(len(script.rounds))) == script.rounds


@pytest.mark.parametrize("name", [*SCRIPTS, "userrl-released"])
def test_lengths_that_are_marked_as_released_are_the_released_lengths(name: str) -> None:
    recipe = load(name)
    prompt, environment = recipe.algorithm.max_prompt_tokens, name.rpartition("-")[2]
    if recipe.origin("algorithm.max_prompt_tokens").citation.startswith("released code"):
        assert prompt == SCRIPTS[name].prompt
    else:
        assert prompt == (1152 if name == "userrl-released" else 1024)
    if recipe.origin("evaluate.horizon").citation.startswith("released code"):
        assert recipe.evaluate.horizon == EVALUATED[environment]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_stages_name_the_epochs_of_the_released_script(name: str) -> None:
    recipe, epochs = load(name), SCRIPTS[name].epochs
    cited = recipe.origin("stages").citation
    assert cited == f"released code: {epochs} epochs" or cited.endswith(
        f"the released code trains {epochs} epochs of tasks it does not count"
    )
    assert recipe.stages[0].epochs in (None, epochs)


def test_the_comparison_with_reinforce_on_babyai_has_the_values_of_its_grpo_side() -> None:
    own, other = load("grpo-vs-reinforce-babyai").algorithm, load("fixed-babyai").algorithm
    assert own.name == "reinforce_pp"
    assert own.model_copy(update={"name": "grpo"}) == other


def test_userrl_released_has_the_values_of_its_released_script() -> None:
    recipe = load("userrl-released")
    algorithm = recipe.algorithm
    assert (algorithm.group, algorithm.batch, algorithm.minibatches, algorithm.inner_epochs) == (8, 128, 8, 1)
    assert (algorithm.lr, algorithm.kl_coef, algorithm.entropy_coef, algorithm.clip) == (1e-6, 0.0, 0.0, 0.2)
    assert (algorithm.max_prompt_tokens, algorithm.max_response_tokens, algorithm.temperature) == (1152, 8192, 1.0)
    assert (recipe.stages[0].epochs, recipe.stages[0].horizon, recipe.evaluate.horizon) == (15, 15, 16)
    assert recipe.evaluate.temperature == 0.0
