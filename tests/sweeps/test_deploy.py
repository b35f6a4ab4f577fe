"""The compose file and the Kubernetes pool: their parts fit each other, the deployments and Prefect's own rules."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from prefect.utilities.callables import get_call_parameters

from sweeps.space import SweepBudget, load_space
from tests.places import ROOT

REPOSITORY = ROOT
DEPLOY = REPOSITORY / "deploy"
PLACEHOLDER = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@pytest.fixture
def compose() -> Any:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


@pytest.fixture
def pool() -> Any:
    return json.loads((DEPLOY / "kubernetes-pool.json").read_text())


def test_the_compose_file_is_valid_by_the_compose_specification(compose: Any) -> None:
    # schema/compose-spec.json of github.com/compose-spec/compose-spec at 170098b (June 2026, Apache-2.0).
    schema = json.loads((REPOSITORY / "tests" / "data" / "compose-spec.json").read_text())
    validator = jsonschema.Draft7Validator(schema)
    assert [error.message for error in validator.iter_errors(compose)] == []
    compose["services"]["trainer"]["comand"] = "x"
    assert ["comand" in error.message for error in validator.iter_errors(compose)] == [True]


def test_prefect_s_own_command_line_takes_every_prefect_command_of_the_compose_file(compose: Any) -> None:
    from prefect.cli._app import _app

    commands = [service.get("command", []) for service in compose["services"].values()]
    taken = {}
    for command in commands:
        if command[:1] == ["prefect"]:
            function, bound, _ = _app.parse_args(command[1:], exit_on_error=False, print_error=False)
            taken[" ".join(command)] = (function.__module__, bound.arguments)
    assert [module for module, _ in taken.values()] == [
        "prefect.cli.worker",
        "prefect.cli.worker",
    ]
    server = compose["services"]["server"]["command"]
    assert server == ["python", "-m", "flows.server.prefect_server", "4200", "0.0.0.0", "server"]
    assert [given["work_queues"] for _, given in taken.values() if "work_queues" in given] == [["sweeps"], ["default"]]


def test_prefect_knows_every_setting_that_the_compose_file_gives_it(compose: Any) -> None:
    from prefect.settings import Settings
    from prefect.settings.legacy import _get_settings_fields

    given = {name for service in compose["services"].values() for name in service.get("environment", {})}
    settings = {name for name in given if name.startswith("PREFECT_")}
    assert {"PREFECT_API_URL", "PREFECT_SERVER_DATABASE_CONNECTION_URL"} <= settings
    assert settings <= set(_get_settings_fields(Settings))


def test_every_client_of_the_compose_file_has_the_server_s_password(compose: Any) -> None:
    for name, service in compose["services"].items():
        given = service.get("environment", {})
        assert "USERRL_SERVER_PASSWORD" in str(given) or name == "database", name


def test_no_pool_lets_a_deployment_choose_a_command(pool: Any) -> None:
    assert "command" not in json.dumps(pool)
    assert pool["variables"]["additionalProperties"] is False


def test_ports_are_published_on_the_loopback_interface_alone(compose: Any) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("flow", ["train", "distill", "evaluate", "maintain", "sweep"])
def test_a_flow_takes_the_parameters_of_each_of_its_deployments(flow: str) -> None:
    from prefect.flows import load_flow_from_entrypoint

    entrypoint = f"flows/{flow}.py:{flow}"
    loaded = load_flow_from_entrypoint(str(REPOSITORY / entrypoint))
    deployments = yaml.safe_load((REPOSITORY / "prefect.yaml").read_text())["deployments"]
    given = [row.get("parameters", {}) for row in deployments if row["entrypoint"] == entrypoint]
    assert given
    for parameters in given:
        assert set(parameters) <= set(loaded.parameters.properties)
        loaded.validate_parameters(get_call_parameters(loaded.fn, (), parameters))


def test_what_compose_services_name_exists(compose: Any) -> None:
    services = compose["services"]
    for service in services.values():
        assert {volume.split(":")[0] for volume in service.get("volumes", [])} <= set(compose["volumes"])
        assert set(service.get("depends_on", {})) <= set(services)
        assert {config["source"] for config in service.get("configs", [])} <= set(compose["configs"])
        for name, wanted in service.get("depends_on", {}).items():
            assert wanted["condition"] != "service_healthy" or "healthcheck" in services[name]
        if "build" in service:
            assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).resolve().is_file()


def test_a_worker_with_a_limit_takes_no_sweep_and_some_worker_takes_them(compose: Any) -> None:
    deployments = yaml.safe_load((REPOSITORY / "prefect.yaml").read_text())["deployments"]
    queues = {row["entrypoint"]: row["work_pool"]["work_queue_name"] for row in deployments}
    assert queues.pop("flows/sweep.py:sweep") == "sweeps"
    assert set(queues.values()) == {"default"}
    commands = [
        service["command"] for service in compose["services"].values() if "worker" in service.get("command", [])
    ]
    taken = {command[command.index("--work-queue") + 1]: "--limit" in command for command in commands}
    assert taken == {"sweeps": False, "default": True}


def test_a_placeholder_of_the_kubernetes_pool_is_a_variable_and_the_other_way_round(pool: Any) -> None:
    assert set(PLACEHOLDER.findall(json.dumps(pool["job_configuration"]))) == set(pool["variables"]["properties"])


def test_the_kubernetes_pool_s_variables_are_a_schema_that_their_defaults_fit(pool: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(pool["variables"])
    for name, variable in pool["variables"]["properties"].items():
        assert "default" in variable, name
        jsonschema.validate(variable["default"], variable)


def test_prefect_takes_the_kubernetes_pool_s_template(pool: Any) -> None:
    from prefect.client.schemas.actions import WorkPoolCreate

    assert WorkPoolCreate(name="trials", type="kubernetes", base_job_template=pool).base_job_template == pool


def rendered(pool: Any) -> Any:
    """The job as a deployment's defaults make it."""
    from prefect.utilities.templating import apply_values

    values = {name: variable["default"] for name, variable in pool["variables"]["properties"].items()}
    return apply_values(pool["job_configuration"]["job_manifest"], {**values, "name": "t", "command": ["x"]})


