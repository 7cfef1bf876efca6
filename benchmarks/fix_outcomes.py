"""Outcomes of tried fixes, measured against predicted.

    python -m benchmarks.fix_outcomes RUN...

Adds the outcomes of `stepscope try` in these runs to benchmarks/results/fix_outcomes.json, and
writes their counts by kind of fix to src/stepscope/diagnosis/fix_outcomes.json, from which verdicts
take the order of fixes.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from stepscope.diagnosis import MIN_SAVING_RATIO, read_tried_changes
from stepscope.diagnosis.measured import OUTCOMES, FixOutcomes, OutcomeCounts
from stepscope.run import Run
from stepscope.schema import Change
from stepscope.store import open_run

RESULTS = Path(__file__).with_name("results") / "fix_outcomes.json"


class FixOutcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Outcome of one fix on one job."""

    job: str
    """Name of the job's run."""
    created_ns: int
    cause: str
    changes: list[Change]
    predicted_saving_ratio: float
    is_predicted_bound: bool = False
    """The prediction was "at most"."""
    saving_ratio: float
    interval: tuple[float, float]
    confidence_ratio: float
    cores_available: float | None
    versions: dict[str, str]

    @property
    def kind(self) -> str:
        """Kind of the fix."""
        return self.changes[0].name


def read_outcomes(location: str | Path) -> list[FixOutcome]:
    """Read the outcomes of a run for which a shorter step was predicted."""
    run = Run(open_run(location))
    return [
        FixOutcome(
            job=run.reader.info.run_id,
            created_ns=outcome.created_ns,
            cause=outcome.cause,
            changes=outcome.changes,
            predicted_saving_ratio=outcome.predicted_saving_ratio,
            is_predicted_bound=outcome.is_predicted_bound,
            saving_ratio=outcome.saving_ratio,
            interval=(outcome.min_saving_ratio, outcome.max_saving_ratio),
            confidence_ratio=outcome.confidence_ratio,
            cores_available=outcome.cores_available,
            versions=outcome.versions,
        )
        for outcome in read_tried_changes(run)
        if (outcome.predicted_saving_ratio or 0) >= MIN_SAVING_RATIO
    ]


def merge(earlier: Iterable[FixOutcome], new: Iterable[FixOutcome]) -> list[FixOutcome]:
    """Merge outcomes, each once, the oldest first."""
    outcomes = {(outcome.job, outcome.created_ns): outcome for outcome in (*earlier, *new)}
    return sorted(outcomes.values(), key=lambda outcome: (outcome.created_ns, outcome.job))


def count_outcomes(outcomes: Sequence[FixOutcome]) -> FixOutcomes:
    """Count outcomes by kind."""
    by_kind: dict[str, list[FixOutcome]] = defaultdict(list)
    for outcome in outcomes:
        by_kind[outcome.kind].append(outcome)
    return FixOutcomes(
        kinds={
            kind: OutcomeCounts(
                tried_count=len(group),
                right_count=sum(outcome.interval[0] > 0 for outcome in group),
                wrong_count=sum(outcome.interval[1] < 0 for outcome in group),
                median_ratio=_compute_median_ratio(group),
            )
            for kind, group in sorted(by_kind.items())
        }
    )


def _compute_median_ratio(outcomes: Sequence[FixOutcome]) -> float | None:
    ratios = [
        outcome.saving_ratio / outcome.predicted_saving_ratio
        for outcome in outcomes
        if not outcome.is_predicted_bound
    ]
    return statistics.median(ratios) if ratios else None


def main(locations: Sequence[str]) -> None:
    """Add the outcomes of runs and count all."""
    earlier = (
        msgspec.json.decode(RESULTS.read_bytes(), type=list[FixOutcome]) if RESULTS.exists() else []
    )
    outcomes = merge(earlier, [o for location in locations for o in read_outcomes(location)])
    for path, payload in ((RESULTS, outcomes), (OUTCOMES, count_outcomes(outcomes))):
        path.write_bytes(msgspec.json.format(msgspec.json.encode(payload), indent=2) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])
