"""What may be asked of a view, and what a view says it answers to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from stepscope.diagnosis import Signals
from stepscope.errors import UsageError

CarryOver = Literal["keep", "drop"]
KERNEL_GROUPS = ("name", "properties")
OPERATOR_GROUPS = ("name", "shape", "stack")
"""What `--by` may be for the views of kernels and of operators; the first is the default, and
shapes and stacks of operators group by name as well."""


class ViewOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a view shall be made; every view has a meaning for the values given here."""

    carry_over: CarryOver = "keep"
    """Whether device work that was launched before the window counts."""
    rank: int | None = None
    """Only recordings of this rank."""
    trace: str | None = None
    """Only the recording of this name."""
    top: int = 20
    """Rows of a list that is sorted by weight; 0 for all of them."""
    by: str | None = None
    """What rows are grouped by; each view names its choices."""
    name: str | None = None
    """Only what has this name."""
    bucket_ns: int | None = None
    """Width of the buckets of a curve; None for one that suits the length."""
    peaks: str | None = None
    """What the device can do at most, in the words of `--peaks`; None for what its model can."""


DEFAULTS = ViewOptions()
OPTION_FLAGS = {
    "carry_over": "--carry-over",
    "rank": "--rank",
    "trace": "--trace",
    "top": "--top",
    "by": "--by",
    "name": "--name",
    "bucket_ns": "--bucket",
    "peaks": "--peaks",
}
"""Every option as the command line spells it."""
CHOICE = ("rank", "trace")
"""What every view of recordings answers to."""


Make = Callable[[Signals, ViewOptions], msgspec.Struct]
"""What makes a payload."""


@dataclass(frozen=True, slots=True)
class View:
    """A screen: the function that makes its payload, and the options that function looks at."""

    make: Make
    uses: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    """Values that `--by` may have."""

    def __call__(self, signals: Signals, options: ViewOptions = DEFAULTS) -> msgspec.Struct:
        """The payload."""
        return self.make(signals, options)

    def options(self, name: str, given: Mapping[str, Any]) -> ViewOptions:
        """Options from what a user gave; UsageError for one that this view would not look at.

        Args:
            name: of the view.
            given: fields of `ViewOptions`, only those that the user chose.
        """
        unused = [OPTION_FLAGS[field] for field in given if field not in self.uses]
        if unused:
            known = ", ".join(OPTION_FLAGS[field] for field in self.uses) or "no options"
            raise UsageError(
                f"The view {name} does not look at {' and '.join(unused)}; it takes {known}."
            )
        if self.by and given.get("by") not in {None, *self.by}:
            raise UsageError(
                f"The view {name} cannot group by {given['by']}; give --by {' or '.join(self.by)}."
            )
        return ViewOptions(**given)
