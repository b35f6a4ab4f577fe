"""Errors in tau's conversations, ours and recorded ones: the task's instruction and gold writes are the truth.

The agent's writes are compared with gold's, argument by argument. The user's words are compared with its instruction. The
same rules read TauGym's turns and imported ones, and need no database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.users.conversation import TALK, Conversation, Message, imported_call, words_of
from analysis.users.findings import Findings, Goal
from analysis.users.grounding import identifiers, leaves, normalised, said_identifiers
from userrl_core.errors import TaskError
from userrl_core.gyms.tau import airline, retail
from userrl_core.gyms.tau.blame import REFUSES
from userrl_core.gyms.tau.stopping import announces, asks, may_stop
from userrl_core.gyms.tau.tasks import load_domain
from userrl_core.gyms.tau.tools import TRANSFER, Domain, ToolError
from userrl_core.gyms.tau.verifier import Write, exact, replay

OBJECTS = ("reservation_id", "order_id", "booking_id", "item", "user_id", "customer_id")
"""Arguments that name the object of a write, the most specific first."""

HELD: tuple[tuple[str, re.Pattern[str], re.Pattern[str]], ...] = (
    ("user id", re.compile(r"\b(user|customer)[ -]?id\b", re.I), re.compile(r"\b[a-z]+_[a-z]+_\d+\b")),
    ("e-mail", re.compile(r"\be-?mail\b", re.I), re.compile(r"[\w.+-]+@[\w-]+\.\w+")),
    ("postcode", re.compile(r"\b(zip|post)[ -]?code\b|\bzip\b", re.I), re.compile(r"(?<![#\w])\d{5}\b")),
    ("order number", re.compile(r"\border[ -]?(number|id)s?\b", re.I), re.compile(r"#?W\d{4,}")),
    (
        "booking number",
        re.compile(r"\b(booking|reservation|confirmation)[ -]?(number|id|code)s?\b", re.I),
        re.compile(r"\b(?=\w*\d)(?=\w*[A-Z])[A-Z0-9]{4,6}\b"),
    ),
)
"""Facts that an agent asks for: name, words of the question, form of the fact."""

_YES = re.compile(
    r"^\W*(yes|yeah|yep|sure|ok(ay)?|please (do|proceed|go ahead)|correct|absolutely|perfect|sounds (good|great))\b|"
    r"\b(go ahead|please proceed|proceed with|i confirm|i agree|that('s| is| would be| sounds) (right|correct|fine|good|great))\b",
    re.I,
)
_OBJECTS_TO = re.compile(r"\b(no|not|but|instead|rather|except|wait)\b|n't\b", re.I)
_INVITES = re.compile(
    r"\b(any|some)thing else\b|\b(how|what) (else )?(can|may|could) (i|we) (help|assist|do)\b|\bwhat (i|we) can do\b|"
    r"\b(how|what) would you like\b",
    re.I,
)
_DECLINES = re.compile(REFUSES.pattern + r"|\btransfer|\bhand(ing|ed)? (you|this) over\b|\b(human|colleague)\b", re.I)
_FORGOTTEN = re.compile(r"\b(not|n't) (remember|recall|know)\b", re.I)
_FAREWELL = re.compile(r"\b(thank(s| you)|good ?bye|bye|that('s| is) all|have a (great|good|nice))\b", re.I)
_COACHED = re.compile(
    r"\b(you (should|need to|must|have to) (check|look up|call|use|search|verify|query|run)|"
    r"(use|call|run|try) (the|your) (\w+ )?(tool|function|api)|according to (the|your) policy|your policy (says|allows|states))\b",
    re.I,
)
_CLAIM = re.compile(
    r"\b(?:has|have|'ve)(?: now| just| already| also)*(?: been)?(?: successfully)? "
    r"(cancel|book|updat|chang|modif|upgrad|downgrad|exchang|return|issu|sent|add)\w*",
    re.I,
)
_VERBS: Mapping[str, tuple[str, ...]] = {
    "cancel": ("cancel",),
    "book": ("book", "rent"),
    "updat": ("update", "modify", "change", "move", "set"),
    "chang": ("update", "modify", "change", "move", "set", "exchange", "cancel", "book"),
    "modif": ("update", "modify", "change", "move", "set"),
    "upgrad": ("update", "change"),
    "downgrad": ("update", "change"),
    "exchang": ("exchange", "modify"),
    "return": ("return", "refund"),
    "issu": ("send", "cancel", "return", "update"),
    "sent": ("send",),
    "add": ("update", "add", "set", "modify", "book"),
}
"""Beginnings of the tool names that make a claim true, by the stem of its verb."""

_ASKED_FOR: tuple[tuple[str, str], ...] = (
    (r"cancel", r"cancel|refund|call(ed)? off|give up|no longer"),
    (r"^book|rent", r"book|fly|flight|rent|trip|travel|ticket"),
    (r"baggage", r"bag|luggage|suitcase"),
    (r"passenger", r"passenger|name|companion|birth"),
    (
        r"flights",
        r"chang|modif|upgrad|downgrad|switch|mov|nonstop|non-stop|earlier|later|cabin|business|economy|flight",
    ),
    (r"certificate", r"compensat|certificate|complain|gesture|voucher|delay"),
    (r"exchange", r"exchang|swap|chang|replac|instead"),
    (r"return|refund", r"return|refund|give up|send back|no longer"),
    (r"address", r"address|mov(ed|ing)|live|ship"),
    (r"payment", r"pay|card|paypal"),
    (r"items?$", r"chang|modif|swap|exchang|instead|differ|replac"),
    (r"", r"chang|mov|extend|keep|add|set|modif|instead|rather"),
)
"""Words of a user who asks for a write, by the name of its tool."""


@dataclass(frozen=True, slots=True)
class AgentWrite:
    """A write that the agent made. turn: its number."""

    turn: int
    write: Write


def readable(payload: Mapping[str, Any]) -> bool:
    """Return whether a task has tau's instruction and gold actions."""
    actions, outputs = payload.get("actions"), payload.get("outputs", [])
    return (
        isinstance(payload.get("instruction"), str)
        and isinstance(actions, list)
        and all(isinstance(a, Mapping) and "name" in a and isinstance(a.get("kwargs") or {}, Mapping) for a in actions)
        and isinstance(outputs, list)
        and all(isinstance(text, str) for text in outputs)
    )


