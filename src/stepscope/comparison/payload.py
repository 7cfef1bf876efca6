"""Result of the comparison of two programs."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from stepscope import analysis, diagnosis, schema
from stepscope.comparison.before_after import BeforeAfter
from stepscope.comparison.conditions import FigureChange, TargetOutcome
from stepscope.comparison.contributions import Contributions
from stepscope.comparison.gate import Gate
from stepscope.comparison.names import NameChanges, SettingChange
from stepscope.comparison.step_changes import NoiseOf, StepChange
from stepscope.comparison.workload_contract import ContractTerms

Source = Literal["watched", "recorded"]
"""Source of compared steps: monitored jobs, or traces with steps."""


class ComparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run that represents one of the two programs."""

    name: str
    """Name on all surfaces; of a stored summary the id."""
    run_id: str
    of_runs: Annotated[int, schema.field_label("runs", unit="count")]
    """Number of runs of the program."""
    command: str
    suspect: diagnosis.Suspect
    cause: str
    share_ratio: float
    share_of: str
    confidence_ratio: float
    headline: str
    step_count: int
    """Number of compared steps."""
    step_ns: analysis.Statistics | None


class StepChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of the steps."""

    source: Source
    share_of: str
    figures: list[StepChange]
    """Mean, median and 95th percentile."""
    parts: list[StepChange]
    """Parts of the mean step; their changes sum to that of the mean."""
    noise_of: NoiseOf
    interval_percent: Annotated[int, schema.field_label("confidence of intervals")]
    """Confidence level of the intervals."""
    noise: str
    """Meaning of `beyond_noise`."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of two programs."""

    headline: str
    base_run: Annotated[ComparedRun, schema.field_label("from")] = msgspec.field(name="base")
    other_run: Annotated[ComparedRun, schema.field_label("to")] = msgspec.field(name="other")
    steps: StepChanges | None
    steps_missing: str | None
    contributions: Contributions | None
    """Contributions to the change of the mean step."""
    contract: list[ContractTerms]
    """Comparison of the work of the runs."""
    gate: Gate | None
    """Null without conditions."""
    figures: list[FigureChange]
    figures_of: str
    """Scope of the figures."""
    before_after: BeforeAfter
    targets: list[TargetOutcome]
    """Targets that the verdict on the first run states; empty where it states none."""
    settings: list[SettingChange]
    same_setting_count: int
    kernels: NameChanges | None
    operators: NameChanges | None
    names_missing: str | None
    notes: list[str]
    """Quality issues and rounding of the runs, or issues of the choice of the runs, that affect the
    figures."""
