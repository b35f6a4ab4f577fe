"""A recipe holds no key: what would hold one is refused at load, in a sentence that does not repeat it."""

import json
import traceback

import pytest

import curricula
from curricula.options import check_url
from tests.makers import raises
from userrl_core.errors import ConfigError
from userrl_core.key_names import names_a_key
from userrl_core.served.client import ChatClient, ChatServer

KEY = "sk-proj-0123456789abcdef"


def refusal(overrides, profile="laptop"):
    with pytest.raises(ConfigError) as caught:
        curricula.load("equalized-r2g", profile, overrides)
    assert KEY not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


def openai(**options):
    return {"kind": "openai", "options": {"model": "m", **options}}


@pytest.mark.parametrize(
    "overrides",
    [
        {"evaluate.user": openai(api_key=KEY)},
        {"evaluate.user": openai(apiKey=KEY)},
        {"demonstrations.user": openai(Authorization=KEY)},
        {"gyms": {"travel": {"user": openai(token=KEY)}}},
        {"evaluate.user": openai(extra_body={"headers": [{"X-Api-Key": KEY}]})},
        {"evaluate.user": {"kind": "rule", "options": {"password": KEY}}},
        {"evaluate.user": {"kind": "theirs", "options": {"secret": KEY}}},
    ],
)
def test_an_option_for_a_key_is_refused_and_says_where_the_key_goes(overrides):
    said = refusal(overrides)
    assert "set the key in the environment variable that api_key_env names" in said


def test_fields_of_a_request_that_end_like_a_key_s_are_none():
    for name in ("prompt_cache_key", "eos_token"):
        recipe = curricula.load("equalized-r2g", "laptop", {"evaluate.user": openai(extra_body={name: "a"})})
        assert recipe.evaluate.user.options["extra_body"] == {name: "a"}


def test_a_recipe_stored_before_a_field_was_refused_still_opens():
    options = {"extra_body": {"temperature": 0.2}}
    said = refusal({"evaluate.user": openai(**options)})
    assert "'temperature', which the client sets itself" in said
    stored = json.loads(json.dumps(curricula.load("equalized-r2g", "laptop", {"evaluate.user": openai()}).resolved()))
    stored["evaluate"]["user"]["options"] |= options
    assert curricula.from_resolved(stored).evaluate.user.options["extra_body"] == options["extra_body"]


@pytest.mark.parametrize("url", [f"http://me:{KEY}@host/v1", f"https://{KEY}@host/v1", f"http://host/v1?api_key={KEY}"])
def test_an_address_with_a_password_or_a_key_is_refused_wherever_it_stands(url):
    assert "base_url contains a password or a key" in refusal({"evaluate.user": openai(base_url=url)})
    assert "user_url contains a password or a key" in refusal({"hardware.user_url": url})


def test_a_key_in_place_of_its_variable_s_name_is_refused():
    assert "api_key_env must be the name of an environment variable" in refusal(
        {"evaluate.user": openai(api_key_env=KEY)}
    )


def test_an_option_that_no_such_user_has_is_refused_with_the_nearest_one():
    assert "no option 'temprature' (did you mean 'temperature'?)" in refusal({"evaluate.user": openai(temprature=1)})
    assert "option retries: " in refusal({"evaluate.user": openai(retries=-1)})
    assert "does not accept these options" in refusal({"evaluate.user": {"kind": "rule", "options": {"model": "m"}}})
    assert "a human user has no options" in refusal({"evaluate.user": {"kind": "human", "options": {"console": 1}}})


def test_what_a_server_needs_is_taken():
    setup = openai(
        base_url="http://127.0.0.1:8000/v1?api-version=2",
        api_key_env="OTHER_KEY",
        max_tokens=5,
        token_field="max_tokens",
    )
    recipe = curricula.load("equalized-r2g", "laptop", {"evaluate.user": setup}, check=False)
    assert recipe.evaluate.user is not None
    assert recipe.evaluate.user.options["api_key_env"] == "OTHER_KEY"
    assert curricula.from_resolved(json.loads(json.dumps(recipe.resolved()))).hash == recipe.hash


def test_what_names_a_secret():
    for name in (
        "key",
        "api_key",
        "API-KEY",
        "apikey",
        "x-api-key",
        "access_token",
        "token",
        "password",
        "client_secret",
        "secrettoken",
        "xapikey",
    ):
        assert names_a_key(name), name
    for name in ("api_key_env", "max_tokens", "token_field", "stop_token_ids", "keyword", "monkey", "model"):
        assert not names_a_key(name), name


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1",
        "http://host:99999/v1",
        "http://host:abc/v1",
        "http://host/v1\n",
        "ftp://host/v1",
        "host:80/v1",
        "http:///v1",
    ],
)
def test_an_address_that_cannot_be_asked_is_a_sentence(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with raises("model.bad_address"):
        check_url(url, "base_url")
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with raises("model.bad_address"):
        ChatClient(ChatServer())


def test_a_key_that_no_header_takes_is_refused_without_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123\n")
    with raises("model.no_key") as error:
        ChatClient(ChatServer(base_url="http://127.0.0.1:1/v1"))
    assert "0123" not in str(error.value)
    with raises("recipe.holds_key"):
        check_url("https://host/v1?subscription-key=0123", "base_url")
