"""Every shipped recipe under every profile: it runs, verl takes it, or it is refused in a sentence that says what it needs."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

import curricula
from curricula.host import Host, choose_profile
from tests.llama import llama
from tests.makers import raises
from tests.places import ROOT
from tests.userrl_core.training.verl.rig import make_model
from userrl.run.estimate import hours, warning
from userrl.run.readiness import Verdict, forecast, resolve, verdict
from userrl_core.errors import ConfigError
from userrl_core.gyms.registry import names, unavailable
from userrl_core.training.verl.config import compose, rl_overrides, sft_overrides
from userrl_core.training.verl.job import Resume, VerlJob, VerlSftJob

CLUSTER = Host(
    gpus=8,
    gpu_memory=143.8,
    packages=frozenset({"verl", "vllm"}),
    keys=frozenset({"OPENAI_API_KEY", "OPENAI_BASE_URL"}),
    data=frozenset(),
)
"""Eight H200 and a gateway that serves every model: what no machine of a test has."""
LAPTOP = Host()
OF_OUR_OWN = {"webarena": "webshop"}
"""What a laptop plays in place of an environment that is a server elsewhere."""
UNCHECKED = {name for name in curricula.recipe_names() if any(gym in name for gym in OF_OUR_OWN)}
MATRIX = [(name, profile) for name in curricula.recipe_names() for profile in curricula.profile_names()]


def load(name: str, profile: str, **changes: Any) -> curricula.Recipe:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return curricula.load(name, profile, changes, check=name not in UNCHECKED)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What verl opens while it checks a critic's configuration."""
    chat = {"messages": [{"role": "user", "content": "hello"}], "tools": []}
    return make_model(tmp_path_factory.mktemp("weights") / "model", [chat])


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Verdict]:
    """In a home without a model: the checkout's own may have one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("USERRL_HOME", str(tmp_path_factory.mktemp("home")))
        return {pair: ask(*pair) for pair in MATRIX}


def ask(name: str, profile: str) -> Verdict:
    try:
        return verdict(load(name, profile), CLUSTER)
    except ConfigError as refusal:  # a recipe for other profiles alone
        return Verdict("refused", "settings", str(refusal), refusal.code)


def test_every_recipe_under_every_profile_runs_composes_or_is_refused_for_a_reason_of_its_own(
    answers: dict[tuple[str, str], Verdict],
) -> None:
    for answer in answers.values():
        assert (answer.kind == "refused") == bool(answer.sentence)
    if any(unavailable(gym) for gym in names() if gym not in ("openenv", "verifiers")):  # of no shipped recipe
        return  # Java, Chromium or an extra is not here, and what needs it is refused
    assert Counter(answer.kind for answer in answers.values()) == {"refused": 112, "composes": 223, "runs": 160}
    reasons = Counter(answer.reason for answer in answers.values() if answer.reason)
    assert reasons == {"environment": 21, "backend": 32, "settings": 10, "model": 49}
    assert not {"machine", "key", "user", "package", "data"} & set(reasons)


def composed_by_verl(recipe: curricula.Recipe, weights: Path) -> None:
    """Build verl's configurations of the cold start and of RL, and have verl check them.

    weights: a model's folder in place of the recipe's, for what verl opens while it checks.
    """
    shared: dict[str, Any] = {"model": recipe.model, "cluster": recipe.hardware, "out_dir": weights}
    if recipe.cold_start.enabled:
        sft = VerlSftJob(**shared, sft=recipe.cold_start, chats=weights / "chats.jsonl")
        rows = max(recipe.demonstrations.top_k, recipe.cold_start.batch)
        compose(sft_overrides(sft, weights, str(weights), rows), name="sft_trainer_engine")
    for planned in recipe.planned_stages[:1]:
        rl = VerlJob(
            **shared,
            algorithm=recipe.algorithm,
            credit=recipe.credit,
            init=weights,
            reference=weights,
            validate_every=recipe.evaluate.every,
            validation_horizon=recipe.evaluate.horizon,
            last_step=planned.last,
        )
        compose(rl_overrides(rl, weights, Resume(str(weights))))


@pytest.mark.slow
@pytest.mark.parametrize("every_pair", [False, pytest.param(True, marks=pytest.mark.full)])
def test_verl_takes_the_configurations_that_are_said_to_compose(
    answers: dict[tuple[str, str], Verdict], weights: Path, every_pair: bool
) -> None:
    """Of every recipe and of every profile at least one, or all of them."""
    composed = [pair for pair, answer in answers.items() if answer.kind == "composes"]
    chosen = composed if every_pair else list({*dict(reversed(composed)).items(), *by_profile(composed)})
    assert [{pair[part] for pair in chosen} for part in (0, 1)] == [
        {pair[part] for pair in composed} for part in (0, 1)
    ]
    for name, profile in chosen:
        composed_by_verl(load(name, profile), weights)


def by_profile(pairs: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return one pair of each profile."""
    return {(name, profile) for profile, name in {profile: name for name, profile in pairs}.items()}


