"""Logs of Inspect (inspect-ai): ``.eval`` archives, also with zstandard members, and ``.json`` files.

A sample is a conversation and an epoch an attempt. The score is the sample's first one: a number, or Inspect's letters C, P,
I and N as 1, .5, 0 and 0. All scores are stored with the last turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from analysis.foreign.conversation import ENDED, ForeignCall, ForeignConversation, given, other_fields, scored
from analysis.foreign.dialogue import divided
from userrl_core.chats.stream import Archive, JsonStream
from userrl_core.chats.values import broken, compact_json, count, mapping, name_of, number, sequence

HEADERS = ("header.json", "_journal/start.json")
"""The members that describe an evaluation: of a finished one, and of one that was cut off."""
REDUCTIONS = "reductions.json"
SUMMARIES = ("summaries.json", "_journal/")
"""How the names of members begin that repeat the samples."""
WORDS: Mapping[str, float] = {
    **dict.fromkeys(("C", "yes", "true"), 1.0),
    "P": 0.5,
    **dict.fromkeys(("I", "N", "no", "false"), 0.0),
}
"""The numbers that Inspect's own metrics read these scores as."""
LIMITS: Mapping[str, str] = {"message": "horizon", "turn": "horizon", "token": "length", "context": "length"}
"""Our stop reasons for Inspect's limits; every other limit is an error."""
SAMPLE = ("id", "epoch", "input", "target", "messages", "scores", "model_usage", "working_time", "attachments")
"""The fields of a sample that are read by name. The others are stored as they are, but for those of `REPEATED`."""
LARGE = ("events",)
"""What a sample repeats: its messages once more, call by call. It may be far larger than the messages."""
REPEATED = (*LARGE, "output")
USAGE = frozenset(
    (
        *("input_tokens", "input_tokens_cache_read", "input_tokens_cache_write"),
        "output_tokens",
        "total_tokens",
        "total_cost",
    )
)
_ATTACHMENT = "attachment://"


def read_inspect(path: Path) -> Iterator[ForeignConversation]:
    """Yield the samples of a log."""
    with path.open("rb") as file:
        packed = file.read(2) == b"PK"
    return _archive(path) if packed else _document(path)


def _archive(path: Path) -> Iterator[ForeignConversation]:
    archive = Archive(path)
    try:
        name = next((name for name in HEADERS if name in archive.names), None)
        if name is None:
            broken(
                str(path),
                "it is not a log of Inspect, because it has no header.json; if it is an archive of logs, unpack it",
            )
        facts = _needed(archive.stream(name), ())
        if REDUCTIONS in archive.names:
            stream = archive.stream(REDUCTIONS)
            facts["reductions"] = stream.counted()
            stream.finish()
        about = _Evaluation(facts, str(path))
        samples = [name for name in archive.names if name.startswith("samples/") and name.endswith(".json")]
        read = {*samples, HEADERS[0], REDUCTIONS}
        others = [name for name in archive.names if name not in read and not name.startswith(SUMMARIES)]
        unread = Counter(f"member {name}" for name in others if not name.endswith("/"))
        for name in samples:
            sample = _sample(f"{path}, member {name}", _needed(archive.stream(name)), about)
            sample.unread.update(unread)
            unread.clear()
            yield sample
    finally:
        archive.close()


def _document(path: Path) -> Iterator[ForeignConversation]:
    facts: dict[str, Any] = {}
    done = False
    while not done:
        with path.open("rb") as file:
            stream = JsonStream(file, str(path))
            done = True
            for key in stream.names():
                if key != "samples":
                    facts[key] = stream.counted()
                elif "eval" not in facts:
                    done = False  # the description follows: read the samples in a second pass
                    stream.skip()
                elif stream.peek() == "[":
                    about = _Evaluation(facts, str(path))
                    for where, sample in stream.elements():
                        yield _sample(where, mapping(sample, where, "a sample"), about)
                else:
                    stream.skip()
            stream.finish()
        if "eval" not in facts:
            broken(str(path), "it is not a log of Inspect, because it has no 'eval'")


def _needed(stream: JsonStream, large: Collection[str] = LARGE) -> dict[str, Any]:
    """Return the fields of a document. Its large ones are skipped element by element, and have the value True."""
    fields: dict[str, Any] = {}
    for key in stream.names():
        if key in large and stream.peek() in ("[", "{"):
            stream.skip()
            fields[key] = True
        else:
            fields[key] = stream.counted()
    stream.finish()
    return fields


class _Evaluation:
    """The task and the model of a log. facts: its fields besides the samples."""

    def __init__(self, facts: Mapping[str, Any], where: str) -> None:
        self.facts = facts
        evaluation = mapping(facts.get("eval") or {}, where, "eval")
        self.gym = name_of(evaluation.get("task")) or "inspect"
        self.model = name_of(evaluation.get("model"))
        roles = evaluation.get("model_roles")
        user = roles.get("user") if isinstance(roles, dict) else None
        self.user = name_of(user.get("model")) or None if isinstance(user, dict) else None


