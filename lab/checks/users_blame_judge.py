"""A served model's verdict on failed conversations of tau-bench's airline, beside two readers' labels: a second opinion on blame.

    SERVER='{"model": "qwen2.5-coder-0.5b", "base_url": "http://127.0.0.1:8300/v1", "timeout": 1800}'
    python -m lab.checks.users_blame_judge DATA dev "$SERVER" --form two
    python -m lab.checks.users_blame_judge DATA test "$SERVER" --form two --log FILE    scores the test half

DATA: tau-bench's folder. The model gets the instruction, the gold writes, the agent's writes and all words, without the results of
calls and the policy. It names one of the four verdicts (`one`), or says of each side whether it erred (`two`). Conversations and
labels are those of `users_blame`.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import datetime
import json
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from analysis.users.conversation import Conversation, conversation, imported_call
from analysis.users.findings import Verdict
from lab.checks.users_blame import READERS, agreement, confusion, labels
from tests.analysis.users.recorded import recorded
from userrl_core.errors import JudgeError
from userrl_core.gyms.tau import airline
from userrl_core.records import Message
from userrl_core.served.client import ChatServer, client_for, close_clients
from userrl_core.served.quoting import DATA_RULE, quote

_RULES = """A customer, played by a model from an instruction, talked with an airline's agent. It failed: the agent's writes do
not end in the state of the gold writes. Whose error was it?
- The user erred if it told a wrong fact, left out a part of its goal, agreed to what its instruction does not want, ended too
  early, or did not answer a question that it could answer.
- The agent erred if it chose wrong arguments, did what was not asked, refused wrongly, missed a write, or handed over needlessly.
{question}
{rule}"""
QUESTIONS = {
    "one": "Reply with the verdict: user, agent, both, or neither seen.",
    "two": "Say of each side whether it erred: yes or no.",
}


class OneVerdict(BaseModel):
    """The reply in form one."""

    verdict: Verdict


class TwoSides(BaseModel):
    """The reply in form two."""

    user_erred: Literal["yes", "no"]
    agent_erred: Literal["yes", "no"]

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of both answers."""
        return VERDICT_OF[self.user_erred, self.agent_erred]


ERRED: Mapping[str, str] = {"user_erred": "user", "agent_erred": "agent"}
VERDICT_OF: dict[tuple[str, str], Verdict] = {
    ("yes", "no"): "user",
    ("no", "yes"): "agent",
    ("yes", "yes"): "both",
    ("no", "no"): "neither seen",
}
SCHEMAS: dict[str, type[OneVerdict] | type[TwoSides]] = {"one": OneVerdict, "two": TwoSides}


EXAMPLES: tuple[tuple[str, str, str, str, Verdict], ...] = (
    (
        "Cancel the trip ABC123. Your name is Eve.",
        'cancel_reservation({"reservation_id": "ABC123"})',
        "none",
        "user: Hello, I am Eve.\nagent: What can I do for you?\nuser: Nothing, thanks. Bye!",
        "user",
    ),
    (
        "Add a bag to the trip DEF456.",
        'update_reservation_baggages({"reservation_id": "DEF456", "total_baggages": 1})',
        'update_reservation_baggages({"reservation_id": "DEF456", "total_baggages": 3})',
        "user: Please add one bag to my trip DEF456.\nagent: I have added three bags to it.",
        "agent",
    ),
    (
        "Fly to Rome on May 5, in economy.",
        'book_reservation({"destination": "ROM", "date": "05-05", "cabin": "economy"})',
        'book_reservation({"destination": "ROM", "date": "05-06", "cabin": "business"})',
        "user: I want to fly to Rome on May 6.\nagent: Business class is booked for May 6.\nuser: Thank you.",
        "both",
    ),
)
"""Instruction, gold writes, writes, words and verdict. They are the same in every prompt."""


