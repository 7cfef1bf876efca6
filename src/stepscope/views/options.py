"""Options of views, payloads of damaged runs and of ranges of time, and texts that fit.

Views of a range of time. A view whose payload is `Ranged` receives `run.within(…)` and applies the
same formulas to events that start in the range. A view that defines its range differently fills
`range` itself.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, get_args, get_type_hints

import msgspec

from stepscope import analysis, cost, errors, run as runs, schema

if TYPE_CHECKING:  # a view that is stored is shown without NumPy
    from stepscope.run import Run

_TIME_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
MAX_NS = 1 << 62
"""Limit of durations, so that they can be added to a time of today."""
Time = Annotated[int, msgspec.Meta(ge=0, lt=MAX_NS)]
Duration = Annotated[int, msgspec.Meta(gt=0, lt=MAX_NS)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Pixels = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
KERNEL_GROUPS = ("name", "properties")
OPERATOR_GROUPS = ("name", "shape", "stack")
"""Values of `--by` for the views of kernels and of operators; the first is the default. Groups by
shape or stack are also groups by name."""
COUNTER_GROUPS = ("launching", "outermost")
"""Values of `--by` for hardware counters: the operator that launched the kernel, or the outermost
one around it; the first is the default."""
MODULE_TIMES = ("host", "device")
"""Values of `--by` for the flame graph of modules; the first is the default."""

COMMUNICATION_OF: dict[analysis.CommunicationDefinition, str] = {
    "wide": (
        "kernels whose names are those of collectives (NCCL, RCCL, symmetric memory, "
        "multimem, one- and two-shot all-reduce, NVSHMEM, DeepEP, MSCCL++, oneCCL), or that an "
        "operator of collectives (c10d, symm_mem, record_param_comms) launched"
    ),
    "narrow": ("kernels of NCCL, RCCL and cross_device_reduce by name, as in published references"),
}


class ViewOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a view; every view accepts the defaults."""

    carry_over: runs.CarryOver = "keep"
    """Whether device work that was launched before the window counts."""
    communication: analysis.CommunicationDefinition = "wide"
    """Definition of communication; `COMMUNICATION_OF` explains them."""
    rank: Count | None = None
    """Only traces of this rank."""
    trace: str | None = None
    """Only the trace of this name."""
    top: Count = 20
    """Limit of rows of a sorted list; 0 for all."""
    by: str | None = None
    """Key that rows are grouped by; each view has its choices."""
    mesh: str | None = None
    """Parallel dimensions of the ranks, such as dp=4,pp=2,tp=2."""
    name: str | None = None
    """Only rows, series or events of this name."""
    collection: str | None = None
    """Only tensors of this collection, such as gradients."""
    reduction: str | None = None
    """Number that describes a tensor, such as l2."""
    bucket_ns: Duration | None = None
    """Width of the buckets of a curve; None for a width that suits its length."""
    peaks: str | None = None
    """Peak rates of the device, as in `--peaks`; None for those of its model."""
    from_ns: Time | None = None
    """Start of a range of time, after the run's origin (`run.clock`); None for the origin."""
    to_ns: Time | None = None
    """End of the range; None for the end of the run."""
    tracks: str | None = None
    """Tracks of the timeline by id, joined by commas; None for all."""
    pixels: Pixels = 1500
    """Width of the picture of the timeline."""
    track: str | None = None
    """Track of the timeline that contains `event`."""
    event: int | None = None
    """Number of an event on its track."""
    around_ns: Time | None = None
    """Time after the run's origin; the matches next to it are listed."""


