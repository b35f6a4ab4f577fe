"""Logs for Inspect (inspect-ai): one JSON file a policy, a sample a conversation, an epoch an attempt.

Written from the published fields of its log format, version 2. A finished script opened them with the real package
(data/finished-studies.md). Unknown numbers are absent, and unknown times are "".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import orjson

from warehouse.files.layout import write_atomically
from warehouse.upkeep.exchange.conversations import ExportedConversation


def write_inspect(conversations: Iterable[ExportedConversation], folder: Path) -> list[Path]:
    """Write one file per policy of the run, named as by Inspect: time, task, id. Return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    by_policy: dict[str, list[ExportedConversation]] = {}
    for conversation in conversations:
        by_policy.setdefault(conversation.trajectory["policy"] or "", []).append(conversation)
    paths = []
    for number, (policy, policy_conversations) in enumerate(sorted(by_policy.items()), 1):
        log = _log(policy, policy_conversations, number)
        created = log["eval"]["created"].replace(":", "-")
        path = folder / f"{created}_{_name(log['eval']['task'])}_{log['eval']['task_id']}.json"
        write_atomically(path, orjson.dumps(log))
        paths.append(path)
    return paths


def _log(policy: str, conversations: Sequence[ExportedConversation], number: int) -> dict[str, Any]:
    rows = [conversation.trajectory for conversation in conversations]
    run, timed = conversations[0].run, conversations[0].timed
    started, completed = (
        min(row["started_at"] or row["logged_at"] for row in rows),
        max(row["logged_at"] for row in rows),
    )
    by_sample: dict[str, list[float]] = {}
    for row in rows:
        if row["admitted"] and row["score"] is not None:
            by_sample.setdefault(_id(row), []).append(row["score"])
    scores = [score for sample_scores in by_sample.values() for score in sample_scores]
    ids = sorted({_id(row) for row in rows})
    metrics = {"mean": _metric("mean", fmean(scores))} if scores else {}
    if len(by_sample) > 1:  # Inspect averages the epochs of a sample first
        metrics["stderr"] = _metric("stderr", stdev(map(fmean, by_sample.values())) / len(by_sample) ** 0.5)
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": f"{run['run_id']}-{number}",
            "run_id": run["run_id"],
            "created": _time(started),
            "task": "/".join(sorted({row["gym"] for row in rows})),
            "task_id": f"{_name(run['run_id']).replace('-', '')}{number}",
            "task_version": 0,
            "dataset": {
                "name": "/".join(sorted({row["source"] for row in rows})),
                "samples": len(ids),
                "sample_ids": ids,
            },
            "model": policy,
            "config": {"epochs": max(row["attempt"] for row in rows) + 1, "message_limit": None},
            "metadata": {key: run[key] for key in ("recipe", "profile", "seed", "backend", "code_version")},
            "packages": {},
            "scorers": [{"name": "score"}],
        },
        "plan": {"name": "userrl", "steps": [], "config": {}},
        "results": {
            "total_samples": len(rows),
            "completed_samples": len(rows),
            "scores": [
                {"name": "score", "scorer": "score", "scored_samples": len(scores), "params": {}, "metrics": metrics}
            ],
        },
        "stats": {
            "started_at": _time(started) if timed else "",
            "completed_at": _time(completed) if timed else "",
            "model_usage": _usage(policy, rows),
        },
        "samples": [_sample(conversation) for conversation in conversations],
    }


def _sample(exported: ExportedConversation) -> dict[str, Any]:
    row = exported.trajectory
    policy = row["policy"] or ""
    opening = [{"role": message["role"], "content": message["content"] or ""} for message in exported.opening]
    messages = [*opening, *(message for turn in exported.turns for message in _turn(exported, turn, policy))]
    final = exported.reply(exported.turns[-1]).text if exported.turns else ""
    # A conversation that was imported from a file without times has none.
    seconds = [row[key] for key in ("policy_seconds", "env_seconds") if row[key] is not None]
    score: dict[str, Any] = {"value": row["score"], "answer": final, "explanation": row["stop_reason"], "metadata": {}}
    sample = {
        "id": _id(row),
        "epoch": row["attempt"] + 1,
        "input": opening or "",
        "target": "",
        "messages": messages,
        "output": {
            "model": policy,
            "choices": [{"message": {"role": "assistant", "content": final}, "stop_reason": "stop"}],
        },
        "scores": {"score": score} if row["score"] is not None else {},
        "metadata": {
            **{
                key: row[key]
                for key in ("gym", "task_id", "task_version", "tier", "split", "horizon", "turns", "stop_reason")
            },
            "admitted": row["admitted"],
            "reject_reason": row["reject_reason"],
            "return_sum": row["return_sum"],
            "user_model": row["user_name"],
            "traj_id": str(row["traj_id"]),
        },
        "store": {},
        "events": [],
        "model_usage": _usage(policy, [row]),
        "total_time": sum(seconds) if seconds else None,
        "uuid": str(row["traj_id"]),
        "attachments": {},
    }
    if not row["admitted"] and not (exported.imported and row["stop_reason"] != "error"):
        reason = row["reject_reason"] or "could not be scored"
        sample["error"] = {"message": reason, "traceback": reason, "traceback_ansi": reason}
    return sample


def _turn(exported: ExportedConversation, turn: dict[str, Any], policy: str) -> list[dict[str, Any]]:
    reply, observation = exported.reply(turn), exported.shown(turn)
    parts = [{"type": "reasoning", "reasoning": reply.reasoning}, {"type": "text", "text": reply.text}]
    agent: dict[str, Any] = {
        "role": "assistant",
        "content": parts if reply.reasoning else reply.text,
        "source": "generate",
        "model": policy,
        "metadata": {"turn": turn["turn"], "reward": turn["reward"], "advantage": turn["advantage"]},
    }
    answer: dict[str, Any] = {"role": "user", "content": observation}
    if reply.calls:
        agent["tool_calls"] = [
            {"id": call_id, "function": name, "arguments": arguments, "type": "function"}
            for call_id, name, arguments in reply.calls
        ]
        call_id, name, _ = reply.calls[0]
        answer = {"role": "tool", "content": observation, "tool_call_id": call_id, "function": name}
    return [agent] if observation is None else [agent, answer]


def _usage(policy: str, rows: Sequence[Any]) -> dict[str, dict[str, int]]:
    """Return the tokens of all rows by model; a number is absent if one of the rows does not have it."""
    counts = {
        name: [row[column] for row in rows]
        for name, column in (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens"))
    }
    usage = {name: sum(values) for name, values in counts.items() if None not in values}
    if len(usage) == len(counts):
        usage["total_tokens"] = sum(usage.values())
    return {policy: usage} if usage else {}


def _metric(name: str, value: float) -> dict[str, Any]:
    return {"name": name, "value": value, "params": {}}


def _id(row: Any) -> str:
    return f"{row['gym']}/{row['task_id']}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _name(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text)