def audited(conversation: Conversation) -> Findings:
    """Return the errors of a conversation about a task with an instruction and gold actions."""
    findings, payload = Findings(agent=[]), conversation.task.payload
    instruction, messages = str(payload["instruction"]), list(conversation.messages())
    domain = _domain(payload)
    gold, agent_writes, calls = (
        _gold(payload, domain),
        _agent_writes(conversation, domain),
        _calls(conversation, domain),
    )
    findings.checked(
        "ungrounded", "leaked", "coached", "stopped early", "never stopped", "gave in", "unanswered", "untold"
    )
    _facts(findings, messages, instruction, gold, payload.get("outputs", ()), calls)
    _tools(findings, messages, instruction, {name for name, _ in gold})
    early = _stops(findings, conversation)
    asked_again, unanswered = _questions(messages, instruction)
    for turn, name, ever in unanswered:
        findings.add("unanswered", turn, f"{name} was asked for", harmful=not ever)
    still_open, settled = _compare(findings, conversation, instruction, gold, agent_writes)
    never_mentioned = _untold(conversation, instruction, gold, calls)
    untold = [write for write in still_open if write in never_mentioned]
    for write in untold:
        findings.add("untold", conversation.turns[-1].number, exact(write), harmful=not conversation.solved)
    for write in still_open:
        findings.blame(
            "missing",
            conversation.turns[-1].number if conversation.turns else 0,
            exact(write),
            harmful=not early and write not in untold,
        )
    _missing_outputs(findings, conversation, payload.get("outputs", ()), early)
    _claims(findings, messages, agent_writes)
    if not any(name == TRANSFER for name, _ in _actions(payload)):
        for turn, (name, _) in calls:
            if name == TRANSFER:
                findings.blame("handed over", turn, name, harmful=False)
    if conversation.ending in ("horizon", "length") and not findings.user["never stopped"]:
        findings.blame("unfinished", conversation.turns[-1].number if conversation.turns else 0, conversation.ending)
    facts = identifiers(instruction)
    user_identifiers = {
        normalised(i) for message in messages if message.speaker == "user" for i in identifiers(message.text)
    }
    told_count = sum(normalised(fact) in user_identifiers for fact in facts)
    findings.goal = Goal(len(facts), told_count, asked_again, len(gold), settled)
    return findings


