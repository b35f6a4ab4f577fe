"""The model that plays users is served by the run itself where the profile says so."""

import sys

import pytest

from curricula import load
from tests.makers import raises
from tests.places import TESTS
from tests.ports import free_port
from userrl.run.tasks import users_of
from userrl.worker.run_users import needs_server, served_users
from userrl_core.served.model_server import ServeOptions, answers

STAND_IN = TESTS / "userrl_core" / "training" / "verl" / "stand_in.py"


@pytest.fixture
def port():
    return free_port()


def recipe(**overrides):
    return load("equalized-r2g", profile="qwen3-8b", overrides=overrides, check=False)


SILENT = {"model": "Qwen/Qwen3-32B", "extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}


def test_the_profiles_user_model_is_asked_where_the_profile_says():
    assert users_of(recipe(), ["travel"], role="train")["travel"] == ("openai", SILENT)
    for overrides, url in [
        ({"hardware.user_url": "http://big-host:8000/v1"}, "http://big-host:8000/v1"),
        ({"hardware.user_gpus": "6,7", "hardware.user_port": 8123}, "http://127.0.0.1:8123/v1"),
    ]:
        users = users_of(recipe(**overrides), ["travel", "function"], role="train")
        assert users["travel"] == ("openai", {**SILENT, "base_url": url})
        assert users["function"] == "rule"
    given = {"gyms.travel.user": {"kind": "openai", "options": {"model": "Qwen/Qwen3-32B", "base_url": "http://a/v1"}}}
    users = users_of(recipe(**given, **{"hardware.user_url": "http://b/v1"}), ["travel"], role="train")
    assert users["travel"][1]["base_url"] == "http://a/v1"
    assert users_of(recipe(**{"hardware.user_url": "http://b/v1"}), ["travel"], role="evaluate")["travel"] == (
        "openai",
        {"model": "gpt-4o"},
    )


def test_a_run_serves_its_users_from_the_first_stage_that_needs_them_to_its_end(tmp_path, monkeypatch, port):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    settings = recipe(**{"hardware.user_command": f"{sys.executable} {STAND_IN} {{port}}", "hardware.user_port": port})
    there = ServeOptions("m", port=port)
    said = []
    with served_users(settings, said.append) as ensure:
        ensure("sft")
        ensure("evaluate")
        assert not answers(there), "neither the cold start nor GPT-4o in the evaluation needs it"
        ensure("rl")
        assert answers(there)
        ensure("rl")
    assert not answers(there)
    assert said[0] == f"serving Qwen/Qwen3-32B as simulated user on port {port}"


def test_it_is_stopped_when_the_run_fails(tmp_path, monkeypatch, port):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    settings = recipe(**{"hardware.user_command": f"{sys.executable} {STAND_IN} {{port}}", "hardware.user_port": port})

    def fail():
        with served_users(settings, lambda _: None) as ensure:
            ensure("rl")
            raise RuntimeError("the stage failed")

    with pytest.raises(RuntimeError, match="the stage failed"):
        fail()
    assert not answers(ServeOptions("m", port=port))


def test_nothing_is_served_for_rule_users_or_where_a_url_is_given():
    assert not needs_server(load("equalized-r2g", profile="laptop", check=False), "rl")
    assert not needs_server(recipe(**{"hardware.user_url": "http://a/v1", "hardware.user_gpus": "6"}), "rl")
    assert needs_server(recipe(**{"hardware.user_gpus": "6"}), "rl")


def test_gpus_for_no_model_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    settings = recipe(**{"hardware.user_model": None, "hardware.user_gpus": "6"})
    users = {f"gyms.{gym}.user": {"kind": "openai"} for gym in ("travel", "turtle", "tau", "persuade")}
    settings = recipe(**{"hardware.user_model": None, "hardware.user_gpus": "6", **users})
    with raises("model.not_served"), served_users(settings, lambda _: None) as ensure:
        ensure("rl")
