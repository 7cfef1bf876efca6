"""First sentence of a verdict."""

from __future__ import annotations

from stepscope.diagnosis.attribution import Attribution
from stepscope.diagnosis.cause import CauseFinding
from stepscope.diagnosis.verdict import SUSPECT_NAMES, UNKNOWN, name_cause
from stepscope.quantities import percent

BUSY_RATIO = 0.85
"""Share of computation from which the rest saves little, whatever it is."""


def write_headline(attribution: Attribution, finding: CauseFinding) -> str:
    """Write the first sentence of a verdict."""
    share = percent(attribution.share)
    if attribution.suspect == "healthy":
        rest = (
            "nothing else would save much"
            if attribution.share >= BUSY_RATIO
            else "no other cause is large enough to accuse"
        )
        return f"No bottleneck found: {share} of step time is model compute; {rest}."
    if attribution.cause == "small_batch":
        return (
            f"Bottleneck: {SUSPECT_NAMES[attribution.suspect]}; {share} of step time does not grow "
            f"with the batch. Cause: {name_cause(finding.cause)}."
        )
    unit = "step and evaluation time" if finding.cause == "evaluation" else "step time"
    suspect = f"Bottleneck: {SUSPECT_NAMES[attribution.suspect]}, {share} of {unit}."
    if finding.cause == UNKNOWN:
        return f"{suspect} Cause: not found. {finding.missing}"
    return f"{suspect} Cause: {name_cause(finding.cause)}."
