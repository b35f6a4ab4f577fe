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
from analysis.users.grounding import identifiers, leaves, new_claim, normalised, said_identifiers, unknown_facts
from userrl_core.errors import TaskError
from userrl_core.gyms.tau import airline, retail
from userrl_core.gyms.tau.blame import REFUSES
from userrl_core.gyms.tau.stopping import CLOSING, asks
from userrl_core.gyms.tau.tasks import load_domain
from userrl_core.gyms.tau.tools import TRANSFER, Domain, ToolError
from userrl_core.gyms.tau.verifier import Write, exact, replay
from userrl_core.judging.acts import Act, Utterance
from userrl_core.records import Turn

Acts = Mapping[Utterance, frozenset[Act]]
"""The acts of a conversation's utterances."""

OBJECTS = ("reservation_id", "order_id", "booking_id", "item", "user_id", "customer_id")
"""Arguments that name the object of a write, the most specific first."""

NOT_DECIDED = (*OBJECTS, "payment_id", "payment_methods", "payment_method_id", "nonfree_baggages", "amount")
"""Arguments of a write that are not the user's choice: its object, and what the agent computes or the instruction states."""
RECENT = 3
"""Messages of the agent before a write in which a choice of the user was stated."""
IN_VAIN = 3
"""Questions without an answer after which the agent could do no more."""

HELD: tuple[tuple[str, re.Pattern[str], re.Pattern[str]], ...] = (
    ("user id", re.compile(r"\b(user|customer)[ -]?id\b", re.I), re.compile(r"\b[a-z]+_[a-z]+_\d+\b")),
    ("e-mail", re.compile(r"\be-?mails?\b|\bmail\b", re.I), re.compile(r"[\w.+-]+@[\w-]+\.\w+")),
    ("postcode", re.compile(r"\b(zip|post)[ -]?code\b|\bzip\b", re.I), re.compile(r"(?<![#\w])\d{5}\b")),
    ("order number", re.compile(r"\border[ -]?(number|id)s?\b", re.I), re.compile(r"#?W\d{4,}")),
    (
        "booking number",
        re.compile(r"\b(booking|reservation|confirmation)[ -]?(number|id|code)s?\b", re.I),
        re.compile(r"\b(?=\w*\d)(?=\w*[A-Z])[A-Z0-9]{4,6}\b"),
    ),
)
"""Facts that an agent asks for: name, words of the question, form of the fact."""

_INVITES = re.compile(
    r"\b(any|some)thing else\b|\b(how|what) (else )?(can|may|could) (i|we) (help|assist|do)\b|\bwhat (i|we) can do\b|"
    r"\b(how|what) would you like\b",
    re.I,
)
_ASKS_NAME = re.compile(r"\bname\b.*\?", re.I)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_FORGOTTEN = re.compile(r"\b(not|n't) (remember|recall|know)\b", re.I)
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


SHORT = 3
"""Words of a message of the agent that only names a fact, and so asks for it."""


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


def utterances(conversation: Conversation) -> list[Utterance]:
    """Return what a reader of acts must read before `audited`. Facts alone decide about the rest."""
    messages = list(conversation.messages())
    spoken = _spoken(messages)
    instruction = str(conversation.task.payload["instruction"])
    fact_questions = [question for _, question, form in HELD if form.search(instruction)]
    last_turn = conversation.turns[-1].number if conversation.turns else 0
    needed: list[Utterance] = []
    for message, utterance in zip(messages, spoken, strict=True):
        asking = _asking(message.text) if message.speaker == "agent" else []
        names_fact = any(question.search(message.text) for question in fact_questions)
        if message.speaker == "user" or message.turn == last_turn or not needed or names_fact:
            needed.append(utterance)
        needed += [Utterance("agent", utterance.before, sentence) for sentence in asking if fact_questions]
    if conversation.stopped and _unmentioned(conversation)[0]:
        needed += [utterance for utterance in spoken if utterance.speaker == "agent"]
    return needed


