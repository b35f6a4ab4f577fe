"""A sweep's address is written down without its password, and its name is one plain folder name."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from flows.cli.training.sweep import app
from sweeps.space import Space, load_space
from sweeps.storage import VARIABLE, hidden, storage_of
from sweeps.study import open_study
from tests.makers import raises
from userrl_core.errors import ConfigError
from userrl_core.json_files import write_json

CLEAR = "postgresql+psycopg://me:S3CRET@db:5432/optuna"


@pytest.fixture(autouse=True)
def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (CLEAR, "postgresql+psycopg://me:***@db:5432/optuna"),
        ("mysql://me:p%40ss@db/o?password=S3CRET&charset=utf8", "mysql://me:***@db/o?charset=utf8&password=***"),
        ("postgresql://me@db/o?sslkey=S3CRET", "postgresql://me@db/o?sslkey=***"),
        ("postgresql://me@db/optuna", "postgresql://me@db/optuna"),
        ("sqlite:////var/lib/a b.db", "sqlite:////var/lib/a b.db"),
        ("me:S3CRET@@", "***"),
    ],
)
def test_an_address_is_shown_without_its_password(address: str, shown: str) -> None:
    parts = hidden(address)
    assert sorted(parts.replace("?", "&").split("&")) == sorted(shown.replace("?", "&").split("&"))


@given(st.text(alphabet="abcXYZ0189%:@/?#&=+ äß", min_size=8).filter(lambda text: text.strip()))
def test_no_password_survives_whatever_it_is_made_of(password: str) -> None:
    from sqlalchemy.engine import URL

    url = URL.create("postgresql", "u", password, "h", 1, "d").render_as_string(hide_password=False)
    assert hidden(url) == "postgresql://u:***@h:1/d"


def test_a_resume_takes_the_address_as_given_as_kept_or_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"storage": hidden(CLEAR)}
    assert storage_of(None, None, "s") is None
    assert storage_of(CLEAR, kept, "s") == CLEAR
    assert storage_of(None, {"storage": "sqlite:///x.db"}, "s") == "sqlite:///x.db"
    with raises("sweep.storage") as caught:
        storage_of(None, kept, "s")
    assert "S3CRET" not in str(caught.value)
    monkeypatch.setenv(VARIABLE, CLEAR)
    assert storage_of(None, None, "s") == CLEAR
    assert storage_of(None, kept, "s") == CLEAR
    assert storage_of(None, {"storage": None}, "s") is None  # begun with a journal file, it goes on with it
    monkeypatch.setenv(VARIABLE, CLEAR.replace("optuna", "other"))
    with raises("sweep.storage"):
        storage_of(None, kept, "s")


@pytest.mark.parametrize("address", ["nodriver://me:S3CRET@h/d", "me:S3CRET@@", "redis://:S3CRET@h/0"])
def test_a_storage_that_cannot_be_opened_is_a_sentence_without_the_password(address: str, tmp_path: Path) -> None:
    with raises("sweep.storage") as caught:
        open_study(load_space("gamma"), tmp_path, address)
    assert "S3CRET" not in "".join(traceback.format_exception(caught.value))


def test_a_study_in_a_database_file_is_opened_again_from_what_was_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    space, address = load_space("gamma"), f"sqlite:///{tmp_path / 'study.db'}"
    open_study(space, tmp_path, address)
    kept = {"space": space.model_dump(mode="json"), "storage": hidden(address)}
    write_json(tmp_path / "sweeps" / "gamma" / "space.json", kept)
    done = CliRunner().invoke(app, ["status", "gamma", "--json"])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)) == len(open_study(space, tmp_path, address).get_trials())


@pytest.mark.parametrize(
    "name", ["../../../tmp/evil", "/tmp/evil", "..", ".hidden", "a/b", "a\n", "", "a b", "x" * 101]
)
def test_a_sweep_s_name_cannot_leave_its_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    values = load_space("gamma").model_dump(mode="json") | {"name": name}
    with pytest.raises(ValueError, match="pattern"):
        Space.model_validate(values)
    path = tmp_path / "space.yaml"
    path.write_text(json.dumps(values))
    with raises("recipe.invalid_value", "space.yaml"):
        load_space(path)
    refused = CliRunner().invoke(app, ["best", name])
    assert isinstance(refused.exception, ConfigError)
    assert refused.exception.code == "argument.malformed"