@pytest.mark.parametrize("version", ["1.25", "1.37"])
def test_the_rendered_kubernetes_job_is_valid_by_the_strict_schemas_of_kubernetes(pool: Any, version: str) -> None:
    manifest = rendered(pool)
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    # Prefect's worker writes the environment as Kubernetes wants it when it makes the job.
    container["env"] = [{"name": name, "value": value} for name, value in container["env"].items()]
    assert kubernetes_validate.validate(manifest, version, strict=True) == version
    container["volumeMount"] = container.pop("volumeMounts")
    with pytest.raises(kubernetes_validate.ValidationError, match="volumeMount"):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_a_rendered_kubernetes_job_asks_for_its_gpu_and_the_shared_state(pool: Any) -> None:
    manifest = rendered(pool)
    assert (manifest["apiVersion"], manifest["kind"]) == ("batch/v1", "Job")
    assert manifest["metadata"]["generateName"] == "t-"
    assert manifest["spec"]["backoffLimit"] == 0  # the sweep starts a failed trial again, and counts it
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted["state"] == container["env"]["USERRL_HOME"]
    assert set(mounted) == {volume["name"] for volume in pod["volumes"]}
    assert pod["restartPolicy"] == "Never"


def test_scheduled_and_called_sweeps_have_budgets_that_their_spaces_take() -> None:
    deployments = yaml.safe_load((REPOSITORY / "prefect.yaml").read_text())["deployments"]
    sweeps = {row["name"]: row for row in deployments if row["entrypoint"] == "flows/sweep.py:sweep"}
    assert {"reward-shaping", "horizon", "gamma"} <= set(sweeps)
    for row in sweeps.values():
        parameters = row["parameters"]
        space = load_space(parameters["space"])
        assert set(parameters["budget"]) == {"hours", "gpu_hours", "money"}
        SweepBudget.model_validate(
            {**space.budget.model_dump(), **parameters["budget"], "trials": parameters["trials"]}
        )
    crons = {name: [s["cron"] for s in row.get("schedules", [])] for name, row in sweeps.items()}
    assert {name for name, schedules in crons.items() if schedules} == {"reward-shaping", "horizon"}
    assert all(sweeps[name]["parameters"]["renew"] for name in ("reward-shaping", "horizon"))


def test_the_pins_that_schedules_need_are_in_place() -> None:
    constraints = (REPOSITORY / "constraints.txt").read_text().lower() + (
        REPOSITORY / "pyproject.toml"
    ).read_text().lower()
    assert re.search(r"prefect==3\.8\.8", constraints)
    assert re.search(r"sqlalchemy[^\n]*<\s*2\.1|sqlalchemy==2\.0\.", constraints)