@pytest.mark.parametrize("name", sorted(curricula.recipe_names()))
def test_a_laptop_runs_every_recipe_whose_environment_is_there(name: str) -> None:
    assert choose_profile(name, "auto", lambda: LAPTOP) == "laptop"
    recipe = load(name, "laptop")
    missing = [reason for gym in recipe.played_gyms if (reason := unavailable(gym))]
    answer = verdict(recipe, LAPTOP)
    assert (answer.kind, answer.sentence) == (("refused", missing[0]) if missing else ("runs", ""))
    published = curricula.load(name, check=False)
    if len(published.training_gyms) == 1:
        own = tuple(OF_OUR_OWN.get(gym, gym) for gym in published.training_gyms)
        assert recipe.training_gyms == own == recipe.evaluate.gyms
    else:
        assert any(row.key == "stages" for row in recipe.replaced)


def test_every_recipe_has_a_deployment() -> None:
    rows = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    trained = {row["name"] for row in rows if row["entrypoint"] == "flows/train.py:train"}
    assert trained == set(curricula.recipe_names())


@pytest.mark.parametrize(
    ("recipe", "host", "profile"),
    [
        ("equalized-r2g", Host(), "laptop"),
        ("tarl", Host(), "laptop"),
        ("equalized-r2g", CLUSTER, "qwen3-8b"),
        ("grpo", CLUSTER, "tarl-8b"),
        ("scaling-inter-textcraft", Host(gpus=8, gpu_memory=80.0), "qwen2.5-7b"),
        ("equalized-r2g", Host(gpus=1, gpu_memory=143.8), "h200-1"),
        ("equalized-r2g", Host(gpus=1), "h200-1"),
    ],
)
def test_auto_takes_the_laptop_without_a_gpu_and_else_what_the_machine_can_hold(
    recipe: str, host: Host, profile: str
) -> None:
    assert choose_profile(recipe, "auto", lambda: host) == profile


def test_auto_on_a_machine_that_fits_no_profile_is_refused_with_the_list() -> None:
    with raises("profile.none_fits") as caught:
        choose_profile("equalized-r2g", "auto", lambda: Host(gpus=1, gpu_memory=24.0))
    assert str(caught.value) == (
        "No profile of recipe 'equalized-r2g' fits this machine, which has 1 GPU of 24 GB (qwen3-8b: 8 GPUs of 141 GB; "
        "qwen3-4b: 8 GPUs of 141 GB; h200-1: 1 GPU of 141 GB). Name a profile that you want to change, or profile=laptop for "
        "the small model."
    )


def test_auto_is_resolved_before_the_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USERRL_SLOTS", "cpu-0")
    assert resolve("equalized-r2g").identity == curricula.load("equalized-r2g", "laptop").identity


