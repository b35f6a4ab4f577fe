"""TauGym: serve a customer by talking and by calling internal tools (UserRL appendix C; tau-bench).

The only reward is at the end, when the user stops or is transferred to a person: 1.0 or 0.0, by one of two rules
(`verifier`). With `TauConfig.shared` useful turns are paid too. tau-bench's rule: the gold actions lead to the same
database, and every required output occurs in a message of the agent. TARL's rule: the agent's successful writes are the
gold ones. Both verdicts are in the last turn's info.

Departures from the released code: the agent sees the policy. A finished episode accepts no further step (there an invalid
choice with ``[finish]`` was rewarded again). Nothing blocks the event loop. From tau-bench: commas and case are ignored in
outputs, 5 and 5.0 are equal, and after a night flight a connection has the prices of its own day.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol

from pydantic import Field

from userrl_core.errors import TaskError
from userrl_core.gyms.base import Gym, GymConfig, Reply, RewardBounds
from userrl_core.gyms.lazy import lazily
from userrl_core.gyms.tau.outfitter import tiny
from userrl_core.gyms.tau.outfitter.tiny import TerseUser
from userrl_core.gyms.tau.reference import TauReference
from userrl_core.gyms.tau.rule_user import RuleTauUser, disclosures
from userrl_core.gyms.tau.stopping import STOP, STOP_TOKEN
from userrl_core.gyms.tau.stores import Store, open_database
from userrl_core.gyms.tau.tasks import load_domain
from userrl_core.gyms.tau.tools import TRANSFER, ToolError
from userrl_core.gyms.tau.verifier import Write, WritesVerdict, replay, verify
from userrl_core.interact import InteractCall
from userrl_core.records import Task

FIRST_MESSAGE: Write = ("message", {})
"""The first message to the customer, among the useful turns."""
BY_WRITES = ("outfitter", tiny.DOMAIN)
"""Domains whose conversations are verified by their writes by default."""


class TauUser(Protocol):
    """The customer."""

    async def reply(self, message: str) -> str:
        """Return the next message, with a stop token at the end of the conversation. Raises UserError."""


class TauConfig(GymConfig):
    """Rewards of TauGym."""

    success: float = 1.0
    """Reward at the end of a fulfilled task (tau-bench: 1)."""

    shared: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of `success` for useful turns, each paid once: the first message to the customer, and each gold action (ours). The end
    of a fulfilled task pays the rest, so that every solution earns the same in total.
    """

    lookups_paid: bool = True
    """Whether gold actions that only read have a share. If not, the other useful turns share all of it."""

    verifier: Literal["auto", "database", "writes"] = "auto"
    """database: the final state (tau-bench). writes: the successful writes, exactly and in any order (TARL 2.1).
    auto: writes for the outfitter's tasks, which represent TARL's, and database for all others.
    """

    check_outputs: bool | None = None
    """Whether outputs are checked too. null: yes with verifier database (tau-bench), no with writes (TARL's verifier)."""

    policy_in_opening: bool = True
    """Whether the opening contains the domain's policy (ours; the released code never shows it). ``search help`` always does."""

    store: Store = "memory"
    """Store of an episode's records: a layer over shared records in memory, or a private SQLite copy (TARL 2.1)."""

    database: str | None = None
    """Folder with the domain's data. It replaces the folder from which the task was imported."""


def _rule_user(task: Task, rng: random.Random, **options: Any) -> TauUser:
    return (TerseUser if task.payload["domain"] == tiny.DOMAIN else RuleTauUser)(task, rng, **options)


