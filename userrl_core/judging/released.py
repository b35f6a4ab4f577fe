"""TARL's judge with the paper's own prompt (appendix C), from the person's file ``tarl/judge.md`` of the published data.

TARL publishes no code, and this project has no text of the paper. The file is the prompt as printed. It becomes the system
message; policy, instruction, gold calls and the conversation in ``[Turn N]`` follow as the user's message, in the order that the
prompt names them. The reply is thinking and an object of ``score_0`` to ``score_n``. The paper counts turns from 0 and says that n
is their number, so scores are read as those of turns 1 to T if they are numbered 1 to T or 0 to T, and in order if 0 to T - 1.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from userrl_core.errors import MissingFileError
from userrl_core.gyms.released_texts import published_root
from userrl_core.gyms.solution import ReferenceSolution
from userrl_core.judging.served import case
from userrl_core.records import ModelCall, Trajectory
from userrl_core.served.client import ChatServer
from userrl_core.served.plain import ask, read_object
from userrl_core.user_path import read_text

FILE = Path("tarl") / "judge.md"
_SCORE = re.compile(r"score_(\d+)")


@lru_cache(maxsize=4)
def read_prompt(root: Path) -> str:
    """Return the text of the person's file. Raises MissingFileError without it or if it is blank."""
    path = root / FILE
    try:
        text = read_text(path).strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    if not text:
        raise MissingFileError(
            "prompts.missing",
            f"TARL's judge prompt is printed in its appendix C, and {path} does not have it. Write it there as printed, or use "
            "prompts: ours for the judge.",
        )
    return text


class ReleasedJudge:
    """A model that marks turns under the paper's prompt. texts: the folder of published data."""

    def __init__(self, server: ChatServer, texts: str | None) -> None:
        self.server, self._prompt = server, read_prompt(published_root(texts))

    async def scores(self, trajectory: Trajectory, reference: ReferenceSolution, ledger: list[ModelCall]) -> list[int]:
        """Return a mark per turn, [T]. Raises JudgeError when the model gives no fitting marks."""
        messages = [
            {"role": "system", "content": self._prompt},
            {"role": "user", "content": case(trajectory, reference, as_data=False)},
        ]
        turns = len(trajectory.turns)
        return await ask(self.server, messages, lambda text: read_scores(text, turns), role="judge", ledger=ledger)


def read_scores(text: str, turns: int) -> list[int]:
    """Return the marks of a reply, [T]. Raises ValueError for another number of turns, another mark, or two marks of -1."""
    # The thinking before the object may quote others, such as calls. These keys are in it however it is numbered.
    first, last = "score_0", f"score_{max(turns - 1, 1)}"
    try:
        value = read_object(text, last)
    except ValueError:
        value = read_object(text, first)
    marks = {int(match[1]): mark for key, mark in value.items() if (match := _SCORE.fullmatch(str(key)))}
    numbers = sorted(marks)
    if numbers == list(range(turns + 1)):
        numbers = numbers[1:]
    if numbers not in (list(range(turns)), list(range(1, turns + 1))):
        raise ValueError(f"there is not one score for each of {turns} turns")
    scores = [marks[number] for number in numbers]
    if any(isinstance(score, bool) or score not in (-1, 0, 1) for score in scores) or scores.count(-1) > 1:
        raise ValueError("a score is not -1, 0 or 1, or more than one is -1")
    return [int(score) for score in scores]