@pytest.mark.parametrize(
    ("profile", "changes", "reason", "sentence"),
    [
        ("qwen3-8b", {"gpus": 0}, "machine", "needs 8 GPUs of 141 GB, and this machine has no GPU"),
        ("qwen3-8b", {"gpu_memory": 80.0}, "machine", "and this machine has 8 GPUs of 80 GB"),
        ("qwen3-8b", {"packages": frozenset()}, "package", "needs verl and vllm, which cannot be imported here"),
        ("qwen3-8b", {"keys": frozenset()}, "key", "The demonstrator is gpt-4o, which needs a key. Set OPENAI_API_KEY"),
        ("qwen3-8b", {"keys": frozenset({"OPENAI_API_KEY"})}, "user", "no server of it is given"),
    ],
)
def test_what_a_machine_lacks_is_said_in_one_sentence(
    profile: str, changes: dict[str, object], reason: str, sentence: str
) -> None:
    answer = verdict(load("equalized-r2g", profile), CLUSTER.model_copy(update=changes))
    assert (answer.kind, answer.reason) == ("refused", reason)
    assert sentence in answer.sentence
    assert "\n" not in answer.sentence


def test_verl_without_a_gpu_is_refused_before_demonstrations_are_played(tmp_path: Path) -> None:
    recipe = load("equalized-r2g", "laptop-quick", **{"model.path": str(llama(tmp_path / "model"))})
    answer = verdict(recipe, LAPTOP, backend="verl")
    assert (answer.kind, answer.reason) == ("refused", "machine")
    assert answer.sentence == (
        "verl trains on a GPU, and this machine has none. Start the run on a GPU host (docs/gpu.md), or with backend=local."
    )
    assert verdict(recipe, CLUSTER, backend="verl").kind == "composes"
    bare = verdict(recipe, CLUSTER.model_copy(update={"packages": frozenset({"verl"})}), backend="verl")
    assert bare.sentence.startswith("Backend verl needs vllm, which cannot be imported here.")


def test_no_node_of_several_is_sent_to_itself_for_its_user() -> None:
    several = {"hardware.nodes": 2, "hardware.gpus": 8, "hardware.ray_address": "auto"}
    for own in ({"hardware.user_gpus": "6,7"}, {"hardware.user_url": "http://localhost:8000/v1"}):
        answer = verdict(load("equalized-r2g", "qwen3-8b", **several, **own), CLUSTER)
        assert (answer.kind, answer.reason) == ("refused", "user")
        assert answer.sentence.startswith("2 nodes cannot all reach Qwen/Qwen3-32B at http://")
    reached = load("equalized-r2g", "qwen3-8b", **several, **{"hardware.user_url": "http://host:8000/v1"})
    assert verdict(reached, CLUSTER).kind == "composes"


def test_published_tasks_that_are_not_there_are_said_before_anything_starts() -> None:
    recipe = curricula.load("equalized-r2g", "laptop-quick", {"gyms.travel.published": "/data/userrl"}, check=False)
    assert verdict(recipe, CLUSTER).reason == "data"
    assert verdict(recipe, CLUSTER.model_copy(update={"data": frozenset({"/data/userrl"})})).kind == "runs"


def test_a_long_run_without_a_gpu_says_its_estimate_and_a_short_one_or_one_with_a_gpu_does_not() -> None:
    long = load("equalized-r2g", "h200-1")
    assert str(warning(long, 0)).startswith("This run will take about ")
    assert warning(long, 1) is None
    assert warning(load("equalized-r2g", "laptop"), 0) is None
    # Measured: 50 to 60 CPU-seconds (data/results/README.md).
    assert 20 < 3600 * (hours(load("equalized-r2g", "laptop")) or 0) < 120


def test_a_short_run_has_an_estimate_only_where_runs_have_confirmed_it() -> None:
    laptop, served = load("equalized-r2g", "laptop"), {"kind": "openai", "options": {"model": "m"}}
    assert forecast(laptop, 0) == "This run will take about 1 min on two quiet cores (within a factor of 2)."
    assert forecast(laptop, 1) is None
    for name, changes in (("fixed-babyai", {}), ("agentevol", {}), ("equalized-r2g", {"gyms.errand.user": served})):
        assert forecast(load(name, "laptop", **changes), 0) is None
