"""Conversations between people: the chitchat-dataset 0.9.0 (MIT), fetched by hash into this home.

A reference for style: length, questions, hesitation, politeness. It is none for telling a goal, because nobody there wants
anything done. Addresses, links and long numbers are dropped when it is read.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

from analysis.users.distance import Users
from analysis.users.features import fingerprint
from userrl.machine.fetch import fetch_data
from userrl.machine.home import home
from userrl.machine.pretrained import Wheel
from userrl_core.errors import ConfigError

CHITCHAT = "people:chitchat"
"""The name of this reference."""
WHEEL = Wheel(
    title="chitchat-dataset",
    package="chitchat-dataset",
    version="0.9.0",
    sha256="7bf89f36645e2d5ec87d53370c8e851b5a688479c7beb7079cb4c87fc5acea3e",
    megabytes=8.1,
    file="chitchat_dataset/dataset.json",
    file_sha256="d2a5d0bf6acf354fef51f3af39cbece2220d3b8f6086b658c3d335105798312a",
    licence="MIT",
    licence_file="chitchat_dataset-0.9.0.dist-info/LICENSE",
)
MIN_TURNS = 4
"""Turns of a conversation that is read."""
_PERSONAL = re.compile(r"\S+@\S+|https?://\S+|www\.\S+|@\w{3,}|\+?\d[\d\s()-]{6,}\d")

Turns = list[tuple[str, str]]


def chitchat() -> list[Turns]:
    """Return the conversations as turns of a speaker and a text. Raises ConfigError if they cannot be fetched."""
    return read(fetch_data(WHEEL, home() / "people" / "chitchat", lambda text: None))


def read(file: Path) -> list[Turns]:
    """Return the conversations of a data file that have enough turns. Raises ConfigError for a damaged file."""
    try:
        rows = json.loads(file.read_text(encoding="utf-8")).values()
        conversations = [[_turn(messages) for messages in row["messages"] if messages] for row in rows]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            "file.damaged",
            f"{file} holds no conversations that can be read. Delete it; the next audit fetches it again.",
        ) from error
    return [conversation for conversation in conversations if len(conversation) >= MIN_TURNS]


def chitchat_users() -> Users:
    """Return the fingerprint of each speaker in one conversation, so that halves of this reference share no speaker."""
    first_texts: dict[str, list[str]] = {}
    for conversation in chitchat():
        for speaker in dict.fromkeys(speaker for speaker, _ in conversation):
            first_texts.setdefault(speaker, [text for name, text in conversation if name == speaker])
    features = np.array([list(fingerprint(texts).values()) for texts in first_texts.values()])
    return Users(CHITCHAT, features, tuple(first_texts))


def _turn(messages: list[dict[str, str]]) -> tuple[str, str]:
    texts = (_PERSONAL.sub("", str(message["text"])).strip() for message in messages)
    return str(messages[0]["sender"]), " ".join(text for text in texts if text)
