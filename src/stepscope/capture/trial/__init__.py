"""Trial of a change in an unmodified job: the job runs for some steps, is measured, and ends.

    measurement  plan of one trial, passed in the environment; time and losses of the steps
    changes      changes that can be made without editing the script: torch, environment
    loaders      changes of DataLoaders, samples, models and optimizers (imports torch)

`activate` runs right after `import torch`. All ranks of a job make the change; rank 0 reports and
waits until it is killed, so that neither the script's next lines nor its clean-up run.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from stepscope.capture.trial.changes import CHANGES, InjectableChange, Results, make_change
from stepscope.job_environment import DEBUG_VARIABLES

__all__ = ["CHANGES", "DEBUG_VARIABLES", "InjectableChange", "Results", "TrialPlan", "activate"]


@dataclass(frozen=True)
class TrialPlan:
    """Plan of one trial."""

    report: str
    """File for the report, written once."""
    warmup_step_count: int
    step_count: int
    """Measured steps, after the warm-up."""
    seed: int
    """Seed of the generators of the job, for scripts that set none."""
    changes: dict[str, str] = field(default_factory=dict)
    """Value of each change by name; empty for a trial of the job as it is."""
    removed_variables: list[str] = field(default_factory=list)
    """Debug variables that were removed from the environment of the job."""
    batch_size: int | None = None
    """Batch size of the DataLoader that feeds training, None if unknown."""

    @property
    def early_report(self) -> str:
        """File for the report of a job that ends before its last measured step."""
        return f"{self.report}.early"

    def encode(self) -> str:
        """Encode the plan for the environment."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> TrialPlan:
        """Decode a plan."""
        return cls(**json.loads(text))


def activate(plan_text: str) -> None:
    """Seed the generators, make the changes, and measure. Called once, torch is imported.

    Errors are written into the report of the trial: a trial without its change measures nothing.
    """
    from stepscope.capture.trial.measurement import Measurement

    plan = TrialPlan.decode(plan_text)
    measurement = Measurement(plan)
    try:
        measurement.start()
        for name, value in plan.changes.items():
            make_change(name, value, measurement)
    except Exception as error:  # noqa: BLE001 - reported, and the job ends
        measurement.fail(f"{type(error).__name__}: {error}")