def _sample(where: str, row: Mapping[str, Any], about: _Evaluation) -> ForeignConversation:
    if "id" not in row:
        broken(where, "a sample needs 'id'")
    attachments = mapping(row.get("attachments") or {}, where, "attachments")
    messages = [
        _with_error(_attached(message, attachments)) for message in sequence(row.get("messages"), where, "messages")
    ]
    task_input = _attached(row.get("input"), attachments)
    # Few-shot examples in the input have the assistant's role and were not written by the model.
    prompt = len(task_input) if isinstance(task_input, list) else 0
    chat = divided(messages, where, prompt=prompt)
    scores = mapping(row.get("scores") or {}, where, "scores")
    score, unscored = _score(next(iter(scores.values()), None), where)
    error, limit, output = row.get("error"), row.get("limit"), row.get("output")
    reason = "error" if error else ENDED
    if isinstance(limit, dict):
        reason = LIMITS.get(name_of(limit.get("type")), "error")
    epoch = count(row.get("epoch"), where, "epoch", chat.unread)
    seconds = row["working_time"] if row.get("working_time") is not None else row.get("total_time")
    conversation = ForeignConversation(
        where,
        about.gym,
        name_of(row["id"]),
        given({"input": task_input, "target": row.get("target")}, ("input", "target")),
        chat.opening,
        chat.turns,
        score=score,
        attempt=None if epoch is None else max(epoch - 1, 0),
        policy=about.model,
        user=about.user,
        stop_reason=reason,
        reject_reason=None if score is not None else _failure(error) or unscored,
        seconds=number(seconds, where, "working_time", chat.unread),
        info={"scores": scores} if scores else {},
        unread=chat.unread,
        silent=chat.silent,
        elsewhere=["output"] * (isinstance(output, dict) and bool(output.get("choices"))),
        file=about.facts,
    )
    conversation.keep(other_fields(row, (*SAMPLE, *REPEATED)))
    conversation.unread.update(f"field {key}" for key in REPEATED if row.get(key))
    if error and score is not None:  # Inspect can score a sample that failed, and its metrics count it
        conversation.unread["error of a sample with a score"] += 1
    _usage(conversation, mapping(row.get("model_usage") or {}, where, "model_usage"), about)
    return conversation


def _with_error(message: Any) -> Any:
    """Return a tool's message with the words of its error, which Inspect gives the model but keeps beside the content."""
    error = message.get("error") if isinstance(message, dict) and message.get("role") == "tool" else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return message
    content = message.get("content") or []
    parts = content if isinstance(content, list) else [content]
    others = {f"error.{key}": value for key, value in error.items() if key != "message"}
    return {**message, "error": None, "content": [*parts, error["message"]], **others}


def _failure(error: Any) -> str | None:
    message = error.get("message") if isinstance(error, dict) else None
    return f"the sample failed: {message}" if isinstance(message, str) else None


def _score(entry: Any, where: str) -> tuple[float | None, str | None]:
    """Return a score as a number, as Inspect's metrics read it, and else why there is none."""
    value: Any = entry.get("value") if isinstance(entry, dict) else entry
    if isinstance(value, str):
        value = WORDS.get(value, WORDS.get(value.lower(), value))
        with suppress(ValueError):
            value = float(value)
    if isinstance(value, str | dict | list):
        return None, f"the score is not one number: {compact_json(value)[:80]}"
    return scored(value, where, "score")


def _usage(conversation: ForeignConversation, usage: Mapping[str, Any], about: _Evaluation) -> None:
    where, unread = conversation.where, conversation.unread
    for model, item in usage.items():
        entry = mapping(item, where, "model_usage")
        conversation.count(entry, USAGE, "model_usage.")
        read = [
            count(entry.get(key), where, f"model_usage.{key}", unread)
            for key in ("input_tokens", "input_tokens_cache_read", "input_tokens_cache_write")
        ]
        prompt = None if read[0] is None else sum(part or 0 for part in read)
        completion = count(entry.get("output_tokens"), where, "model_usage.output_tokens", unread)
        price = number(entry.get("total_cost"), where, "model_usage.total_cost", unread)
        role = "policy" if model == about.model else "user" if model == about.user else "judge"
        conversation.calls.append(ForeignCall(role, model, prompt, completion, None, price))
        if role == "policy":
            conversation.prompt_tokens, conversation.completion_tokens = prompt, completion


def _attached(value: Any, attachments: Mapping[str, Any]) -> Any:
    """Return a value with its references to attachments replaced by their texts."""
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        text = attachments.get(value.removeprefix(_ATTACHMENT))
        return text if isinstance(text, str) else value
    if not attachments:
        return value
    if isinstance(value, dict):
        return {key: _attached(item, attachments) for key, item in value.items()}
    if isinstance(value, list):
        return [_attached(item, attachments) for item in value]
    return value
