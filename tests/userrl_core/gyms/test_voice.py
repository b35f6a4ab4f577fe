"""A customer who speaks: any text user, with a command that speaks and one that hears; batches of speech, text and math in turn."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import yaml

import curricula
from curricula.sampler import TaskSampler
from tests.makers import raises
from userrl_core.episode import Episode, EpisodeRules
from userrl_core.gyms import make, tasks
from userrl_core.gyms.tau.gym import conversation
from userrl_core.interact import render_call
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import PolicyReply
from userrl_core.rollout import run_episodes
from userrl_gym_voice.speech import Speech

SPEAK = """
import sys, wave
text, audio = open(sys.argv[1]).read(), sys.argv[2]
with wave.open(audio, "wb") as sound:
    sound.setnchannels(1); sound.setsampwidth(2); sound.setframerate(8000)
    sound.writeframes(bytes(16) * 100 * len(text.split()))
"""
HEAR = """
import sys, wave
print(wave.open(sys.argv[1]).getnframes() // 800, "words")
"""


def command(folder: Path, name: str, code: str, *arguments: str) -> str:
    script = folder / name
    script.write_text(code)
    return " ".join([sys.executable, str(script), *arguments])


def speech(folder: Path, asr: bool = True) -> Speech:
    """Speaks a tenth of a second for every word; hears how many there were."""
    return Speech(
        command(folder, "speak.py", SPEAK, "{text}", "{audio}"),
        command(folder, "hear.py", HEAR, "{audio}") if asr else None,
        folder / "audio",
    )


async def test_a_text_is_spoken_once_and_heard_by_the_agents_side(tmp_path: Path) -> None:
    one, again = [await speech(tmp_path).say("Three short words") for _ in range(2)]
    assert (one.seconds, one.transcript, one.heard) == (pytest.approx(0.3), "Three short words", "3 words")
    assert again.path == one.path
    assert len(list((tmp_path / "audio").glob("*.wav"))) == 1
    assert (await speech(tmp_path, asr=False).say("Three short words")).heard == "Three short words"


async def test_without_commands_a_turn_carries_its_transcript_alone(tmp_path: Path) -> None:
    audio = await Speech(None, None, tmp_path).say("Hello")
    assert (audio.path, audio.seconds, audio.heard) == (None, None, "Hello")


@pytest.mark.parametrize(
    ("tts", "why"),
    [
        ("/nowhere/speak {text} {audio}", "cannot be started"),
        (f"{sys.executable} -c pass {{text}} {{audio}}", "wrote no sound"),
        (f"{sys.executable} -c 'raise SystemExit(3)' {{text}}", "ended with status 3"),
    ],
)
async def test_a_voice_that_fails_is_the_users_failure(tts: str, why: str, tmp_path: Path) -> None:
    with raises("gym.program_failed", why):
        await Speech(tts, None, tmp_path / "audio").say("Hello")


async def test_a_text_is_never_a_command(tmp_path: Path) -> None:
    audio = await speech(tmp_path, asr=False).say(f"$(touch {tmp_path}/owned) {{audio}} '; touch {tmp_path}/owned")
    assert audio.path is not None
    assert not (tmp_path / "owned").exists()


async def test_the_agent_gets_the_sound_with_the_words_and_the_profile_of_who_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_TTS", speech(tmp_path).tts or "")
    monkeypatch.setenv("USERRL_AUDIO", str(tmp_path / "audio"))
    task = tasks("voice", "train", domain="outfitter")[0]
    episode = Episode(make("voice", task), EpisodeRules(30))
    opening = episode.start()
    assert '"orders": ' in opening[-1]["content"], "the caller's record"
    (message,) = await episode.submit(PolicyReply(text=render_call(conversation(task)[0], "")))
    assert message["audio"].startswith(str(tmp_path / "audio"))
    turn = episode.trajectory.turns[0]
    assert turn.info["audio"]["path"] == message["audio"]
    assert turn.info["audio"]["transcript"] == turn.observation == message["content"]


@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng is not installed")
async def test_a_whole_conversation_is_spoken_by_espeak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USERRL_TTS", "espeak-ng -f {text} -w {audio}")
    monkeypatch.setenv("USERRL_AUDIO", str(tmp_path))
    (played,) = await run_episodes(tasks("voice", "train", domain="outfitter")[:1], ScriptedPolicy(), horizon=30)
    assert played.stop_reason == "success"
    spoken = [turn.info["audio"] for turn in played.turns if "audio" in turn.info]
    assert len(spoken) >= 2
    assert all(audio["seconds"] > 0.2 * len(audio["transcript"].split()) > 0 for audio in spoken)


def test_batches_of_math_text_and_speech_take_turns(tmp_path: Path) -> None:
    values = {
        "name": "speech",
        "extends": "tarl",
        "gyms": {"voice": {"tasks": {"domain": "outfitter"}, "config": {"check_outputs": False}}},
        "stages": [{"steps": 6, "horizon": 30, "alternate": ["math", "tau", "voice"]}],
    }
    path = tmp_path / "speech.yaml"
    path.write_text(yaml.safe_dump(values))
    recipe = curricula.load(path)
    sampler = TaskSampler({gym: list(tasks(gym, "train")) for gym in ("math", "tau", "voice")}, seed=0)
    drawn = [{task.gym for task in sampler.batch(4, recipe.mix(step))} for step in range(1, 7)]
    assert drawn == [{"math"}, {"tau"}, {"voice"}] * 2