def _domain(payload: Mapping[str, Any]) -> Domain | None:
    if "domain" not in payload:
        return None
    try:
        return load_domain(str(payload["domain"]), payload.get("database"))
    except TaskError:
        return None


def _writes(domain: Domain | None) -> frozenset[str]:
    return domain.writes if domain is not None else airline.WRITES | retail.WRITES


def _actions(payload: Mapping[str, Any]) -> list[Write]:
    return [(str(action["name"]), action.get("kwargs") or {}) for action in payload["actions"]]


def _gold(payload: Mapping[str, Any], domain: Domain | None) -> list[Write]:
    """Return the gold writes. Those that fail on replay do not count, where the domain's data are there."""
    if domain is not None:
        return replay(domain, payload["actions"], payload.get("tables", domain.base)).writes
    return [write for write in _actions(payload) if write[0] in _writes(None)]


def _calls(conversation: Conversation, domain: Domain | None) -> list[tuple[int, Write]]:
    calls: list[tuple[int, Write]] = []
    for turn in conversation.turns:
        if turn.choice == "answer" and domain is not None:
            try:
                calls.append((turn.number, domain.read(turn.content or "")))
            except ToolError:
                continue
        elif (call := imported_call(turn)) is not None:
            calls.append((turn.number, call))
    return calls


def _agent_writes(conversation: Conversation, domain: Domain | None) -> list[AgentWrite]:
    by_number = {turn.number: turn for turn in conversation.turns}
    agent_writes = []
    for number, call in _calls(conversation, domain):
        turn = by_number[number]
        failed = turn.info.get("tool_error") or turn.observation.lstrip().startswith("Error")
        if call[0] in _writes(domain) and not failed:
            agent_writes.append(AgentWrite(number, call))
    return agent_writes


def _facts(
    findings: Findings,
    messages: Sequence[Message],
    instruction: str,
    gold: Sequence[Write],
    outputs: Iterable[str],
    calls: Sequence[tuple[int, Write]],
) -> None:
    """Find what the user said and could not know. It did harm if a later call used it."""
    answers = {normalised(leaf) for _, arguments in gold for leaf in leaves(arguments)}
    answers |= {normalised(text) for text in outputs}
    for message, identifier, could_know in said_identifiers(messages, instruction):
        findings.identifiers += 1
        if could_know:
            continue
        normalised_id = normalised(identifier)
        used = any(
            turn > message.turn and any(normalised_id in normalised(leaf) for leaf in leaves(arguments))
            for turn, (_, arguments) in calls
        )
        if normalised_id in answers:
            findings.add("leaked", message.turn, identifier)
        findings.add("ungrounded", message.turn, identifier, harmful=used and normalised_id not in answers)


def _tools(findings: Findings, messages: Sequence[Message], instruction: str, names: set[str]) -> None:
    agent_words = ""
    for message in messages:
        if message.speaker == "agent":
            agent_words += message.text
            continue
        for name in sorted(names):
            if "_" in name and name in message.text and name not in agent_words and name not in instruction:
                findings.add("leaked", message.turn, name)
        coached = _COACHED.search(message.text)
        if coached and coached[0].lower() not in instruction.lower():
            findings.add("coached", message.turn, coached[0])


def _stops(findings: Findings, conversation: Conversation) -> bool:
    """Find a stop at the wrong time, or leave taken twice without a stop. Return whether the user stopped early."""
    if conversation.stopped:
        last = conversation.turns[-1]
        early = not may_stop(last.content or "")
        if early:
            findings.add("stopped early", last.number, (last.content or "")[-200:])
        return early
    ends = [turn for turn in conversation.turns if turn.choice in TALK][-2:]
    leaves_taken = [_FAREWELL.search(words_of(turn.observation)) and not asks(turn.content or "") for turn in ends]
    if len(ends) == 2 and all(leaves_taken) and conversation.ending in ("horizon", "length", "ended"):
        findings.add("never stopped", ends[-1].number, words_of(ends[-1].observation))
    return False


