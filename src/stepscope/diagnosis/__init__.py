"""From numbers to a verdict: what the job waits for, why, and what to do.

Belongs here: the signals (tables from the store, handed to analyses), the thresholds that
accuse, causes, confidence, advice. Does not belong here: formulas (`analysis`), layout of text
or screens (`views`, `cli`).

    signals     loads a run and runs the analyses, each at most once
    shares      how much of the step each suspect owns
    accusation  which of them is accused, and how surely
    causes      which cause within a suspect, by data_causes, overhead_causes and rank_causes
    what_if     what the step would be without a cause
    advice      what to do about each cause
    build_verdict puts them together into a `Verdict`
"""

from __future__ import annotations

from stepscope.diagnosis.build_verdict import diagnose
from stepscope.diagnosis.overhead_causes import overhead_causes
from stepscope.diagnosis.shares import evaluation_ratio
from stepscope.diagnosis.verdict import (
    LOOP_SHARE,
    STEP_SHARE,
    SUSPECT_NAMES,
    SUSPECTS,
    Evidence,
    Fix,
    Prediction,
    RuledOut,
    Stage,
    Suspect,
    Verdict,
)

__all__ = [
    "LOOP_SHARE",
    "STEP_SHARE",
    "SUSPECTS",
    "SUSPECT_NAMES",
    "Evidence",
    "Fix",
    "Prediction",
    "RuledOut",
    "Stage",
    "Suspect",
    "Verdict",
    "diagnose",
    "evaluation_ratio",
    "overhead_causes",
]
