"""What a comparison of two runs says."""

from __future__ import annotations

from typing import Literal

import msgspec

from stepscope.analysis import Statistics
from stepscope.comparison.before_after import BeforeAfter
from stepscope.comparison.differences import NoiseOf
from stepscope.comparison.gate import ContractTerms, Gate
from stepscope.comparison.parts import Contributions
from stepscope.diagnosis import Suspect

Source = Literal["watched", "recorded"]


class ComparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two."""

    run_id: str
    of_runs: int
    """Runs of the program, for all of which this one stands."""
    command: str
    suspect: Suspect
    cause: str
    share_ratio: float
    share_of: str
    confidence_ratio: float
    headline: str
    step_count: int
    """Steps that are compared."""
    step_ns: Statistics | None


class StepChange(msgspec.Struct, frozen=True, kw_only=True):
    """How one figure of the steps changed."""

    name: str
    """`mean`, `p50`, `p95`, or a part of the mean step."""
    base_ns: float
    other_ns: float
    change_ns: float
    change_ratio: float | None
    """Share of `base_ns`."""
    estimate_ns: float
    """The change as all runs of both programs tell it, by which a gate goes; where there is one of
    each, `change_ns`."""
    low_ns: float | None
    """Of the interval of the change; null, as is the noise floor, where there are too few steps to
    know it."""
    high_ns: float | None
    noise_ns: float | None
    """The noise floor: how far halves of one run differ; of repeated runs half of the interval's
    width."""
    beyond_noise: bool


class StepChanges(msgspec.Struct, frozen=True, kw_only=True):
    """How the steps changed."""

    source: Source
    share_of: str
    figures: list[StepChange]
    """Mean, median and 95th percentile."""
    parts: list[StepChange]
    """Of the mean step; their changes sum to that of the mean."""
    noise_of: NoiseOf
    interval_percent: int
    """How often the intervals hold the true change."""
    noise: str
    """What `beyond_noise` means."""


class FigureChange(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of the whole job; null where a run does not have it."""

    name: str
    unit: str
    base: float | None
    other: float | None
    change_ratio: float | None
    """Of the base; negative where there is less of it."""


class SettingChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is set up differently; null where a run does not say."""

    group: str
    name: str
    base: str | None
    other: str | None


class NameChange(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel or an operator, in the mean step."""

    name: str
    status: Literal["added", "removed", "slower", "faster", "unchanged"]
    base_ns: float
    other_ns: float
    change_ns: float
    base_calls: float
    other_calls: float


class NameChanges(msgspec.Struct, frozen=True, kw_only=True):
    """By name; the changes of the rows and `rest_ns` sum to `change_ns`."""

    time_of: str
    base_ns: float
    other_ns: float
    change_ns: float
    rows: list[NameChange]
    """The twenty largest changes."""
    rest_ns: float
    rest_count: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The payload."""

    headline: str
    base: ComparedRun
    other: ComparedRun
    steps: StepChanges | None
    steps_missing: str | None
    contributions: Contributions | None
    """Where the change of the mean step comes from."""
    contract: list[ContractTerms]
    """Whether the runs did the same work."""
    gate: Gate | None
    """Null where no condition was given."""
    figures: list[FigureChange]
    figures_of: str
    """What they are means and sums over."""
    before_after: BeforeAfter
    settings: list[SettingChange]
    same_setting_count: int
    kernels: NameChanges | None
    operators: NameChanges | None
    names_missing: str | None
    notes: list[str]
    """What is wrong with a record, or with the choice of the runs, so that figures may be."""
