"""``userrl.reproduce``: a claim of a paper in miniature, with its runs as child processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from userrl.machine.notebook import Printed, Tabular

if TYPE_CHECKING:
    from userrl.claims.report import ClaimReport


@dataclass(frozen=True, slots=True)
class ReproducedClaim(Printed, Tabular):
    """A claim with its arms and its verdict."""

    report: ClaimReport
    frame_types: ClassVar[Mapping[str, type] | None] = {"seed": int, "arm": str, "value": float}

    def as_json(self) -> dict[str, Any]:
        """Return the arms and the verdict as JSON."""
        return self.report.as_json()

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the claim's metric, one row per seed and arm."""
        return [
            {"seed": seed, "arm": arm, "value": value}
            for seed, arms in self.report.values.items()
            for arm, value in arms.items()
        ]

    def __str__(self) -> str:
        from userrl.claims.document import claim_document

        claim = self.report.claim
        return f"{claim.name} ({claim.kind}), hash {claim.hash}\n\n{claim_document(self.report).text()}"


def reproduce(
    claim: str,
    *,
    seeds: int = 8,
    first_seed: int | None = None,
    arm: str | None = None,
    tokens: int | None = None,
    parallel: int = 2,
) -> ReproducedClaim:
    """Run every arm of a claim over its seeds and return the table. Called again, it continues where it stopped.

    claim: a shipped name, a check of one (``NAME.half-rate``), or a YAML file. seeds: per arm; verdicts are given at 8, 16
    and 24. first_seed: the first of them, instead of the claim's first. arm: a YAML file with an additional arm.
    tokens: another budget per run. Results with arm or tokens are exploratory. Raises ConfigError with one sentence.
    """
    from curricula.validation import validated
    from userrl.claims.reproduction import reproduce_claim
    from userrl.machine.home import quiet_process
    from userrl.run.progress import log_line
    from userrl.run.request import ReproduceRequest
    from userrl.trials.processes import ProcessLauncher

    quiet_process()
    values = {
        "claim": claim,
        "seeds": seeds,
        "first_seed": first_seed,
        "arm": arm,
        "tokens": tokens,
        "parallel": parallel,
        "workers": "processes",
    }
    return ReproducedClaim(reproduce_claim(validated(ReproduceRequest, values, "reproduce"), ProcessLauncher, log_line))
