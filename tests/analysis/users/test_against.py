"""``userrl audit user --against FILE --mix FILE``: users of files as reference and as parts of a mixture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import userrl
from analysis.users.distance import Users, distance
from analysis.users.features import FEATURES
from analysis.users.mixture import mixture
from flows.cli.measuring.audit import user
from tests.makers import raises
from tests.userrl.evaluation.demonstrated import demonstrated
from userrl_core.errors import ConfigError

CURT, POLITE = (
    ("Move it.", "The third.", "No."),
    ("Could you please move my booking?", "Thank you so much!", "Perhaps."),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A home with an evaluation of ten tasks of tau, and the run's id."""
    home = tmp_path_factory.mktemp("home")
    return home, demonstrated(home, ["tau"], tasks=10)


@pytest.fixture
def home(run: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("USERRL_HOME", str(run[0]))
    return run[0]


def chats(path: Path, said: Sequence[str], n: int = 12) -> str:
    """Write a file of chats in OpenAI's form, in which the user says these texts. Return its path."""
    rows = []
    for task in range(n):
        messages = [{"role": "system", "content": f"Desk {task}."}]
        for text in (*said[task % 3 :], *said[: task % 3]):
            messages += [{"role": "user", "content": text}, {"role": "assistant", "content": "I see."}]
        rows.append(json.dumps({"messages": messages}))
    path.write_text("\n".join(rows))
    return str(path)


@pytest.mark.slow
def test_users_of_files_are_the_reference_and_parts_of_the_mixture(
    run: tuple[Path, str],
    home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("userrl.audits.user.distance", partial(distance, trees=5))  # 200 trees take 15 seconds
    reference, near = chats(tmp_path / "people.jsonl", CURT), chats(tmp_path / "near.jsonl", CURT, 9)
    far = chats(tmp_path / "far.jsonl", POLITE)
    user(run[1], against=reference, mix=[near, far])
    text = capsys.readouterr().out
    assert "Distance from people.jsonl" in text
    assert "The classifier can tell it from the reference" in text or "There are too few tasks" in text
    mixed = text[text.index("Mixture nearest to people.jsonl") :]
    weights = {
        line.split()[1]: float(line.split()[3]) for line in mixed.splitlines() if line.startswith(("| near", "| far"))
    }
    assert weights == {"near.jsonl": 1.0, "far.jsonl": 0.0}


def damaged(folder: Path) -> dict[str, Path]:
    (folder / "cut.json").write_text('{"messages": [')
    (folder / "other.json").write_text('{"colour": "red"}')
    (folder / "empty.jsonl").write_text("")
    (folder / "bytes.json").write_bytes(b"\xff\xfe\x00" * 99)
    (folder / "folder.json").mkdir()
    return {path.stem: path for path in folder.iterdir()} | {"missing": folder / "missing.json"}


@pytest.mark.parametrize("name", ["cut", "other", "empty", "bytes", "folder", "missing"])
@pytest.mark.parametrize("given", ["against", "mix"])
def test_a_bad_file_is_refused_in_one_sentence_that_names_it(
    run: tuple[Path, str], home: Path, tmp_path: Path, name: str, given: str
) -> None:
    file = str(damaged(tmp_path)[name])
    with pytest.raises(ConfigError) as refused:
        userrl.audit_user(run[1], against=file if given == "against" else run[1], mix=[file] if given == "mix" else ())
    assert Path(file).name in str(refused.value)
    assert "\n" not in str(refused.value)


def test_too_few_conversations_a_mixture_without_a_reference_and_one_user_twice_are_refused(
    run: tuple[Path, str], home: Path, tmp_path: Path
) -> None:
    with raises("run.no_conversations", "few.jsonl has 3"):
        userrl.audit_user(run[1], against=chats(tmp_path / "few.jsonl", CURT, 3))
    with raises("argument.missing", "--against"):
        userrl.audit_user(run[1], mix=[run[1]])
    with raises("argument.malformed", "once"):
        userrl.audit_user(run[1], against=run[1], mix=[run[1]])


def test_a_mixture_has_the_shares_of_its_reference() -> None:
    rng = np.random.default_rng(0)

    def users(name: str, middle: float, n: int) -> Users:
        return Users(name, rng.normal(middle, 0.1, (n, len(FEATURES))), tuple(f"t{i % 10}" for i in range(n)))

    low, high = users("low", 0.0, 60), users("high", 5.0, 60)
    both = Users("both", np.vstack([users("", 0.0, 45).features, users("", 5.0, 15).features]), ("t",) * 60)
    found = mixture(both, [low, high])
    assert found.weights["low"][0] == pytest.approx(0.75, abs=0.05)
    assert found.weights["low"][1] < 0.75 < found.weights["low"][2]
    assert sum(weight for weight, *_ in found.weights.values()) == pytest.approx(1.0)
    assert found.js <= min(found.alone.values())
    with pytest.raises(ValueError, match="two users"):
        mixture(both, [low])