def _questions(messages: Sequence[Message], instruction: str) -> tuple[int, list[tuple[int, str, bool]]]:
    """Return how often a told fact was asked for again, and the unanswered questions.

    A question for several facts is answered by one of them, since agents offer alternatives. An unanswered one has its turn, the
    fact, and whether the user told it later.
    """
    again, unanswered = 0, []
    told_facts: set[str] = set()
    pairs = zip(messages, [*messages[1:], None], strict=True)
    for message, reply in pairs:
        if message.speaker == "user":
            told_facts |= {name for name, _, form in HELD if _matches(form, instruction) & _matches(form, message.text)}
            continue
        asked_facts = [
            (name, _matches(form, instruction))
            for name, question, form in HELD
            if question.search(message.text) and ("?" in message.text or "provide" in message.text.lower())
        ]
        asked_facts = [
            (name, values) for name, values in asked_facts if values and not _contains_any(values, message.text)
        ]
        again += sum(name in told_facts for name, _ in asked_facts)
        asked_facts = [(name, values) for name, values in asked_facts if name not in told_facts]
        if not asked_facts or _FORGOTTEN.search(instruction):
            continue
        text = reply.text if reply is not None and reply.speaker == "user" else ""
        if not any(_contains_any(values, text) for _, values in asked_facts):
            later = [m.text for m in messages if m.speaker == "user" and m.turn > message.turn]
            ever = any(_contains_any(values, text) for _, values in asked_facts for text in later)
            unanswered.append((message.turn, asked_facts[0][0], ever))
    return again, unanswered


def _matches(form: re.Pattern[str], text: str) -> set[str]:
    return {match[0] for match in form.finditer(text)}


def _contains_any(values: Iterable[str], text: str) -> bool:
    return any(normalised(value) in normalised(text) for value in values)


def _compare(
    findings: Findings,
    conversation: Conversation,
    instruction: str,
    gold: Sequence[Write],
    agent_writes: Sequence[AgentWrite],
) -> tuple[list[Write], int]:
    """Blame wrong and extra writes. Return the gold writes without any counterpart, and the number made exactly."""
    still_open = list(gold)
    wrong = []
    for agent_write in agent_writes:
        match = next((write for write in still_open if exact(write) == exact(agent_write.write)), None)
        if match is None:
            wrong.append(agent_write)
        else:
            still_open.remove(match)
    settled = len(gold) - len(still_open)
    for agent_write in wrong:
        gold_write = _matching_gold(agent_write.write, still_open)
        if gold_write is not None:
            still_open.remove(gold_write)
        misled = _misled(findings, agent_write)
        findings.blame(
            "extra" if gold_write is None else "wrong argument",
            agent_write.turn,
            exact(agent_write.write),
            harmful=not misled,
        )
        if (reason := _agreed(conversation, agent_write, gold_write)) and _against(
            instruction, agent_write.write, gold_write
        ):
            findings.add(
                "gave in", agent_write.turn, f"{reason} -> {exact(agent_write.write)}", harmful=not conversation.solved
            )
    return still_open, settled


def _matching_gold(write: Write, still_open: Sequence[Write]) -> Write | None:
    """Return the open gold write of the same tool and object, or None."""
    name, arguments = write
    same = [gold for gold in still_open if gold[0] == name]
    key = next((key for key in OBJECTS if key in arguments), None)
    if key is not None:
        same = [gold for gold in same if gold[1].get(key) == arguments[key]]
    return max(same, key=lambda gold: sum(gold[1].get(k) == v for k, v in arguments.items()), default=None)


def _misled(findings: Findings, agent_write: AgentWrite) -> bool:
    """Return whether a write uses a fact that the user made up."""
    used = {normalised(leaf) for leaf in leaves(agent_write.write[1])}
    return any(
        finding.turn < agent_write.turn and any(normalised(finding.detail) in leaf for leaf in used)
        for finding in findings.user.get("ungrounded", [])
        if finding.harmful
    )


def _agreed(conversation: Conversation, agent_write: AgentWrite, gold_write: Write | None) -> str:
    """Return the user's words if the last ones before a wrong write agree to a proposal that states it, else ""."""
    before = [turn for turn in conversation.turns[: agent_write.turn - 1] if turn.choice in TALK]
    if not before:
        return ""
    proposal, reply = before[-1].content or "", words_of(before[-1].observation)
    if "?" not in proposal and "confirm" not in proposal.lower():
        return ""
    agreed = _YES.search(reply) and not _OBJECTS_TO.search(reply) and _proposes(proposal, agent_write.write, gold_write)
    return reply[:80] if agreed else ""


