"""``userrl.compare``: a comparison of checkpoints or recipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from userrl.machine.notebook import Tabular

if TYPE_CHECKING:
    from userrl.comparison.gate.answer import GateAnswer
    from userrl.comparison.gate.policy import GatePolicy
    from userrl.comparison.labels import LabelComparison
    from userrl.comparison.report import ComparisonReport
    from userrl.reports.document import Document


@dataclass(frozen=True, slots=True)
class ComparedSides(Tabular):
    """A comparison: its report, and the document that shows it. gate: the answers to a policy, if one was given. labels: the
    comparison by a label set, if one was named.
    """

    report: ComparisonReport
    document: Document
    gate: GateAnswer | None = None
    labels: LabelComparison | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the whole report as JSON."""
        from userrl.comparison.document import comparison_sentences
        from userrl.comparison.report import as_json

        values = as_json(self.report, comparison_sentences(self.report))
        if self.labels is not None:
            values["by"] = self.labels.as_json()
        return values if self.gate is None else {**values, "gate": self.gate.as_json()}

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the mean scores with 95 % limits: one row per side, checkpoint (best, last) and table row."""
        return [
            {
                "side": score.side,
                "which": score.which,
                "row": score.row,
                "score": score.interval.estimate,
                "low": score.interval.low,
                "high": score.interval.high,
                "units": score.interval.units,
            }
            for score in self.report.comparison.scores
        ]

    def write(self, path: str) -> list[Path]:
        """Write the comparison as an HTML page or as Markdown, and return the paths."""
        return list(self.document.write(Path(path)))

    def __str__(self) -> str:
        return self.document.text()

    def _repr_markdown_(self) -> str:
        return self.document.markdown()


def compare(
    *sides: str, policy: str | Path | Mapping[str, Any] | GatePolicy | None = None, by: str | None = None
) -> ComparedSides:
    """Compare the second and later sides with the first.

    A side is a run (``latest``, ``RUN:SFT``), a group of runs (``recipe=naive-sum,seed=*``), a served model
    (``model=gpt-4o``) or ``published:MODEL``. Runs are compared over their tasks, recipes over their seeds. Published rows
    are shown and never subtracted. policy: the rules of a release gate, as a YAML file or a mapping; the result then has a
    ``gate`` with PASS, FAIL or INCONCLUSIVE. by: ``label:NAME`` also compares how often conversations have each label of a set,
    or ``label:NAME/SOURCE`` if several sources labelled. Raises ConfigError with one sentence.
    """
    from userrl.comparison.document import comparison_document
    from userrl.comparison.gate.answer import apply_gate, gate_section
    from userrl.comparison.gate.policy import read_policy
    from userrl.comparison.labels import compare_labels
    from userrl.comparison.report import comparison_report
    from userrl.machine.home import warehouse_dir
    from userrl.reports.document import Document
    from userrl.reports.sides import find_sides
    from warehouse import open_warehouse

    rules = None if policy is None else read_policy(policy)
    with open_warehouse(warehouse_dir()) as opened:
        ours, published = find_sides(opened, list(sides))
        report = comparison_report(opened, ours)
        gate = None if rules is None else apply_gate(opened, report, rules)
        labels = None if by is None else compare_labels(opened, ours, by)
    document = comparison_document(report, published)
    if labels is not None:
        document = Document(document.title, (*document.blocks, *labels.blocks()))
    if gate is not None:
        document = Document(document.title, (*document.blocks, *gate_section(gate)))
    return ComparedSides(report, document, gate, labels)