class TauGym(Gym[TauConfig]):
    """A customer of a domain (outfitter, bikes, retail, airline)."""

    name = "tau"
    config_type = TauConfig
    metric = "Task Completion"
    success_rule = (
        "the database is as the gold actions leave it, or the writes are the gold ones (verifier), and every output was told "
        "where outputs are checked"
    )
    hint = "Read the policy and the tools first, look up what the user says, and ask before you change anything."
    goal = (
        "You serve a customer of a service desk. Find out what the customer wants, use the desk's tools to do it, keep to its "
        "policy, and tell the customer what was asked. The customer ends the conversation."
    )
    choice_help: ClassVar = {
        "action": "say something to the customer",
        "search": "'tools' for the tools and their arguments, or 'help' for the policy and how to call a tool",
        "answer": 'one tool call as JSON, e.g. {"name": "get_booking", "arguments": {"booking_id": "B100"}}',
    }
    users: ClassVar = {"rule": _rule_user, "openai": lazily("userrl_core.gyms.tau.llm_user:LLMTauUser")}
    user: TauUser

    def __init__(self, task: Task, user: Any = None, config: TauConfig | None = None) -> None:
        """Load the domain. Raises TaskError if its data are missing."""
        super().__init__(task, user, config)
        folder = self.config.database or task.payload["database"]
        self.domain = load_domain(task.payload["domain"], folder)
        self.base = task.payload.get("tables", self.domain.base)
        self.database = open_database(self.domain, folder, self.base, self.config.store)
        self.messages: list[str] = []
        """The agent's messages to the customer, in order."""
        self.writes: list[Write] = []
        """The agent's successful writes, in order."""
        self._unpaid = self._useful() if self.config.shared else []
        self._share = self.config.success * self.config.shared / max(len(self._unpaid), 1)
        self._earned = 0.0
        self._fulfilled = False
        self._tools_shown = False

    @staticmethod
    def min_turns(task: Task, config: GymConfig) -> int:
        """Return the length of the gold conversation."""
        return len(conversation(task))

    @classmethod
    def reward_bounds(cls, config: TauConfig) -> RewardBounds:
        """Bound by `success`, which a fulfilled task earns even if it ends with a transfer. Shares can be small."""
        bounds = RewardBounds.of_answers(config.success)
        return bounds._replace(answer=0.0) if config.shared else bounds

    @classmethod
    def gold(cls, task: Task, config: TauConfig) -> list[InteractCall]:
        """Ask, execute the gold actions, tell the outputs. Raises TaskError if a gold action fails on replay."""
        if task.payload["unprovable"]:
            raise TaskError("task.not_playable", f"Task {task.key} cannot be verified: {task.payload['unprovable']}.")
        return conversation(task)

    @classmethod
    def reference(cls, task: Task, config: TauConfig) -> TauReference:
        """Return policy, instruction and gold actions. Raises TaskError if the domain's data are missing."""
        domain = load_domain(task.payload["domain"], config.database or task.payload["database"])
        gold = tuple((action["name"], dict(action["kwargs"])) for action in task.payload["actions"])
        return TauReference(domain, task.payload["instruction"], gold, task.payload.get("tables", domain.base))

    def opening(self) -> str:
        """Return the policy and the customer's first message."""
        message = str(self.task.payload["opening"])
        return f"# Policy\n{self.domain.policy}\n# Customer\n{message}" if self.config.policy_in_opening else message

    def brief(self) -> str:
        """Return the customer's first message."""
        return str(self.task.payload["opening"])

    def native_tools(self) -> list[dict[str, Any]]:
        """Return the schemas of the domain's tools, as in tau-bench."""
        return [dict(schema) for schema in self.domain.schemas]

    def native_call(self, name: str, arguments: Mapping[str, Any]) -> InteractCall | None:
        """Translate a call of a domain tool."""
        return InteractCall("answer", json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False))

    async def action(self, content: str) -> Reply:
        """Send a message to the customer."""
        self.messages.append(content)
        reply = await self.user.reply(content)
        text = STOP_TOKEN.sub("", reply).strip()
        if text == reply.strip():
            return Reply(text, self._pay(FIRST_MESSAGE))
        return self._end(text or "The customer has ended the conversation.")

    def last_words(self, text: str) -> str:
        """Return the text with the stop token, which the agent never sees."""
        return f"{text} {STOP}"

    async def search(self, content: str) -> Reply:
        """Show the tools or the policy."""
        if self.domain.terse:
            return Reply(" ".join(self.domain.tools))
        topic = content.strip().lower()
        if topic == "tools" and self._tools_shown:
            return Reply("The tools were shown before. Read them there.")
        if topic == "tools":
            self._tools_shown = True
            return Reply(
                "\n".join(json.dumps(schema["function"], ensure_ascii=False) for schema in self.domain.schemas)
            )
        if topic == "help":
            return Reply(f"{self.domain.policy}\nTo call a tool, choose answer with {self.choice_help['answer']}.")
        return Reply("Search for 'tools' or for 'help'.")

    async def answer(self, content: str) -> Reply:
        """Execute a tool call."""
        name = ""
        try:
            name, arguments = self.domain.read(content)
            result = self.domain.call(self.database, name, arguments)
        except ToolError as error:
            if name == TRANSFER and not self.domain.checked:  # as in tau-bench
                return self._end(f"Error: {error}", {"tool": name, "tool_error": True})
            return Reply("no" if self.domain.terse else f"Error: {error}", info={"tool_error": True})
        info = {"tool": name, "write": name in self.domain.writes}
        if info["write"]:
            self.writes.append((name, arguments))
        return self._end(result, info) if name == TRANSFER else Reply(result, self._pay((name, arguments)), info=info)

    async def aclose(self) -> None:
        """Free the database's memory."""
        await super().aclose()
        self.database.close()

    def _end(self, observation: str, info: dict[str, Any] | None = None) -> Reply:
        verdict = self.verdict()
        by_writes = self.config.verifier == "writes" or (
            self.config.verifier == "auto" and self.task.payload["domain"] in BY_WRITES
        )
        checks_outputs = not by_writes if self.config.check_outputs is None else self.config.check_outputs
        success = (verdict.writes if by_writes else verdict.database) and not (verdict.missing and checks_outputs)
        info = {
            **(info or {}),
            "writes_right": verdict.writes,
            "database_right": verdict.database,
            "outputs_missing": len(verdict.missing),
        }
        self._fulfilled = success
        left = self.config.success - self._earned
        return Reply(observation, left if success else 0.0, done=True, success=success, info=info)

    def score(self) -> float | None:
        """Return the reward; with shared rewards, that of a fulfilled task or 0."""
        if not self.config.shared or None in self.rewards:
            return super().score()
        return self.config.success if self._fulfilled else 0.0

    def _useful(self) -> list[Write]:
        """Return the turns that have a share: the first message, and the gold actions but a transfer."""
        gold = [(action["name"], dict(action["kwargs"])) for action in self.task.payload["actions"]]
        paid_calls = [call for call in gold if self.config.lookups_paid or call[0] in self.domain.writes]
        return [FIRST_MESSAGE, *(call for call in paid_calls if call[0] != TRANSFER)]

    def _pay(self, call: Write) -> float:
        """Return the share of a useful turn, once. A look at what was already changed is not paid."""
        paid = call in self._unpaid
        if paid:
            self._unpaid.remove(call)
        if call[0] in self.domain.writes:
            writes = self.domain.writes
            self._unpaid = [other for other in self._unpaid if other[0] in writes or other[1] != call[1]]
        if not paid:
            return 0.0
        self._earned += self._share
        return self._share

    def verdict(self) -> WritesVerdict:
        """Return both verdicts on the conversation so far."""
        payload = self.task.payload
        gold = replay(self.domain, payload["actions"], self.base)
        return verify(gold, self.writes, self.database, payload["outputs"], self.messages)


def conversation(task: Task) -> list[InteractCall]:
    """Return the gold conversation: ask the customer for everything, act, tell the outputs (before a transfer, which
    ends it).
    """
    payload = task.payload
    if payload["domain"] == tiny.DOMAIN:
        return tiny.conversation(payload)
    calls = [InteractCall("action", "Please tell me who you are and what I can do for you.")]
    further_questions = disclosures(payload["instruction"]) - 1
    calls += [InteractCall("action", "Thank you. Please tell me more.")] * further_questions
    for action in payload["actions"]:
        if action["name"] != TRANSFER:
            call = {"name": action["name"], "arguments": action["kwargs"]}
            calls.append(InteractCall("answer", json.dumps(call, ensure_ascii=False)))
    outputs = f" What you asked for: {'; '.join(payload['outputs'])}." if payload["outputs"] else ""
    transfer = next((action for action in payload["actions"] if action["name"] == TRANSFER), None)
    if transfer is None:
        return [*calls, InteractCall("action", f"Everything is settled.{outputs}")]
    if outputs:
        calls.append(InteractCall("action", f"{outputs.strip()} Do you want to be handed over?"))
    return [*calls, InteractCall("answer", json.dumps({"name": TRANSFER, "arguments": transfer["kwargs"]}))]