def prompt(failed: Conversation, form: str) -> list[Message]:
    """Return what the model is asked about a failed conversation. All but the last message is the same for all."""
    payload = failed.task.payload
    calls = [call for turn in failed.turns if (call := imported_call(turn)) is not None]
    writes = [_call(name, arguments) for name, arguments in calls if name in airline.WRITES]
    gold = [
        _call(action["name"], action["kwargs"]) for action in payload["actions"] if action["name"] in airline.WRITES
    ]
    transcript = "\n".join(f"{message.speaker}: {message.text}" for message in failed.messages())
    messages: list[Message] = [{"role": "system", "content": _RULES.format(question=QUESTIONS[form], rule=DATA_RULE)}]
    for *example, verdict in EXAMPLES:
        erred = {name: ("no", "yes")[verdict in (side, "both")] for name, side in ERRED.items()}
        messages.append({"role": "user", "content": _case(*example)})
        messages.append({"role": "assistant", "content": json.dumps(erred if form == "two" else {"verdict": verdict})})
    case = _case(payload["instruction"], "\n".join(gold) or "none", "\n".join(writes) or "none", transcript)
    return [*messages, {"role": "user", "content": case}]


async def verdicts(
    conversations: list[Conversation], server: ChatServer, form: str
) -> tuple[list[Verdict | None], list[int]]:
    """Return the verdicts, None for a reply that did not fit the schema, and the tokens of each prompt."""
    ledger: list[Any] = []

    async def verdict(failed: Conversation) -> Verdict | None:
        try:
            answer = await client_for(server).complete(
                prompt(failed, form), role="judge", ledger=ledger, schema=SCHEMAS[form]
            )
        except JudgeError:
            return None
        opinion: Verdict = answer.parsed.verdict
        return opinion

    replies = await asyncio.gather(*map(verdict, conversations))
    await close_clients()
    return list(replies), [call.prompt_tokens for call in ledger]


def main() -> None:
    """Print the confusion tables of one half, and log the agreements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("half", choices=("dev", "test"))
    parser.add_argument("server", type=json.loads, help="JSON with the options of the server")
    parser.add_argument("--form", choices=tuple(QUESTIONS), default="two")
    parser.add_argument("--most", type=int, help="this many conversations, drawn with seed 0")
    parser.add_argument("--log", type=Path, help="a CSV file that the figures are appended to; needed for test")
    arguments = parser.parse_args()
    if arguments.half == "test" and arguments.log is None:
        parser.error("The test half is scored with --log.")
    read = {reader: labels(arguments.half, reader) for reader in READERS}
    keys = list(read[1])
    keys = random.Random(0).sample(keys, arguments.most or len(keys))
    talks = {f"{talk.task.id}/{talk.attempt}": talk for talk in recorded(arguments.data)}
    server = ChatServer(**arguments.server)
    opinions, tokens = asyncio.run(verdicts([conversation(talks[key], key) for key in keys], server, arguments.form))
    print(f"{len(keys)} conversations, {sum(v is None for v in opinions)} without a verdict, {sum(tokens)} tokens read")
    figures = []
    for reader, by_key in read.items():
        pairs = [(str(verdict), by_key[key].verdict) for key, verdict in zip(keys, opinions, strict=True)]
        figures.append(agreement(f"{server.model} and reader {reader}", pairs))
        figures.append(agreement(f"always the agent and reader {reader}", [("agent", label) for _, label in pairs]))
        print(f"reader {reader}\n\n{confusion(pairs)}\n")
    for name, right, total, k in figures:
        print(f"{name}: {right} of {total}, kappa {k:.2f}")
    if arguments.log:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        time = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%MZ")
        new = not arguments.log.exists()
        with arguments.log.open("a", encoding="utf-8", newline="") as stream:
            if new:
                stream.write("time,commit,half,model,form,figure,right,of,kappa\n")
            for name, right, total, k in figures:
                csv.writer(stream, lineterminator="\n").writerow(
                    [
                        time,
                        commit.stdout.strip(),
                        arguments.half,
                        server.model,
                        arguments.form,
                        name,
                        right,
                        total,
                        f"{k:.3f}",
                    ]
                )


def _call(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({json.dumps(arguments, ensure_ascii=False)})"


def _case(instruction: str, gold: str, writes: str, transcript: str) -> str:
    texts = {
        "Instruction": instruction,
        "Gold writes": gold,
        "Writes of the agent": writes,
        "What was said": transcript,
    }
    return "\n".join(f"{name}:\n{quote(text)}" for name, text in texts.items())


if __name__ == "__main__":
    main()
