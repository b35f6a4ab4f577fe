"""Hashes and ids of earlier runs stay as they were when a recipe gets new fields."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import create_model

import curricula
from curricula.identity import identity_values
from curricula.recipe import Recipe
from curricula.spec import Stage
from tests.makers import raises
from tests.places import TESTS
from userrl.run.run import identity
from userrl_core.seeding import content_hash
from userrl_core.settings import Settings
from userrl_core.training.config import AlgorithmConfig

WRITTEN = [
    line.split() for line in (TESTS / "data" / "identities.txt").read_text().splitlines() if not line.startswith("#")
]


def load(recipe: str, profile: str = "laptop") -> Recipe:
    return curricula.load(recipe, None if profile == "-" else profile, check=False)


def test_every_shipped_recipe_under_every_profile_has_the_hash_the_run_id_and_the_stage_key_that_it_had() -> None:
    found = []
    for name, profile, *_ in WRITTEN:
        recipe = load(name, profile)
        backend = recipe.hardware.backend
        run_id = identity(recipe.former_identity, seed=0, backend=backend, name="", init_from=None)
        key = content_hash([run_id, "distill", "distill", recipe.former_identity, 0, backend, {}, []])
        found.append([name, profile, recipe.former_hash, run_id, key])
    assert len(found) == 296
    assert found == WRITTEN


class LaterStage(Stage):
    """A stage with a field that did not exist."""

    warm: bool = False


class Fixed(Settings):
    """One of two blocks that `kind` tells apart."""

    kind: Literal["fixed"] = "fixed"


class Free(Settings):
    """The other one."""

    kind: Literal["free"] = "free"


LaterRecipe = create_model(
    "LaterRecipe",
    __base__=Recipe,
    algorithm=(create_model("LaterAlgorithm", __base__=AlgorithmConfig, decay=(float | None, None)), ...),
    stages=(tuple[LaterStage, ...], ()),
    notes=(dict[str, Any], {}),
    budget=(Fixed | Free, Fixed()),
)


def later(**changes: Any) -> dict[str, Any]:
    """What the identity of a recipe is computed from under the later schema."""
    values = load("equalized-r2g").resolved()
    for dotted, value in changes.items():
        *path, key = dotted.split("__")
        place: Any = values
        for part in path:
            place = place[int(part) if part.isdecimal() else part]
        place[key] = value
    return identity_values(LaterRecipe.model_validate(values))


def test_a_new_field_at_its_default_changes_nothing() -> None:
    recipe = load("equalized-r2g")
    assert later() == recipe.identity
    assert later(algorithm__decay=None, stages__1__warm=False, notes={}, budget={"kind": "fixed"}) == recipe.identity


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"algorithm__decay": 0.5}, lambda values: values["algorithm"]["decay"] == 0.5),
        ({"stages__1__warm": True}, lambda values: [s.get("warm") for s in values["stages"]] == [None, True, None]),
        ({"notes": {"a": 1}}, lambda values: values["notes"] == {"a": 1}),
        ({"budget": {"kind": "free"}}, lambda values: values["budget"] == {"kind": "free"}),
    ],
)
def test_a_new_field_with_another_value_is_another_run(changes: dict[str, Any], kept: Any) -> None:
    values = later(**changes)
    assert kept(values)
    assert content_hash(values) != load("equalized-r2g").hash


def test_a_field_of_the_first_schema_counts_also_at_its_default() -> None:
    assert load("equalized-r2g").identity["credit"]["k"] == 2.0


def test_adapters_make_another_experiment_and_their_absence_does_not() -> None:
    full = curricula.load("equalized-r2g", "laptop", check=False)
    named = curricula.load("equalized-r2g", "laptop", {"algorithm.lora": None, "cold_start.lora": None}, check=False)
    adapted = curricula.load("equalized-r2g", "laptop", {"algorithm.lora.rank": 8}, check=False)
    assert named.hash == full.hash != adapted.hash
    assert (adapted.algorithm.lora.rank, adapted.algorithm.lora.alpha) == (8, 32) if adapted.algorithm.lora else False


def test_a_cold_start_from_scratch_with_adapters_is_refused() -> None:
    with raises("recipe.conflict"):
        curricula.load("equalized-r2g", "laptop", {"cold_start.lora": {"rank": 8}}, check=False)


def test_a_corrected_citation_renames_no_run() -> None:
    recipe = load("equalized-r2g")
    corrected = recipe.model_copy(update={"source": "UserRL 4.2"})
    assert corrected.identity == recipe.identity
    assert corrected.hash == recipe.hash
    assert corrected.former_hash != recipe.former_hash
