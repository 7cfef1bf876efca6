"""A rule about steps that become slower while a job runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.rules import NotApplicable, Rule, RuleInputs
from stepscope.rules.parameters import Percentage
from stepscope.schema import Finding

MIN_STEPS = 40


@dataclass(frozen=True)
class StepsSlowDownParameters:
    """Definition of a slowdown."""

    threshold: Percentage = 10.0
    """The rule fires if the median step of the last quarter is longer by this percentage than that
    of the second quarter."""


class StepsSlowDown(Rule[StepsSlowDownParameters]):
    """Checks whether steps become slower during the job, as memory that fills up makes them."""

    parameters_type = StepsSlowDownParameters
    recommendation = "See `stepscope show RUN steps` for the phase that grows."
    evidence = ("steps",)

    def check(self, inputs: RuleInputs) -> Finding | None:
        """Compare the quarters of each rank."""
        changes = {}
        for rank in inputs.steps:
            times = rank.duration_ns
            if len(times) >= MIN_STEPS:
                # The first quarter warms up.
                quarters = np.array_split(times, 4)
                changes[rank.rank] = np.median(quarters[3]) / np.median(quarters[1]) - 1
        if not changes:
            raise NotApplicable(f"no rank has {MIN_STEPS} steps")
        slower = {
            r: change for r, change in changes.items() if change > self.parameters.threshold / 100
        }
        return self.finding(
            triggered=len(slower) > 0,
            violations=len(slower),
            datapoints=len(changes),
            ranks=slower,
            sentences=[
                f"{rank}: steps became {change:.0%} slower" for rank, change in slower.items()
            ],
        )
