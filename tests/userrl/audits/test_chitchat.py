"""The reference of people who chat: what is read of its file, and what is dropped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.makers import raises
from userrl.audits.chitchat import WHEEL, chitchat_users, read
from userrl.machine.hashes import file_hash


def written(tmp_path: Path, texts: list[tuple[str, str]]) -> Path:
    """Write a data file with one conversation of turns of one message."""
    file = tmp_path / "dataset.json"
    messages = [[{"sender": sender, "text": text}] for sender, text in texts]
    file.write_text(json.dumps({"a": {"messages": messages}, "b": {"messages": messages[:2]}}))
    return file


def test_short_conversations_and_personal_details_are_dropped(tmp_path: Path) -> None:
    texts = [
        ("x", "Hi, I am at me@mail.com"),
        ("y", "call +1 555 123 4567"),
        ("x", "see https://a.example/b"),
        ("y", "ok, 12 then"),
    ]
    [talk] = read(written(tmp_path, texts))
    assert talk == [("x", "Hi, I am at"), ("y", "call"), ("x", "see"), ("y", "ok, 12 then")]


@pytest.mark.parametrize(
    "content", ["", "[]", '{"a": {"messages": 3}}', '{"a": {}}', '{"a": {"messages": [[{"text": "x"}]]}}']
)
def test_a_damaged_file_is_refused_with_what_to_do(content: str, tmp_path: Path) -> None:
    (tmp_path / "dataset.json").write_text(content)
    with raises("file.damaged", "Delete it"):
        read(tmp_path / "dataset.json")


def test_offline_the_sentence_names_a_way_that_this_command_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with raises("model.not_downloaded", "set PIP_FIND_LINKS to its folder"):
        chitchat_users()


def test_a_file_that_is_not_of_this_release_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    folder = tmp_path / "people" / "chitchat"
    folder.mkdir(parents=True)
    file = written(folder, [("x", "Hello you"), ("y", "Hi"), ("x", "How are you?"), ("y", "Fine")])
    with raises("model.not_downloaded"):
        chitchat_users()
    assert file.is_file(), "it stays until there is another"


def test_each_speaker_has_one_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    folder = tmp_path / "people" / "chitchat"
    folder.mkdir(parents=True)
    file = written(folder, [("x", "Hello you"), ("y", "Hi"), ("x", "How are you?"), ("y", "Fine")])
    monkeypatch.setattr("userrl.audits.chitchat.WHEEL", replace(WHEEL, file_sha256=file_hash(file)))
    users = chitchat_users()
    assert users.tasks == ("x", "y")
    assert users.features.shape == (2, 19)
