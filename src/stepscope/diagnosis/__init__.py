"""Diagnosis of a run: its bottleneck, the cause, the confidence and the recommended fixes.

    shares/           share of the step of each suspect, model of the input pipeline
    causes/           suspects above their thresholds, and the cause within each
    fixes/            fixes of causes, and the predicted step without them
    traces/           the same for runs that hold traces only
    build_verdict     all of these together, as a `Verdict`
    verdict           `Verdict`, its parts, and what a notebook shows
    sentences         headline of a verdict, and the basis of its shares
    measured          measured reliability of causes and fixes, effects of fixes that were tried
    records           records that were lost, and settings that slow a job down
    stuck             where a job is stuck; `stuck_account` joins the accounts of its nodes
    stage_stragglers  jobs with pipeline stages, of their operations
    death             what ended a job; `death_causes` finds causes in exceptions
    attached          jobs that were recorded from outside

Formulas belong to `analysis`, loading a run to `run`, text and screens to `views` and `cli`.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
