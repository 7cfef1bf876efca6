"""Diagnosis of a run: its bottleneck, the cause, the confidence and the recommended fixes.

    rank_waiting     waiting of ranks for the slowest of them
    late_ranks       ranks that make the others wait, and what they do meanwhile
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
    stage_stragglers jobs with pipeline stages, of their operations
    attached         jobs that were recorded from outside
    build_verdict    all of these together, as a `Verdict`
    html_parts       parts of what a notebook shows

Formulas belong to `analysis`, loading a run to `run`, text and screens to `views` and `cli`.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
