"""The customer's words as sound: one command speaks a text, another transcribes it (TARL 4.3).

The commands belong to the machine, never to a recipe or a client. ``USERRL_TTS`` is a command such as ``espeak-ng -f
{text} -w {audio}``, with {text} the file to read and {audio} the WAV file to write. ``USERRL_ASR`` prints its
transcript of {audio}. Without the first nothing is spoken, and a turn carries only its transcript. Without the second
the heard text equals the transcript. ``USERRL_AUDIO`` is the folder of the sound files, one for each text.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
import wave
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from userrl_core.errors import UserError
from userrl_core.seeding import content_hash

SECONDS = 60.0
"""Time limit of a command."""


@dataclass(frozen=True, slots=True)
class Audio:
    """One message of the customer.

    path, seconds: None without sound. transcript: the spoken text. heard: the text understood on the agent's side.
    """

    path: str | None
    seconds: float | None
    transcript: str
    heard: str

    def as_info(self) -> dict[str, Any]:
        """Return the fields for the turn's info."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Speech:
    """A voice and an ear. tts, asr: commands, or None. folder: the sound files."""

    tts: str | None
    asr: str | None
    folder: Path

    @classmethod
    def of_machine(cls) -> Speech:
        """Read the commands from this machine's environment."""
        folder = os.environ.get("USERRL_AUDIO") or f"{tempfile.gettempdir()}/userrl-audio-{os.getuid()}"
        return cls(os.environ.get("USERRL_TTS"), os.environ.get("USERRL_ASR"), Path(folder))

    async def say(self, text: str) -> Audio:
        """Speak a text and hear it. Raises UserError if a command fails."""
        if self.tts is None:
            return Audio(None, None, text, text)
        path = self.folder / f"{content_hash([self.tts, text])}.wav"
        if not path.is_file():
            await self._speak(self.tts, text, path)
        transcript = text
        if self.asr is not None:
            transcript = (await _run(self.asr, audio=str(path))).strip()
        return Audio(str(path), _seconds(path), text, transcript)

    async def _speak(self, command: str, text: str, path: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            text_file, audio_file = Path(scratch) / "text.txt", Path(scratch) / "audio.wav"
            text_file.write_text(text, encoding="utf-8")
            await _run(command, text=str(text_file), audio=str(audio_file))
            if not audio_file.is_file():
                raise UserError("gym.program_failed", "USERRL_TTS wrote no sound. It must write the file {audio}.")
            audio_file.replace(path)


async def _run(command: str, **files: str) -> str:
    """Return a command's output. No shell runs, so a text cannot act as a command."""
    argv = [argument.format(**files) for argument in shlex.split(command)]
    try:
        child = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise UserError(
            "gym.program_failed", f"{argv[0]} cannot be started ({error.strerror}). Install it, or unset its variable."
        ) from None
    try:
        async with asyncio.timeout(SECONDS):
            output, errors = await child.communicate()
    except BaseException as error:
        if child.returncode is None:
            child.kill()
            await child.wait()
        if isinstance(error, TimeoutError):
            raise UserError("gym.program_failed", f"{argv[0]} took longer than {SECONDS:g} s.") from None
        raise
    if child.returncode:
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        raise UserError("gym.program_failed", f"{argv[0]} ended with status {child.returncode}: {''.join(last)[:200]}")
    return output.decode(errors="replace")


def _seconds(path: Path) -> float:
    try:
        with wave.open(str(path)) as sound:
            return float(sound.getnframes() / sound.getframerate())
    except (wave.Error, EOFError, ZeroDivisionError) as error:
        raise UserError(
            "gym.program_failed", f"{path} is not a WAV file ({error}). USERRL_TTS must write one."
        ) from None
