"""Plan of one trial, passed to the processes of the job in a variable of the environment."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
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
