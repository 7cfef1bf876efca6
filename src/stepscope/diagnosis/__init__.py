"""Diagnosis of a run: its bottleneck, the cause, the confidence and the recommended fixes.

    rank_waiting     waiting of ranks for the slowest of them
    cpu_contention   time without a core, and the processes that had it
    shares           share of the step of each suspect
    debug_switches   debug switches that were on, and their cost
    batch_size       saving per sample with twice the batch
    attribution      suspects above their thresholds, and the stability of the largest
    share_basis      parts of the suspect's share in words
    causes           cause within a suspect, by data_causes, overhead_causes and rank_causes
    stalls           evidence of checkpoints, compilations and garbage collections
    cpu_budget       cores shared by intra-op threads and workers
    pipeline_model   model of the input pipeline
    what_if          predicted step without a cause
    advice           fixes of each cause
    fix_changes      changes by which a fix can be tried
    fix_reliability  kinds of fix that were often wrong
    tried_changes    measured effects of fixes that were tried
    targets          what to expect after a fix of the data pipeline
    attached         jobs that were recorded from outside
    build_verdict    all of these together, as a `Verdict`
    html_parts       parts of what a notebook shows

Formulas belong to `analysis`, loading a run to `run`, text and screens to `views` and `cli`.
"""

from __future__ import annotations

from stepscope.diagnosis.build_verdict import diagnose
from stepscope.diagnosis.html_parts import render_dim
from stepscope.diagnosis.shares import compute_evaluation_ratio
from stepscope.diagnosis.targets import MAX_DATA_RATIO, MIN_GPU_RATIO, TARGET_RULES
from stepscope.diagnosis.tried_changes import (
    TRIES,
    describe_outcome,
    describe_prediction,
    read_tried_changes,
)
from stepscope.diagnosis.verdict import (
    LOOP_SHARE,
    MIN_SAVING_RATIO,
    STEP_SHARE,
    SUSPECT_NAMES,
    SUSPECTS,
    ContributingCause,
    Evidence,
    Fix,
    Prediction,
    RuledOut,
    Stage,
    Suspect,
    Target,
    TargetName,
    TriedFix,
    Verdict,
    name_cause,
)

__all__ = [
    "LOOP_SHARE",
    "MAX_DATA_RATIO",
    "MIN_GPU_RATIO",
    "MIN_SAVING_RATIO",
    "STEP_SHARE",
    "SUSPECTS",
    "SUSPECT_NAMES",
    "TARGET_RULES",
    "TRIES",
    "ContributingCause",
    "Evidence",
    "Fix",
    "Prediction",
    "RuledOut",
    "Stage",
    "Suspect",
    "Target",
    "TargetName",
    "TriedFix",
    "Verdict",
    "compute_evaluation_ratio",
    "describe_outcome",
    "describe_prediction",
    "diagnose",
    "name_cause",
    "read_tried_changes",
    "render_dim",
]
