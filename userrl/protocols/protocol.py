"""``userrl protocol``: what an evaluation was played with, and what differs from another evaluation, a suite or a paper's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from curricula.suites import load_suite, suite_named, suite_names
from userrl.machine.warehouse import warehouse as open_here
from userrl.protocols.suite import published_tables, suite_fingerprints
from userrl.reports.document import Block, Document, Heading, TableBlock, Text
from userrl.run.fingerprint import Difference, Row, differences, settings
from userrl.run.suites import gyms_of
from userrl_core.errors import ConfigError
from userrl_core.suggest import nearest
from warehouse import Warehouse
from warehouse.files.runs import find_run

OTHER_NAMES = {"tau-bench": "tau", "tau2-airline": "tau", "tau2-retail": "tau"}
"""Our gym of an imported one."""
LONGEST = 60
"""Most characters of a value in a table."""


@dataclass(frozen=True, slots=True)
class ProtocolReport:
    """The protocols of a run's evaluation by gym, and their differences from another. against: its name, "" without one."""

    run: str
    policy: str
    rows: Mapping[str, Row]
    against: str
    differences: Mapping[str, tuple[Difference, ...]]
    missing: tuple[str, ...]
    """Gyms that the other does not have."""

    @property
    def equal(self) -> bool:
        """Return whether every setting is known on both sides and equal, so that scores may be subtracted."""
        return bool(self.against) and not self.missing and not any(self.differences.values())

    def as_json(self) -> dict[str, Any]:
        """Return everything for programs."""
        by_gym = {gym: [asdict(item) for item in items] for gym, items in self.differences.items()}
        return {**asdict(self), "differences": by_gym, "equal": self.equal}

    @property
    def document(self) -> Document:
        """The page of the report."""
        return Document(f"Protocol of {self.run}, {self.policy}", tuple(self._blocks()))

    def __str__(self) -> str:
        return self.document.text()

    def _blocks(self) -> list[Block]:
        if not self.against:
            return [block for gym, row in self.rows.items() for block in _values(gym, row)]
        agreeing = [gym for gym, items in self.differences.items() if not items]
        but = f", except at {', '.join(agreeing)}" if agreeing else ""
        verdict = (
            f"Every setting is known and equal to that of {self.against}: scores may be subtracted."
            if self.equal
            else f"Scores may not be subtracted from those of {self.against}{but}."
        )
        blocks: list[Block] = [Text(verdict, strong=True)]
        for gym, items in self.differences.items():
            if items:
                blocks += _differing(gym, items, self.against)
            else:
                blocks.append(Text(f"{gym}: no difference."))
        if self.missing:
            blocks.append(Text(f"{self.against} has no protocol of {', '.join(self.missing)}."))
        return blocks


def protocol(run: str = "latest", against: str | None = None) -> ProtocolReport:
    """Return the protocol of a run's evaluation. against: a run, a suite or a paper's table, whose differences are listed.

    RUN:POLICY names a policy of the evaluation. Raises ConfigError for names that mean nothing.
    """
    with open_here() as warehouse:
        run_id, policy, rows = _of_run(warehouse, run)
        gyms = tuple(OTHER_NAMES.get(gym, gym) for gym in rows)
        others = {} if against is None else _of(warehouse, against, gyms)
        others = {OTHER_NAMES.get(gym, gym): row for gym, row in others.items()}
        counterparts = {gym: others.get(OTHER_NAMES.get(gym, gym)) for gym in rows}
    return ProtocolReport(
        run_id,
        policy,
        rows,
        against or "",
        {gym: differences(rows[gym], row) for gym, row in counterparts.items() if row is not None},
        tuple(gym for gym, row in counterparts.items() if against is not None and row is None),
    )


def _of_run(warehouse: Warehouse, text: str) -> tuple[str, str, dict[str, Row]]:
    name, _, policy = text.partition(":")
    run_id = find_run(warehouse.root, name)["run_id"]
    played = warehouse.rows("FROM evaluation_protocols(run := $run)", run=run_id)
    policies = list(dict.fromkeys(row["policy"] for row in played))
    if not policies:
        raise ConfigError("compare.no_evaluation", f"Run {run_id} has no evaluation, so it has no protocol.")
    chosen = policy or ("RL" if "RL" in policies else policies[0])
    if chosen not in policies:
        raise ConfigError(
            "compare.bad_sides", f"Run {run_id} evaluated {', '.join(policies)}{nearest(chosen, policies)}."
        )
    return run_id, chosen, {row["gym"]: row for row in played if row["policy"] == chosen}


def _of(warehouse: Warehouse, text: str, gyms: Sequence[str]) -> dict[str, Row]:
    """Return the protocols of a paper's table, a suite or a run, by gym."""
    tables = published_tables()
    matching = [name for name in tables if name.lower().startswith(text.lower())]
    rows = [(name, row) for name in matching for row in tables[name]]
    if twice := [name for name, row in rows if [other["gym"] for _, other in rows].count(row["gym"]) > 1]:
        raise ConfigError(
            "argument.malformed",
            f"'{text}' is the beginning of several tables about one gym. Name one: {'; '.join(dict.fromkeys(twice))}.",
        )
    if rows:
        return {row["gym"] or "": row for _, row in rows}
    if suite_named(text):
        suite = load_suite(text)
        played = [gym for gym in gyms_of(suite) if gym in gyms]
        return {row["gym"] or "": row for row in suite_fingerprints(suite, played)} if played else {}
    try:
        return _of_run(warehouse, text)[2]
    except ConfigError as error:
        if error.code != "run.no_such_run":
            raise
        names = [*tables, *suite_names()]
        raise ConfigError(
            error.code,
            f"'{text}' is no run, suite or table of a paper{nearest(text, names)}. Tables: {', '.join(tables)}. "
            f"Suites: {', '.join(suite_names())}.",
        ) from None


def _values(gym: str, row: Row) -> list[Block]:
    table = tuple((setting.replace("_", " "), _short(row.get(setting))) for setting in settings())
    return [Heading(f"{gym}  {row.get('protocol_hash') or 'not recorded'}"), TableBlock(("setting", "value"), table)]


def _differing(gym: str, items: Sequence[Difference], against: str) -> list[Block]:
    table = tuple(
        (item.setting.replace("_", " "), _short(item.ours), _short(item.theirs), item.matters) for item in items
    )
    return [Heading(gym), TableBlock(("setting", "here", against, "why it matters"), table)]


def _short(value: str | None) -> str:
    text = "not known" if value is None else value
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
