"""The turn log: the `Sink` that writes a run to the warehouse.

Each writing process has one. A call returns once its rows are in the page cache, so they survive kill -9 of the
process. `wal` makes them durable against power loss within 200 ms and seals them into Parquet.

Restarts and rewind. A run may be started many times. Every `open` is a new incarnation with the next number, taken by
atomic mkdir, unless it joins one (``join=log.incarnation``: worker processes of the same start). A rewind voids only
rows of *earlier incarnations*. No clock is compared, so a straggler of a killed start is void even if it writes
later. A log that has already written rows in its incarnation begins a new one when it rewinds; workers join after
that. Among the same rows, a replay voids only rejected trajectories of one stage.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from numbers import Integral
from pathlib import Path
from typing import Any

from userrl_core.errors import ConfigError, LogError
from userrl_core.records import CheckpointRecord, ModelCall, Task, Trajectory, Turn, total_price
from userrl_core.seeding import content_hash
from warehouse.files import encode
from warehouse.files.checksum import stamped
from warehouse.files.layout import LIVE_LINE_BYTES, Manifest, claim, run_dir
from warehouse.files.runs import register_run
from warehouse.write.wal import SEGMENT_ROWS, WriteAheadLog

MAX_WRITERS = 2**16 - 1
MAX_TRAJECTORIES = 2**24 - 1
CALL_COLUMNS = tuple(
    "role model prompt_tokens completion_tokens seconds attempts price price_source error estimated".split()  # noqa: SIM905
)
"""The columns of `model_calls` that are fields of a call."""
PLACE = ("stage", "step", "phase", "split", "gym", "task_id", "attempt", "group_id")
"""The columns that the turns of a trajectory share with its row."""


class TurnLog:
    """The `userrl_core.sink.Sink` of the warehouse. Thread-safe; open one per process."""

    def __init__(self, run: Path, row: Mapping[str, Any], incarnation: int, writer: int, segment_rows: int) -> None:
        self.run_id: str = row["run_id"]
        self.run_no: int = row["run_no"]
        self.incarnation = incarnation
        """The start of the run that this log belongs to; worker processes need it as ``join``."""
        self.writer = writer
        self._run = run
        self._gamma = math.nan if row["gamma"] is None else float(row["gamma"])
        self._ids = itertools.count(1)
        self._seq = itertools.count(1)
        self._wrote = False
        self._contexts: dict[int, bytes] = {}
        self._started: dict[int, float] = {}
        self._tasks: set[tuple[str, str, str]] = set()
        self._imported_tasks: set[int] = set()
        self._versions: dict[int, tuple[Task, str]] = {}
        self._credited: dict[int, bytearray] = {}
        self._stamp()
        self._wal = WriteAheadLog(run, self.run_id, writer, segment_rows)

    @classmethod
    def open(
        cls,
        root: Path | str,
        run_id: str,
        *,
        run_fields: Mapping[str, Any] | None = None,
        join: int | None = None,
        segment_rows: int = SEGMENT_ROWS,
    ) -> TurnLog:
        """Register the run (idempotent), begin an incarnation or join one, and claim a writer number.

        run_fields: columns of `runs` by name, used only when the run is not registered yet. join: the incarnation of
        the process that started this one. segment_rows: rows after which a segment is sealed. Raises ConfigError,
        LogError.
        """
        root = Path(root)
        run = run_dir(root, run_id)
        if not run.exists() and Manifest.read(root).holds(run_id):
            # Its writers would begin at 1 again, and readers would take their rows for those of the packs.
            raise LogError(
                "warehouse.damaged",
                f"The folder {run} was removed, and packs still have turns of run {run_id}. Restore it from a copy, or "
                "start a new run with fresh=true.",
            )
        row = register_run(root, run_id, run_fields)
        try:
            if join is None:
                join = claim(run / "incarnations")
            elif not (run / "incarnations" / f"{join:08d}").is_dir():
                raise ConfigError(
                    "log.misused",
                    f"Run {run_id} has no incarnation {join} to join. Pass the parent log's `incarnation`.",
                )
            number = claim(run / "writers")
            if number > MAX_WRITERS:
                raise LogError(
                    "log.full",
                    f"Run {run_id} has had {MAX_WRITERS} writers, the most a run can have. Start a new run "
                    "with fresh=true.",
                )
            return cls(run, row, join, number, segment_rows)
        except LogError:
            raise
        except OSError as error:
            raise LogError(
                "log.cannot_write",
                f"The turn log cannot be opened in {root}: {error.strerror or error}. Free space, or correct "
                "the cause.",
            ) from error

    def begin(self, trajectory: Trajectory) -> int:
        """Assign the trajectory its globally unique id (also set on it)."""
        traj_id = trajectory.traj_id = self._new_id()
        context, task = trajectory.context, trajectory.task
        context_fields = {
            "stage": context.stage,
            "step": context.step,
            "phase": context.phase,
            "split": task.split,
            "gym": task.gym,
            "task_id": task.id,
            "attempt": trajectory.attempt,
            "group_id": trajectory.group,
        }
        # Encoded once per trajectory: half of a turn's line is where it belongs.
        self._contexts[traj_id] = encode.line(context_fields)[1:-1] + b","
        self._started[traj_id] = time.time()
        return traj_id

    def turn(self, trajectory: Trajectory, turn: Turn) -> None:
        """Write one line for the turn, and one for each of its model calls."""
        context_json = self._contexts.get(trajectory.traj_id or 0)
        if context_json is None:
            raise LogError(
                "log.misused", "A turn was logged for a trajectory that was not begun in this log. Call begin first."
            )
        row = {
            "traj_id": trajectory.traj_id,
            "turn": turn.number,
            "choice": turn.choice,
            "content": turn.content,
            "thought": turn.thought,
            "message": turn.message,
            "observation": turn.observation,
            "reward": turn.reward,
            "flags": int(turn.flags),
            "prompt_tokens": turn.prompt_tokens,
            "completion_tokens": turn.completion_tokens,
            "policy_seconds": turn.policy_seconds,
            "env_seconds": turn.env_seconds,
            "token_ids": turn.token_ids,
            "logprobs": turn.logprobs,
            "info": encode.any_text(turn.info) if turn.info else None,
        }
        line = self._line(row, context_json)
        if turn.model_calls:
            self._model_calls(trajectory, turn.number, turn.model_calls)
        self._wrote = True
        self._wal.append("turns", line)

    def end(self, trajectory: Trajectory) -> None:
        """Write one line with all data of the trajectory."""
        traj_id = trajectory.traj_id or 0
        context_json = self._contexts.get(traj_id)
        if context_json is None:
            raise LogError(
                "log.misused", "A trajectory was ended that was not begun in this log, or it was ended twice."
            )
        turns, context, task = trajectory.turns, trajectory.context, trajectory.task
        if trajectory.unfinished_calls:
            self._model_calls(trajectory, len(turns) + 1, trajectory.unfinished_calls)
        # One pass: between a model's replies the turns have left the processor's caches, and loading them is the cost.
        flags = prompt_tokens = completion_tokens = 0
        policy_seconds = env_seconds = 0.0
        for turn in turns:
            flags |= int(turn.flags)
            prompt_tokens += turn.prompt_tokens
            completion_tokens += turn.completion_tokens
            policy_seconds += turn.policy_seconds
            env_seconds += turn.env_seconds
        row = {
            "traj_id": traj_id,
            "task_version": self._version(task),
            "tier": task.tier,
            "source": task.source,
            "horizon": trajectory.horizon,
            "seed": trajectory.seed,
            "policy": context.policy,
            "checkpoint": context.checkpoint,
            "user_name": trajectory.user,
            "turns": len(turns),
            "stop_reason": trajectory.stop_reason,
            "score": trajectory.score if trajectory.admitted else None,
            "return_sum": trajectory.return_sum,
            "score_r2g": self._score_r2g(trajectory),
            "admitted": trajectory.admitted,
            "reject_reason": trajectory.reject_reason,
            "flags": flags,
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "policy_seconds": policy_seconds,
            "env_seconds": env_seconds,
            "messages": encode.text(trajectory.messages),
            "started_at": self._started[traj_id],
        }
        self._wrote = True
        self._wal.append("trajectories", self._line(row, context_json))
        del self._contexts[traj_id], self._started[traj_id]

    def credits(self, traj_id: int, shaped: Sequence[float], advantage: Sequence[float]) -> None:
        """Write one line a turn. Raises LogError for a second call with the same traj_id or unequal lengths."""
        if len(shaped) != len(advantage):
            raise LogError(
                "log.misused",
                f"Credits of trajectory {traj_id}: there are {len(shaped)} shaped values and {len(advantage)} "
                "advantages. Give one of each per turn.",
            )
        bits, bit = self._credited.setdefault(traj_id >> 24, bytearray()), traj_id & 0xFFFFFF
        if len(bits) <= bit >> 3:
            bits.extend(bytes(max((bit >> 3) + 1 - len(bits), len(bits), 64)))
        if bits[bit >> 3] & 1 << (bit & 7):
            raise LogError(
                "log.misused",
                f"Credits of trajectory {traj_id} were logged before. Log them once, when its group is complete.",
            )
        lines = [
            stamped(
                b'%s"traj_id":%d,"turn":%d,"seq":%d,%s'
                % (
                    self._head,
                    traj_id,
                    turn,
                    next(self._seq),
                    encode.line({"shaped": float(s), "advantage": float(a)})[1:-1],
                )
            )
            + b"\n"
            for turn, (s, a) in enumerate(zip(shaped, advantage, strict=True), 1)
        ]
        if lines:
            self._wal.append("credits", b"".join(lines), len(lines))
        bits[bit >> 3] |= 1 << (bit & 7)

    def judgement(self, trajectory: Trajectory) -> None:
        """Write one line a turn of a judged trajectory, and one for each call of the judge's model, under the last turn."""
        judged, turns = trajectory.judgement, trajectory.turns
        if judged is None or judged.rule_scores is None or not turns:
            return
        price = total_price(call.price for call in judged.calls)
        rows = [
            {
                "traj_id": trajectory.traj_id,
                "turn": turn.number,
                "judge": judged.judge,
                "score": None if judged.scores is None else judged.scores[i],
                "rule_score": judged.rule_scores[i],
                "category": judged.category,
                "reward": judged.rewards[i],
                "price": None if price is None else price / len(turns),
            }
            for i, turn in enumerate(turns)
        ]
        self._append("judgements", rows)
        self._model_calls(trajectory, turns[-1].number, judged.calls, len(turns[-1].model_calls))

    def imported(
        self,
        trajectory: dict[str, Any],
        turns: Sequence[dict[str, Any]],
        calls: Sequence[dict[str, Any]],
        payload: Mapping[str, Any],
    ) -> int:
        """Write the rows of a conversation that another tool recorded, and return its id.

        A column that a row lacks is null; without a task_version it is the hash of the payload. payload: the task; it is
        written once per version. Raises TypeError for values that are nested too deeply for JSON.
        """
        traj_id = self._new_id()
        version = trajectory.pop("task_version", None) or content_hash(payload)
        context_fields = {name: trajectory.pop(name, None) for name in PLACE}
        head = encode.line({"traj_id": traj_id, **context_fields})[1:-1] + b","
        task = {
            "gym": context_fields["gym"],
            "task_id": context_fields["task_id"],
            "version": version,
            "split": context_fields["split"],
        }
        if payload and (key := hash(tuple(task.values()))) not in self._imported_tasks:
            self._imported_tasks.add(key)
            task_fields = {"source": trajectory.get("source"), "tier": trajectory.get("tier")}
            self._append("tasks", [{**task, **task_fields, "payload": encode.text(payload)}])
        of_call = {"traj_id": traj_id, **{name: context_fields[name] for name in ("stage", "step", "phase", "gym")}}
        self._append_small("model_calls", [self._line({**of_call, **row}) for row in calls])
        self._append_small("turns", [self._line(row, head) for row in turns])
        self._wal.append("trajectories", self._line({**trajectory, "task_version": version}, head))
        return traj_id

    def labels(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write labels of conversations (turn 0) or turns, with the columns of the table; durable on return."""
        self._append("labels", [dict(row) for row in rows])
        self._wal.flush()

    def user_features(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write audited conversations, with the columns of the table; durable on return."""
        self._append("user_features", [dict(row) for row in rows])
        self._wal.flush()

    def protocols(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write the protocols of an evaluation, with the columns of the table; durable on return."""
        self._append("protocols", [dict(row) for row in rows])
        self._wal.flush()

    def tasks(self, tasks: Iterable[Task]) -> None:
        """Write one line per task version not yet written by this log."""
        rows = []
        for task in tasks:
            version = self._version(task)
            key = (task.gym, task.id, version)
            if key in self._tasks:
                continue
            self._tasks.add(key)
            row = {
                "gym": task.gym,
                "task_id": task.id,
                "version": version,
                "split": task.split,
                "source": task.source,
                "tier": task.tier,
                "payload": encode.text(task.payload),
            }
            rows.append(row)
        self._append("tasks", rows)

    def metrics(self, values: Mapping[str, float], *, stage: str, step: int) -> None:
        """Write one line per number; a number that is not finite is stored as null."""
        self._wrote = self._wrote or bool(values)
        self._append(
            "metrics",
            [{"stage": stage, "step": step, "name": name, "value": float(value)} for name, value in values.items()],
        )

    def stage(self, stage: str, status: str, **fields: Any) -> None:
        """Log the start or end of a stage; durable on return."""
        self._append("stages", [{"stage": stage, "status": status, "fields": encode.text(fields)}])
        self._wal.flush()

    def event(self, kind: str, **fields: Any) -> None:
        """Log any other event; durable on return. ``rewind`` needs a step or a stage, ``replay`` a stage, see the text above.

        Raises LogError for an event whose step or stage could not be read again: its target would be unknown.
        """
        stage, step = fields.get("stage"), fields.get("step")
        if kind == "replay" and not isinstance(stage, str):
            raise LogError("log.misused", f"A replay needs stage=..., the name of a stage, not {stage!r}.")
        if kind == "rewind":
            if stage is None and step is None:
                raise LogError(
                    "log.misused", "A rewind needs step=... (void later training steps) or stage=... (void the stage)."
                )
            valid_step = not isinstance(step, bool) and isinstance(step, Integral) and -1 <= int(step) < 2**31
            if step is not None and not valid_step:
                raise LogError(
                    "log.misused", f"The step of a rewind is a whole number from -1 to 2147483647, not {step!r}."
                )
            if stage is not None and not isinstance(stage, str):
                raise LogError("log.misused", f"The stage of a rewind is a name, not {stage!r}.")
        if kind in ("rewind", "replay") and self._wrote:
            self.incarnation = claim(self._run / "incarnations")
            self._stamp()
            self._wrote = False
        self._append("events", [{"kind": kind, "stage": stage, "step": step, "fields": encode.text(fields)}])
        self._wal.flush()

    def checkpoint(self, record: CheckpointRecord) -> None:
        """Log a complete checkpoint; durable on return."""
        row = asdict(record)
        self._append("checkpoints", [{"checkpoint": row.pop("id"), **row}])
        self._wal.flush()

    def demonstrations(self, traj_ids: Iterable[int], *, stage: str = "sft") -> None:
        """Log the trajectories that a cold start learns from, best first; durable on return."""
        rows = [{"stage": stage, "traj_id": traj_id, "rank": rank} for rank, traj_id in enumerate(traj_ids, 1)]
        self._append("demonstrations", rows)
        self._wal.flush()

    def flush(self) -> None:
        """Fsync everything logged so far."""
        self._wal.flush()

    def close(self) -> None:
        """Seal and release. After a failed write nothing more is sealed: logged rows stay for the compactor."""
        self._wal.close()

    def __enter__(self) -> TurnLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _new_id(self) -> int:
        n = next(self._ids)
        if n > MAX_TRAJECTORIES:
            raise LogError(
                "log.full", f"One process can log {MAX_TRAJECTORIES} trajectories. Open a new turn log to continue."
            )
        return self.run_no << 40 | self.writer << 24 | n

    def _append_small(self, table: str, lines: Sequence[bytes]) -> None:
        """Append lines at once. Lines that are too long together are appended one by one, to stay in live files."""
        if sum(map(len, lines)) <= LIVE_LINE_BYTES:
            if lines:
                self._wal.append(table, b"".join(lines), len(lines))
            return
        for line in lines:
            self._wal.append(table, line)

    def _stamp(self) -> None:
        head = {"run_id": self.run_id, "incarnation": self.incarnation, "writer": self.writer}
        self._head = encode.line(head)[:-1] + b","

    def _line(self, row: dict[str, Any], context_json: bytes = b"") -> bytes:
        row["seq"] = next(self._seq)
        row["logged_at"] = time.time()
        return stamped(b"".join((self._head, context_json, encode.line(row)[1:-1]))) + b"\n"

    def _append(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            self._wal.append(table, b"".join(map(self._line, rows)), len(rows))

    def _model_calls(self, trajectory: Trajectory, turn: int, calls: Sequence[ModelCall], logged: int = 0) -> None:
        """Write one line per call. logged: number of calls of the turn that were logged before."""
        context, rows = trajectory.context, []
        # A prompt repeats the conversation so far: in training that would be more than everything else together.
        logs_text = context.phase not in ("train", "baseline")
        for n, call in enumerate(calls, 1 + logged):
            row = {
                "traj_id": trajectory.traj_id,
                "turn": turn,
                "n": n,
                "stage": context.stage,
                "step": context.step,
                "phase": context.phase,
                "gym": trajectory.task.gym,
                **{name: getattr(call, name) for name in CALL_COLUMNS},
                "prompt": json.dumps(call.prompt, ensure_ascii=False) if logs_text and call.prompt else None,
                "reply": call.reply if logs_text else None,
            }
            rows.append(row)
        self._append("model_calls", rows)

    def _score_r2g(self, trajectory: Trajectory) -> float | None:
        if not trajectory.admitted:
            return None
        total, weight = 0.0, 1.0
        for reward in trajectory.rewards:
            if reward is None:
                return None
            total += weight * reward
            weight *= self._gamma
        return total

    def _version(self, task: Task) -> str:
        task_and_hash = self._versions.get(id(task))
        # The task is kept beside its hash, so its id() cannot be given to another one meanwhile.
        if task_and_hash is None:
            if len(self._versions) >= 4096:
                self._versions.clear()
            task_and_hash = self._versions[id(task)] = (task, content_hash(task.payload))
        return task_and_hash[1]