def audited(conversation: Conversation, acts: Acts) -> Findings:
    """Return the errors of a conversation about a task with an instruction and gold actions.

    acts: of all its `utterances`.
    """
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
    _facts_in_words(findings, messages, instruction, acts)
    _tools(findings, messages, instruction, {name for name, _ in gold}, acts)
    early = _stops(findings, conversation, acts)
    asked_again, unanswered = _questions(messages, instruction, acts)
    for turn, name, ever in unanswered:
        findings.add("unanswered", turn, f"{name} was asked for", harmful=not ever and not agent_writes)
    in_vain = sum(finding.harmful for finding in findings.user["unanswered"]) >= IN_VAIN
    still_open, settled = _compare(findings, conversation, instruction, gold, agent_writes, acts)
    never_mentioned = _untold(conversation, calls, acts)
    untold = [write for write in still_open if write in never_mentioned]
    for write in untold:
        findings.add("untold", conversation.turns[-1].number, exact(write), harmful=not conversation.solved)
    for write in still_open:
        findings.blame(
            "missing",
            conversation.turns[-1].number if conversation.turns else 0,
            exact(write),
            harmful=not (early or in_vain) and write not in untold,
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


def _facts_in_words(findings: Findings, messages: Sequence[Message], instruction: str, acts: Acts) -> None:
    """Find numbers, dates, names and claims that nobody gave the user. They explain no failure: no call can be traced to them."""
    known_text = instruction
    turns_so_far = {finding.turn for finding in findings.user["ungrounded"]}
    for message, utterance in zip(messages, _spoken(messages), strict=True):
        if message.speaker == "agent":
            known_text += f" {message.text}"
            continue
        message_acts = _read(acts, utterance)
        facts = unknown_facts(message.text, known_text)
        if not facts and "states" in message_acts and message_acts.isdisjoint(("coaches", "leaves", "hesitates")):
            facts = [claim] if (claim := new_claim(message.text, known_text)) else []
        if facts and message.turn not in turns_so_far:
            findings.add("ungrounded", message.turn, ", ".join(facts), harmful=False)


def _tools(findings: Findings, messages: Sequence[Message], instruction: str, names: set[str], acts: Acts) -> None:
    agent_words = ""
    for message, utterance in zip(messages, _spoken(messages), strict=True):
        if message.speaker == "agent":
            agent_words += message.text
            continue
        for name in sorted(names):
            if "_" in name and name in message.text and name not in agent_words and name not in instruction:
                findings.add("leaked", message.turn, name)
        if "coaches" in _read(acts, utterance):
            findings.add("coached", message.turn, message.text)


def _stops(findings: Findings, conversation: Conversation, acts: Acts) -> bool:
    """Find a stop at the wrong time, or leave taken twice without a stop. Return whether the user stopped early."""
    if conversation.stopped:
        last = conversation.turns[-1]
        early = _waits(last.content or "", _before(conversation, last), acts)
        if early:
            findings.add("stopped early", last.number, (last.content or "")[-200:])
        return early
    ends = [turn for turn in conversation.turns if turn.choice in TALK][-2:]
    leaves_taken = [
        _leaves(words_of(turn.observation), turn.content or "", acts) and not asks(turn.content or "") for turn in ends
    ]
    if len(ends) == 2 and all(leaves_taken) and conversation.ending in ("horizon", "length", "ended"):
        findings.add("never stopped", ends[-1].number, words_of(ends[-1].observation))
    return False


def _waits(message: str, before: str, acts: Acts) -> bool:
    """Return whether a message of the agent wants an answer or announces what comes next, and does not end the matter."""
    message_acts = _read(acts, Utterance("agent", before, message))
    ends = bool(CLOSING.search(message)) or not message_acts.isdisjoint(("refuses", "hands_over", "leaves"))
    return not ends and not message_acts.isdisjoint(("asks", "announces"))


def _leaves(reply: str, before: str, acts: Acts) -> bool:
    reply_acts = _read(acts, Utterance("user", before, reply))
    return "leaves" in reply_acts and "?" not in reply


def _read(acts: Acts, utterance: Utterance) -> frozenset[Act]:
    """Return the acts of an utterance; none of one that `utterances` left out, because facts alone decide about it."""
    return acts.get(utterance, frozenset())


def _before(conversation: Conversation, turn: Turn) -> str:
    """Return the user's words before a message of the agent."""
    earlier = [m for m in conversation.messages() if m.turn < turn.number]
    return earlier[-1].text if earlier and earlier[-1].speaker == "user" else ""


def _spoken(messages: Sequence[Message]) -> list[Utterance]:
    """Return the messages as utterances."""
    befores = ["", *(message.text for message in messages)]
    speakers = ["", *(message.speaker for message in messages)]
    return [
        Utterance(
            "user" if message.speaker == "user" else "agent", before if speaker != message.speaker else "", message.text
        )
        for message, before, speaker in zip(messages, befores, speakers, strict=False)
    ]


def _asking(text: str) -> list[str]:
    """Return the sentences of the agent that name a fact that the user may hold."""
    sentences = [sentence.strip() for sentence in _SENTENCE.split(text)]
    return [sentence for sentence in sentences if any(question.search(sentence) for _, question, _ in HELD)]


def _questions(messages: Sequence[Message], instruction: str, acts: Acts) -> tuple[int, list[tuple[int, str, bool]]]:
    """Return how often a told fact was asked for again, and the unanswered questions.

    A question for several facts is answered by one of them, since agents offer alternatives. An unanswered one has its turn, the
    fact, and whether the user told it later.
    """
    again, unanswered = 0, []
    told_facts: set[str] = set()
    triples = zip(messages, [*messages[1:], None], _spoken(messages), strict=True)
    for message, reply, utterance in triples:
        if message.speaker == "user":
            told_facts |= {name for name, _, form in HELD if _matches(form, instruction) & _matches(form, message.text)}
            continue
        asking = [
            sentence
            for sentence in _asking(message.text)
            if "asks" in _read(acts, utterance) | _read(acts, Utterance("agent", utterance.before, sentence))
            or len(message.text.split()) <= SHORT
        ]
        asked_facts = [
            (name, _matches(form, instruction))
            for name, question, form in HELD
            if any(question.search(sentence) for sentence in asking)
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
    acts: Acts,
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
        against = _against(instruction, agent_write.write, gold_write)
        if reason := _agreed(conversation, agent_write, gold_write, against, acts):
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


def _agreed(
    conversation: Conversation, agent_write: AgentWrite, gold_write: Write | None, against: bool, acts: Acts
) -> str:
    """Return the user's words if the last ones before a wrong write agree to it, else "".

    against: the instruction speaks against the write, and the proposal must state what is wrong with it. Otherwise it must state
    another choice than gold's of what the user alone decides.
    """
    before = [turn for turn in conversation.turns[: agent_write.turn - 1] if turn.choice in TALK]
    if not before:
        return ""
    proposal, reply = before[-1].content or "", words_of(before[-1].observation)
    reply_acts = _read(acts, Utterance("user", proposal, reply))
    wrong = leaves(agent_write.write[1])
    right = [leaf for leaf in leaves(gold_write[1]) if leaf not in wrong] if gold_write is not None else []
    corrects = any(_states(reply, leaf) for leaf in right)
    if "refuses" in reply_acts or corrects:
        return ""
    recent = "\n".join(f"{turn.content}\n{words_of(turn.observation)}" for turn in before[-RECENT:])
    agreed = (
        "confirms" in reply_acts and _proposes(proposal, agent_write.write, gold_write)
        if against
        else _chosen(recent, agent_write.write, gold_write)
    )
    return reply[:80] if agreed else ""


def _chosen(text: str, write: Write, gold_write: Write | None) -> bool:
    """Return whether words state a value that the user decides, where the write has another one than gold."""
    if gold_write is None:
        return False
    return any(
        _states(text, leaf) or (leaf.isdigit() and bool(re.search(rf"\b{leaf}\b", text)))
        for key, value in write[1].items()
        if key not in NOT_DECIDED
        for leaf in set(leaves(value)) - set(leaves(gold_write[1].get(key)))
    )


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
    value_text, text = (re.sub(r"[_-]", " ", raw_text).lower() for raw_text in (leaf, instruction))
    return len(value_text) > 1 and bool(re.search(rf"(?<!\w){re.escape(value_text)}(?!\w)", text))


def _wants(tool: str, text: str) -> bool:
    pattern = next(pattern for name, pattern in _ASKED_FOR if re.search(name, tool))
    return bool(re.search(pattern, text, re.I))


def _untold(conversation: Conversation, calls: Sequence[tuple[int, Write]], acts: Acts) -> list[Write]:
    """Return the gold writes that the instruction asks for, that the user never mentioned and could have told.

    A user that stopped could tell them if the agent's last message left it the word, or if an earlier one did and it told nothing.
    """
    untold, requested = _unmentioned(conversation)
    if not conversation.stopped or not untold:
        return []
    left = _word_left(conversation, calls, acts)
    return untold if any(left) and (left[-1] or len(untold) == requested) else []


def _unmentioned(conversation: Conversation) -> tuple[list[Write], int]:
    """Return the gold writes that the instruction asks for and the user never mentioned, and the number of those it asks for.

    It mentions one by words for it, or by a value of it.
    """
    payload = conversation.task.payload
    user_words = " ".join(message.text for message in conversation.messages() if message.speaker == "user")
    requested = [write for write in _gold(payload, _domain(payload)) if _wants(write[0], str(payload["instruction"]))]
    untold = [write for write in requested if not (_wants(write[0], user_words) or _values_said(write, user_words))]
    return untold, len(requested)


def _values_said(write: Write, user_words: str) -> bool:
    """Return whether the user said a value of a write other than its object's number."""
    values = [leaf for key, value in write[1].items() if key not in OBJECTS for leaf in leaves(value)]
    return any(_states(user_words, leaf) for leaf in values)


def _word_left(conversation: Conversation, calls: Sequence[tuple[int, Write]], acts: Acts) -> list[bool]:
    """Return whether each message of the agent left the user the word.

    It does so by an invitation, or if it neither asks, announces nor refuses and no hand-over was called before.
    """
    handed_over = min((turn for turn, (name, _) in calls if name == TRANSFER), default=len(conversation.turns) + 1)
    messages = list(conversation.messages())
    return [
        message.turn < handed_over
        and (
            _opens(message, utterance, acts)
            or bool(_INVITES.search(message.text))
            or _read(acts, utterance).isdisjoint(("asks", "announces", "refuses", "hands_over"))
        )
        for message, utterance in zip(messages, _spoken(messages), strict=True)
        if message.speaker == "agent"
    ]


def _opens(message: Message, utterance: Utterance, acts: Acts) -> bool:
    """Return whether a message is the agent's first, before the user said anything, and asks for no fact."""
    greets = message.turn == 1 and not utterance.before
    return (
        greets
        and _read(acts, utterance).isdisjoint(("refuses", "hands_over"))
        and not (_asking(message.text) or _ASKS_NAME.search(message.text))
    )


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
