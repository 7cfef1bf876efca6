"""Documents about changes of a job that were tried: `tries/<name>.json`."""

from __future__ import annotations

import msgspec


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change that can be made in a job without editing its script."""

    name: str
    value: str


class TrialPair(msgspec.Struct, frozen=True, kw_only=True):
    """Two trials next to each other in time: without and with the change."""

    base_step_ns: float
    """Mean step without the change, with everything between the steps."""
    changed_step_ns: float
    """Mean step with the change; of as many samples where the change concerns the batch size."""


class LossComparison(msgspec.Struct, frozen=True, kw_only=True):
    """First losses without and with a change, on the same order of data."""

    loss_count: int
    """Compared losses of a pair of trials."""
    max_relative_difference: float
    """Largest difference of a loss with the change from the one without, relative to the larger."""
    own_relative_difference: float
    """The same between trials without the change: the job's own variation."""


class TriedChange(msgspec.Struct, frozen=True, kw_only=True):
    """Measured effect of changes that were tried together.

    The saving of a pair is 1 - changed step / base step. The interval runs between two order
    statistics of these savings, so it assumes no distribution.
    """

    created_ns: int
    """Epoch nanoseconds."""
    changes: list[Change]
    fix_title: str | None = None
    """Fix of the verdict that recommends them, null without one."""
    cause: str = ""
    """Cause of the verdict."""
    predicted_saving_ratio: float | None = None
    """Predicted saving of that fix, as a share of the step."""
    is_predicted_bound: bool = False
    """True if the prediction is an upper bound of the saving."""
    pairs: list[TrialPair]
    saving_ratio: float
    """Median saving as a share of the step; negative for a longer step."""
    min_saving_ratio: float
    """Lower end of the interval."""
    max_saving_ratio: float
    """Upper end of the interval."""
    confidence_ratio: float
    """Probability that such an interval contains the median."""
    warmup_step_count: int
    """Steps before the measured ones, in each trial."""
    step_count: int
    """Measured steps of each trial without the change."""
    losses: LossComparison | None = None
    """Null where no losses could be compared."""
    is_isolated: bool
    """True if the files that the trials wrote were discarded."""
    node: str
    cores_available: float | None = None
    versions: dict[str, str] = {}
    """Versions of Python and torch in the trials."""

    @property
    def is_even(self) -> bool:
        """True if the interval contains no change."""
        return self.min_saving_ratio <= 0 <= self.max_saving_ratio