def _proposes(proposal: str, write: Write, gold_write: Write | None) -> bool:
    """Return whether a message states what is wrong with a write: the values that gold lacks, or the whole extra write."""
    name, arguments = write
    if gold_write is None and not _wants(name, proposal):
        return False
    right = () if gold_write is None else leaves(gold_write[1])
    wrong = [leaf for leaf in leaves(arguments) if leaf not in right]
    return all(_states(proposal, leaf) for leaf in wrong)


def _against(instruction: str, write: Write, gold_write: Write | None) -> bool:
    """Return whether the instruction speaks against a wrong write.

    Against another argument: it states gold's value and not the written one. Against an extra write: it asks for nothing of the
    kind.
    """
    if gold_write is None:
        return not _wants(write[0], instruction)
    for key, value in gold_write[1].items():
        right, wrong = set(leaves(value)), set(leaves(write[1].get(key)))
        stated = [leaf for leaf in right - wrong if _states(instruction, leaf)]
        if stated and wrong - right and not any(_states(instruction, leaf) for leaf in wrong - right):
            return True
    return False


def _states(instruction: str, leaf: str) -> bool:
    value_text = leaf.replace("_", " ").lower()
    return len(value_text) > 1 and bool(
        re.search(rf"(?<!\w){re.escape(value_text)}(?!\w)", instruction.replace("_", " ").lower())
    )


def _wants(tool: str, text: str) -> bool:
    pattern = next(pattern for name, pattern in _ASKED_FOR if re.search(name, tool))
    return bool(re.search(pattern, text, re.I))


def _untold(
    conversation: Conversation, instruction: str, gold: Sequence[Write], calls: Sequence[tuple[int, Write]]
) -> list[Write]:
    """Return the gold writes that the instruction asks for, that the user never mentioned and could have told.

    A user that stopped could tell them if the agent's last message left it the word, or if an earlier one did and it told nothing.
    """
    user_words = " ".join(message.text for message in conversation.messages() if message.speaker == "user")
    requested_writes = [write for write in gold if _wants(write[0], instruction)]
    untold = [write for write in requested_writes if not _wants(write[0], user_words)]
    left = _word_left(conversation, calls)
    could_tell = conversation.stopped and any(left) and (left[-1] or len(untold) == len(requested_writes))
    return untold if could_tell else []


def _word_left(conversation: Conversation, calls: Sequence[tuple[int, Write]]) -> list[bool]:
    """Return whether each message of the agent left the user the word.

    It does so by an invitation, or if it neither asks, announces nor refuses and no hand-over was called before.
    """
    handed_over = min((turn for turn, (name, _) in calls if name == TRANSFER), default=len(conversation.turns) + 1)
    messages = [(turn.number, turn.content or "") for turn in conversation.turns if turn.choice in TALK]
    return [
        number < handed_over
        and (bool(_INVITES.search(text)) or not (asks(text) or announces(text) or bool(_DECLINES.search(text))))
        for number, text in messages
    ]


def _missing_outputs(findings: Findings, conversation: Conversation, outputs: Iterable[str], early: bool) -> None:
    agent_words = [m.text.lower().replace(",", "") for m in conversation.messages() if m.speaker == "agent"]
    for text in outputs:
        if not any(text.lower().replace(",", "") in agent_text for agent_text in agent_words):
            findings.blame(
                "not told", conversation.turns[-1].number if conversation.turns else 0, text, harmful=not early
            )


def _claims(findings: Findings, messages: Sequence[Message], agent_writes: Sequence[AgentWrite]) -> None:
    for message in messages:
        if message.speaker != "agent" or REFUSES.search(message.text):
            continue
        for claim in _CLAIM.finditer(message.text):
            tools = _VERBS[claim[1].lower()]
            if not any(
                agent_write.turn <= message.turn and agent_write.write[0].startswith(tools)
                for agent_write in agent_writes
            ):
                findings.blame("claimed", message.turn, claim[0])
                break
