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
    diagnose    puts them together into a `Verdict`
"""

from __future__ import annotations

from stepscope.diagnosis.diagnose import diagnose
from stepscope.diagnosis.signals import Rank, Signals
from stepscope.diagnosis.verdict import Evidence, Fix, Prediction, RuledOut, Stage, Suspect, Verdict

__all__ = [
    "Evidence",
    "Fix",
    "Prediction",
    "Rank",
    "RuledOut",
    "Signals",
    "Stage",
    "Suspect",
    "Verdict",
    "diagnose",
]
