"""Trials of changes: the job's own command, run alternately with and without a change.

    source       command, directory and environment of a recorded job, and reasons not to repeat it
    candidates   changes to try: those of fixes, or named by the user
    schedule     warm-up and measured steps
    processes    start of one trial, and its report
    sandbox      supervisor of one trial: discards its writes, ends its processes
    session      pairs of trials, and their result

Patches inside the job belong to `capture.trial`, formulas to `analysis`, text to `cli`.
"""

from __future__ import annotations

from stepscope.trials.candidates import Candidate, choose_candidates, parse_changes
from stepscope.trials.processes import find_real_directories
from stepscope.trials.schedule import MIN_PAIRS, Schedule, plan_schedule
from stepscope.trials.session import TrialSession
from stepscope.trials.source import JobSource

__all__ = [
    "MIN_PAIRS",
    "Candidate",
    "JobSource",
    "Schedule",
    "TrialSession",
    "choose_candidates",
    "find_real_directories",
    "parse_changes",
    "plan_schedule",
]
