"""Deployments are registered as prefect.yaml has them, and schedules stay as a person set them."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
import yaml
from prefect.client.schemas.objects import DeploymentSchedule

from flows.cli.quickstart import request_of
from flows.server.deployments import Deployment, Times, chosen, read_deployments, with_kept
from tests.makers import raises
from tests.places import ROOT


@pytest.fixture(scope="module")
def shipped() -> list[Deployment]:
    return read_deployments(ROOT / "prefect.yaml")


def test_every_deployment_of_the_file_is_read_whole(shipped: list[Deployment], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    assert [row.name for row in shipped] == [row["name"] for row in rows]
    assert len({row.label for row in shipped}) == len(rows)
    for row, deployment in zip(rows, shipped, strict=True):
        assert deployment.tags == row["tags"]
        assert deployment.parameters == row.get("parameters", {})
        assert len(deployment.schedules) == len(row.get("schedules", []))
    monkeypatch.setenv("PWD", "/somewhere")
    assert {row.work_pool.job_variables["working_dir"] for row in read_deployments(ROOT / "prefect.yaml")} == {
        "/somewhere"
    }


def test_every_train_deployment_has_a_tag_for_its_paper(shipped: list[Deployment]) -> None:
    papers = {"paper:userrl", "paper:agentgym-rl", "paper:tarl", "paper:ours"}
    untagged = [row.label for row in shipped if row.label.startswith("train/") and len(papers & set(row.tags)) != 1]
    assert untagged == []


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        ({"triggers": []}, "recipe.unknown_key", "triggers"),
        ({"name": None}, "recipe.invalid_value", "name"),
        ({"work_pool": {"name": "gpu", "image": "x"}}, "recipe.unknown_key", "work_pool.image"),
    ],
)
def test_a_field_that_is_not_read_is_refused(change: dict[str, object], code: str, named: str, tmp_path: Path) -> None:
    row = {"name": "x", "entrypoint": "flows/train.py:train", "work_pool": {"name": "gpu"}, **change}
    file = tmp_path / "prefect.yaml"
    file.write_text(yaml.safe_dump({"deployments": [row]}))
    with raises(code, named):
        read_deployments(file)


def test_a_file_with_build_steps_and_an_unknown_name_are_refused(shipped: list[Deployment], tmp_path: Path) -> None:
    file = tmp_path / "prefect.yaml"
    file.write_text("build: [{x: {}}]\ndeployments: []\n")
    with raises("recipe.unknown_key", "build"):
        read_deployments(file)
    for text in (
        "deployments: [",
        "[]",
        "deployments: {}",
        "deployments: [1]",
        "deployments: [{name: 2026-11-29}]",
        "deployments: []\ndeployments: []",
    ):
        file.write_text(text)
        with raises("file.unreadable"):
            read_deployments(file)
    with raises("file.missing"):
        read_deployments(tmp_path / "none.yaml")
    with raises("server.no_deployment", "did you mean 'train/equalized-r2g'?"):
        chosen(["train/equalized-r2h"], shipped)
    assert [row.label for row in chosen(["sweep/mix"], shipped)] == ["sweep/mix"]


def on_server(times: Times) -> DeploymentSchedule:
    return DeploymentSchedule(deployment_id=uuid4(), **times.as_prefects().model_dump(exclude={"replaces"}))


def test_a_schedule_stays_on_or_off_and_one_of_the_server_alone_is_kept() -> None:
    off, own = (
        Times(cron="0 1 * * *", timezone="UTC", slug="nightly", active=False),
        Times(cron="5 5 * * *", timezone="UTC"),
    )
    row = Deployment(name="x", entrypoint="a.py:sweep", work_pool={"name": "gpu"}, schedules=[off])
    new, nothing = with_kept(row, None)
    assert ([schedule.active for schedule in new], nothing) == ([False], [])
    switched = [on_server(off.model_copy(update={"active": True})), on_server(own)]
    schedules, said = with_kept(row, switched)
    assert [(schedule.schedule.cron, schedule.active) for schedule in schedules] == [
        ("0 1 * * *", True),
        ("5 5 * * *", True),
    ]
    assert said == [
        "the schedule 0 1 * * * UTC stays on",
        "kept the schedule 5 5 * * * UTC, which prefect.yaml does not have",
    ]
    assert with_kept(row, [on_server(off)])[1] == []


def test_a_changed_time_in_the_file_is_taken() -> None:
    before, after = (Times(cron=f"0 {hour} * * *", slug="nightly", timezone="UTC", active=False) for hour in (1, 2))
    row = Deployment(name="x", entrypoint="a.py:sweep", work_pool={"name": "gpu"}, schedules=[after])
    schedules, _ = with_kept(row, [on_server(before.model_copy(update={"active": True}))])
    assert [(schedule.schedule.cron, schedule.active) for schedule in schedules] == [("0 2 * * *", True)]


def test_a_deployment_is_asked_for_with_its_own_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"name": "mine", "entrypoint": "flows/train.py:train", "parameters": {"recipe": "rloo", "seed": 4}}
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump({"deployments": [row]}))
    monkeypatch.chdir(tmp_path)
    request = request_of("train/mine", {"profile": "laptop"})
    assert (request.recipe, request.seed, request.profile) == ("rloo", 4, "laptop")
    assert request_of("maintain/warehouse", {}) is None
    with raises("file.unknown_name", "'nosuch'", "'laptp'", "'algoritm'"):
        request_of("train/mine", {"recipe": "nosuch", "profile": "laptp", "overrides": {"algoritm.lr": 1}})
