"""What may be asked of a view, and what a view says it answers to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import msgspec

from stepscope.errors import UsageError
from stepscope.run import CarryOver, Run, RunRange
from stepscope.views.ranges import Ranged, time_range

_TIME_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_LONGEST_NS = 1 << 62
"""As much as can be added to a time of today."""
Time = Annotated[int, msgspec.Meta(ge=0, lt=_LONGEST_NS)]
Duration = Annotated[int, msgspec.Meta(gt=0, lt=_LONGEST_NS)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Pixels = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
KERNEL_GROUPS = ("name", "properties")
OPERATOR_GROUPS = ("name", "shape", "stack")
"""What `--by` may be for the views of kernels and of operators; the first is the default, and
shapes and stacks of operators group by name as well."""
MODULE_TIMES = ("host", "device")
"""What `--by` may be for the flame graph of modules; the first is the default."""


class ViewOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a view shall be made; every view has a meaning for the values given here."""

    carry_over: CarryOver = "keep"
    """Whether device work that was launched before the window counts."""
    rank: Count | None = None
    """Only recordings of this rank."""
    trace: str | None = None
    """Only the recording of this name."""
    top: Count = 20
    """Rows of a list that is sorted by weight; 0 for all of them."""
    by: str | None = None
    """What rows are grouped by; each view names its choices."""
    name: str | None = None
    """Only what has this name."""
    bucket_ns: Duration | None = None
    """Width of the buckets of a curve; None for one that suits the length."""
    peaks: str | None = None
    """What the device can do at most, in the words of `--peaks`; None for what its model can."""
    from_ns: Time | None = None
    """Start of a range of time, after the run's origin; None for the origin. See
    `diagnosis.origin`."""
    to_ns: Time | None = None
    """End of it; None for the end of what is recorded."""
    tracks: str | None = None
    """Tracks of the timeline by id, joined by commas; None for all of them."""
    pixels: Pixels = 1500
    """Width of the picture that the timeline is drawn on."""
    track: str | None = None
    """Track of the timeline that holds `event`."""
    event: int | None = None
    """Number of an event on its track."""
    around_ns: Time | None = None
    """A time after the run's origin: what is found next to it is listed."""


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
    "from_ns": "--from",
    "to_ns": "--to",
    "tracks": "--tracks",
    "pixels": "--pixels",
    "track": "--track",
    "event": "--event",
    "around_ns": "--around",
}
"""Every option as the command line spells it."""
_TYPES = get_type_hints(ViewOptions, include_extras=True)
CHOICE = ("rank", "trace")
"""What every view of recordings answers to."""
RANGE = ("from_ns", "to_ns")
"""What every view that can be restricted to a range of time answers to."""


def option_value(field: str, text: str) -> Any:
    """The value of a field of `ViewOptions` that somebody wrote as text.

    >>> option_value("bucket_ns", "1.5ms"), option_value("top", "3")
    (1500000, 3)

    Raises:
        UsageError: it is none.
    """
    if field not in _TYPES:
        raise UsageError(f"There is no option {field}; there are {', '.join(_TYPES)}.")
    if _TYPES[field] == str | None:
        return text
    duration = field.endswith("_ns")
    try:
        value: Any = _nanoseconds(text) if duration else text
        return msgspec.convert(value, _TYPES[field], strict=duration)
    except (ValueError, OverflowError) as error:
        if duration:
            why = f"{text!r} is no duration; give one such as 10ms or 250us"
        else:
            why = f"{text!r} cannot be its value: {str(error)[0].lower()}{str(error)[1:]}"
        raise UsageError(f"{OPTION_FLAGS[field]}: {why}.") from None


def _nanoseconds(text: str) -> int:
    number = text.rstrip("numsNUMS ")
    return round(float(number) * _TIME_UNITS.get(text[len(number) :].strip().lower(), math.nan))


Make = Callable[[Run, ViewOptions], msgspec.Struct]
"""What makes a payload."""


@dataclass(frozen=True, slots=True)
class View:
    """A screen: the function that makes its payload, and the options that function looks at."""

    load: Callable[[], Make]
    """Imports the function: a command that shows one view need not load the others."""
    uses: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    """Values that `--by` may have."""
    needs: tuple[str, ...] = ()
    """Options without which there is nothing to show."""

    def __call__(self, run: Run, options: ViewOptions = DEFAULTS) -> msgspec.Struct:
        """The payload."""
        missing = [OPTION_FLAGS[field] for field in self.needs if getattr(options, field) is None]
        if missing:
            raise UsageError(f"Say what to look for: this view needs {' and '.join(missing)}.")
        make = self.load()
        if (options.from_ns, options.to_ns) == (None, None) or not issubclass(self.payload, Ranged):
            return make(run, options)
        within = RunRange(run, options.from_ns, options.to_ns)
        made = make(within, options)
        if isinstance(made, Ranged) and made.range is not None:
            return made
        return msgspec.structs.replace(made, range=time_range(within))

    @property
    def payload(self) -> type[msgspec.Struct]:
        """The type of the payload, by which the front end's types and the API's are made."""
        found: type[msgspec.Struct] = get_type_hints(self.load())["return"]
        return found

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

    def options_from_text(self, name: str, given: Mapping[str, str]) -> ViewOptions:
        """The same from text, as it stands in an address. Durations may be plain nanoseconds."""
        return self.options(
            name,
            {
                field: option_value(
                    field, f"{text}ns" if field.endswith("_ns") and text.isdecimal() else text
                )
                for field, text in given.items()
            },
        )