DEFAULTS = ViewOptions()
OPTION_FLAGS = {
    "carry_over": "--carry-over",
    "communication": "--communication",
    "rank": "--rank",
    "trace": "--trace",
    "top": "--top",
    "by": "--by",
    "mesh": "--mesh",
    "name": "--name",
    "collection": "--collection",
    "reduction": "--reduction",
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
"""Option of the command line for each field."""
TRACE_OPTIONS = ("rank", "trace")
"""Options of every view of traces."""
RANGE_OPTIONS = ("from_ns", "to_ns")
"""Options of every view that can be restricted to a range of time."""


@functools.cache
def _option_types() -> dict[str, Any]:
    """Return the types of the fields of `ViewOptions`."""
    return get_type_hints(ViewOptions, include_extras=True)


def parse_option(field: str, text: str) -> Any:
    """Parse the value of a field of `ViewOptions`.

    >>> parse_option("bucket_ns", "1.5ms"), parse_option("top", "3")
    (1500000, 3)

    Raises:
        UsageError: there is no such field, or the text is not a value of it.
    """
    types = _option_types()
    if field not in types:
        raise errors.UsageError(f"There is no option {field}; available: {', '.join(types)}.")
    if types[field] == str | None:
        return text
    is_duration = field.endswith("_ns")
    try:
        value: Any = _parse_duration(text) if is_duration else text
        return msgspec.convert(value, types[field], strict=is_duration)
    except (ValueError, OverflowError) as error:
        if is_duration:
            reason = f"{text!r} is not a duration such as 10ms or 250us"
        else:
            reason = f"invalid value {text!r}: {str(error)[0].lower()}{str(error)[1:]}"
        raise errors.UsageError(f"{OPTION_FLAGS[field]}: {reason}.") from None


def _parse_duration(text: str) -> int:
    number = text.rstrip("numsNUMS ")
    return round(float(number) * _TIME_UNITS.get(text[len(number) :].strip().lower(), math.nan))


ShowFunction: TypeAlias = "Callable[[Run, ViewOptions], msgspec.Struct]"
"""Function that makes the payload of a view."""


class View(msgspec.Struct, frozen=True):
    """A view: the function that makes its payload, and the options that it accepts."""

    load: Callable[[], ShowFunction]
    """Imports the function, so that a command that shows one view does not load the others."""
    uses: tuple[str, ...] = ()
    """Options that the view accepts."""
    by: tuple[str, ...] = ()
    """Values of `--by`."""
    needs: tuple[str, ...] = ()
    """Required options."""
    is_of_processes: bool = False
    """True if it shows spans, scalars or stack samples, whose recording may end before the job."""
    table: str = ""
    """Main table of the payload, for CSV, Parquet, Arrow and SQL, the same for each run; empty for
    the one that is named like the view."""
    stored_as: str = ""
    """Name by which the payload without options is stored with a run that has ended; empty for a
    view of another package, which may change."""

    def __call__(self, run: Run, options: ViewOptions = DEFAULTS) -> msgspec.Struct:
        """Make the payload. If files behind it are damaged, it says so and withholds shares.

        Raises:
            UsageError: a required option is missing, or an option has an impossible value.
        """
        missing = [OPTION_FLAGS[field] for field in self.needs if getattr(options, field) is None]
        if missing:
            raise errors.UsageError(f"This view needs {' and '.join(missing)}.")
        if self.is_stored(options):
            return runs.recall(run, self.stored_as, self.payload, lambda: self._make(run, options))
        return self._make(run, options)

    def is_stored(self, options: ViewOptions) -> bool:
        """Return True if the payload depends on nothing but the files of the run."""
        return bool(self.stored_as) and options == DEFAULTS and cost.ENVIRONMENT not in os.environ

    def _make(self, run: Run, options: ViewOptions) -> msgspec.Struct:
        """Make the payload of a run."""
        payload, damage = runs.make_with_damage(run, lambda source: self._show(source, options))
        if not isinstance(payload, schema.Payload):
            return payload
        if recovery := runs.explain_recovery(run.reader):
            payload = msgspec.structs.replace(payload, recording_end=recovery)
        if not payload.doubts and ("trace" in self.uses or not run.ranks):
            # They read more than the view.
            doubts, _ = runs.make_with_damage(run, runs.list_run_doubts)
            sentences = [doubt.sentence for doubt in doubts]
            payload = msgspec.structs.replace(payload, doubts=sentences)
        return note_damage(payload, damage) if damage else payload

    def _show(self, run: Run, options: ViewOptions) -> msgspec.Struct:
        is_range = (options.from_ns, options.to_ns) != (None, None)
        selected = run.within(options.from_ns, options.to_ns) if is_range else run
        payload = self._show_selected(run, selected, options)
        if isinstance(payload, schema.Payload):
            payload = msgspec.structs.replace(payload, rounding=runs.explain_rounding(selected))
        if self.is_of_processes and isinstance(payload, schema.Payload):
            recording_end = runs.explain_recording_end(selected)
            payload = msgspec.structs.replace(payload, recording_end=recording_end)
        return payload

    def _show_selected(self, run: Run, selected: Run, options: ViewOptions) -> msgspec.Struct:
        """Make the payload of a range, which is the whole run without one."""
        show = self.load()
        if selected is run or not issubclass(self.payload, Ranged):
            return show(run, options)
        payload = show(selected, options)
        if isinstance(payload, Ranged) and payload.range is not None:
            return payload
        return msgspec.structs.replace(payload, range=describe_range(selected))

    @property
    def payload(self) -> type[msgspec.Struct]:
        """Type of the payload, from which the types of the page and of the API are generated."""
        payload: type[msgspec.Struct] = get_type_hints(self.load())["return"]
        return payload

    def make_options(self, name: str, values: Mapping[str, Any]) -> ViewOptions:
        """Make options from the values that a user set.

        Args:
            name: name of the view.
            values: fields of `ViewOptions`, only those that the user set.

        Raises:
            UsageError: the view does not accept an option or its value.
        """
        unused = [OPTION_FLAGS[field] for field in values if field not in self.uses]
        if unused:
            accepted = ", ".join(OPTION_FLAGS[field] for field in self.uses) or "none"
            raise errors.UsageError(
                f"The view {name} does not accept {' and '.join(unused)}. Options: {accepted}."
            )
        if self.by and values.get("by") not in {None, *self.by}:
            raise errors.UsageError(
                f"The view {name} cannot group by {values['by']}. Use --by {' or '.join(self.by)}."
            )
        return ViewOptions(**values)

    def parse_options(self, name: str, texts: Mapping[str, str]) -> ViewOptions:
        """Make options from text, as in a URL. Durations may be plain nanoseconds."""
        return self.make_options(
            name,
            {
                field: parse_option(
                    field, f"{text}ns" if field.endswith("_ns") and text.isdecimal() else text
                )
                for field, text in texts.items()
            },
        )


PayloadT = TypeVar("PayloadT", bound=schema.Payload)
SHARE_UNITS = ("ratio", "percent")
CURVE = "_curve_ratio"
"""End of the names of shares over time. Other lists of shares are drawn beside other lists."""
WITHHELD = (
    "A part of the run cannot be read: shares are withheld, and other figures cover only the rest."
)
UNREADABLE = "a part of the run cannot be read, so it is not known whether this was recorded"
"""Replaces the reason for missing data, and the advice how to record it."""


def note_damage(payload: PayloadT, damage: list[str]) -> PayloadT:
    """Note the damage of the tables behind a payload, and withhold its shares."""
    withheld: PayloadT = _withhold(payload)
    return msgspec.structs.replace(withheld, damage=[WITHHELD, *damage])


def _withhold(value: Any) -> Any:
    """Withhold shares and reasons in a payload or a part of it.

    A verdict stays: it abstains where its own tables are damaged.
    """
    from stepscope.diagnosis import Verdict  # 10 ms, which most views do not need

    if isinstance(value, Verdict):
        return value
    if isinstance(value, msgspec.Struct):
        labels, types = schema.labels_of(type(value)), get_type_hints(type(value))
        return msgspec.structs.replace(
            value,
            **{
                name: _withhold_field(
                    name, getattr(value, name), types[name], is_share=label.unit in SHARE_UNITS
                )
                for name, label in labels.items()
            },
        )
    if isinstance(value, list):
        return [_withhold(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _withhold(item) for key, item in value.items()}
    return value


def _holds_only_shares(value: Any) -> bool:
    """Return whether the figures of a part of a payload are shares, all of them."""
    if not isinstance(value, msgspec.Struct):
        return False
    units = {label.unit for label in schema.labels_of(type(value)).values()} - {"none"}
    return bool(units) and units <= {*SHARE_UNITS}


def _withhold_field(name: str, value: Any, type_: Any, *, is_share: bool) -> Any:
    if name == "missing" and value is not None:
        return UNREADABLE
    if name == "missing_parts":
        return dict.fromkeys(value, UNREADABLE)
    if type(None) in get_args(type_) and (is_share or _holds_only_shares(value)):
        return None
    if not is_share:
        return _withhold(value)
    if isinstance(value, list) and get_args(type_) == (float | None,):
        return [None] * len(value)
    return type(value)() if isinstance(value, Mapping) or name.endswith(CURVE) else value


RANGE_OF = (
    "events that start in the range, in full; covered times, as in gpu-time and distributed, are "
    "clipped to the range"
)


class TimeRange(msgspec.Struct, frozen=True, kw_only=True):
    """Range of time that a payload is about."""

    from_after_ns: int
    """Start, after the run's origin."""
    to_after_ns: int
    """End, exclusive."""
    range_of: str
    """Part of the run that belongs to the range."""
    notes: list[str]
    """Excluded traces."""


class Ranged(schema.Payload, frozen=True, kw_only=True):
    """Payload that can be restricted to a range of time."""

    range: TimeRange | None = None
    """Null for the whole run."""


def describe_range(run: Run) -> TimeRange:
    """Describe the range that a run is restricted to."""
    origin = run.clock.origin_ns
    names = [trace.name for trace in run.left_out]
    return TimeRange(
        from_after_ns=run.period.start_ns - origin,
        to_after_ns=run.period.end_ns - origin,
        range_of=RANGE_OF,
        notes=[f"excluded traces, outside the range: {list_names(names)}"] if names else [],
    )


MAX_NAME_LENGTH = 500
"""Characters; `timeline-slice` has the full name."""
MAX_KERNEL_LENGTH = 60
MAX_LISTED_NAMES = 8
_GENERIC_KERNEL = re.compile(r"Kernel2?|device_kernel|kernel|GemmUniversal")
"""Names that say nothing without the first argument of their template."""
_KERNEL_OPERATION = re.compile(
    r"\w*(?:Functor|Ops?|Impl)(?:_\w+)?(?=[<,>( ]|$)|\w+_kernel(?:_cuda|_impl)?\b"
)
"""What a templated kernel computes."""


def shorten_name(name: str, limit: int = MAX_NAME_LENGTH) -> str:
    """Cut a name that is too long to be read, to at most *limit* characters.

    >>> shorten_name("aten::mm")
    'aten::mm'
    """
    return name if len(name) <= limit else name[: limit - 1] + "…"


def shorten_kernel(name: str) -> str:
    """Shorten a kernel's name to what tells it apart, as tables of the page do: the function, and
    what its template computes.

    >>> shorten_kernel("void at::vectorized_elementwise_kernel<4, at::CUDAFunctor_add<float>>(int)")
    'vectorized_elementwise_kernel: CUDAFunctor_add'
    >>> shorten_kernel("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>(Params)")
    'cutlass_80_tensorop_bf16_s16816gemm'
    """
    text = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    path, _, _ = text.partition("<")[0].partition("(")
    base = path.rpartition("::")[2] or name
    template = text[len(path) + 1 :] if text[len(path) :].startswith("<") else ""
    if _GENERIC_KERNEL.fullmatch(base):
        argument = re.match(r"(?:\w+::)*(\w+)", template)
        short = argument[1] if argument else base
    else:
        operation = _KERNEL_OPERATION.search(template)
        short = f"{base}: {operation[0]}" if operation and operation[0] != base else base
    return shorten_name(short, MAX_KERNEL_LENGTH)


def list_names(names: Sequence[str], limit: int = MAX_LISTED_NAMES) -> str:
    """Join names for a sentence, at most *limit* of them.

    >>> list_names(["a", "b"]), list_names([str(n) for n in range(10)])
    ('a, b', '0, 1, 2, 3, 4, 5, 6, 7 and 2 more')
    """
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")
