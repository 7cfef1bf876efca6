"""Options for the contents and the schedule of detailed windows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec

from stepscope import errors, run, schema, spool
from stepscope.cli.options.common import Decorated, parsed_by
from stepscope.quantities import number

_OPTION_HELP = {
    "shapes": "Shapes, types and strides of operator inputs.",
    "stacks": "Python calls and modules.",
    "memory": "Allocations. The job pauses briefly at the end of the window, because the "
    "framework's profiler records them in the training process.",
    "flops": "Data to compute FLOPs (includes --shapes).",
    "modules": "Module hierarchy (includes --stacks).",
}


class DepthOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options for the contents of a window."""

    full: bool
    shapes: bool
    stacks: bool
    memory: bool
    flops: bool
    modules: bool

    @property
    def contents(self) -> run.WindowContents:
        """Contents of the window.

        Raises:
            UsageError: options contradict each other.
        """
        return run.choose_contents(
            full=self.full, **{name: getattr(self, name) for name in spool.OPTIONS}
        )


def depth_options(command: Decorated) -> Decorated:
    """Add `--light/--full` and the optional contents of a full window."""
    for name in reversed(spool.OPTIONS):
        command = click.option(f"--{name}", is_flag=True, help=_OPTION_HELP[name])(command)
    return click.option(
        "--full/--light",
        "full",
        default=True,
        help="Record operators, or only kernels, copies and runtime calls.  [default: full]",
    )(command)


def _parse_schedule(text: str) -> schema.WindowSchedule:
    """Parse the value of `--schedule`: cycles, or a start, a length and an interval."""
    name = text.partition("=")[0].strip()
    try:
        if name not in {"start_step", "start_time"}:
            return schema.WindowSchedule(**spool.parse_step_schedule(text).settings)
        fields = _read_fields(text, name)
        return _make_schedule(interval=fields.pop("every", None), **fields)
    except (ValueError, errors.UsageError) as error:
        raise click.BadParameter(
            f"{str(error).removesuffix('.')}; e.g. wait=5,warmup=2,active=10,repeat=3,"
            "skip_first=20, or start_step=100,num_steps=20,every=500, or "
            "start_time=60,duration=2."
        ) from None


def _read_fields(text: str, start: str) -> dict[str, Any]:
    """Read the fields of a schedule that is given by its start.

    Raises:
        ValueError: a name or a number is not valid.
    """
    types = (
        {"start_step": int, "num_steps": int, "every": float}
        if start == "start_step"
        else {"start_time": float, "duration": float, "every": float}
    )
    fields: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in types:
            raise ValueError(f"{name!r} is none of {', '.join(types)}")
        if name in fields:
            raise ValueError(f"{name} is set twice")
        try:
            fields[name] = types[name](value)
        except ValueError:
            raise ValueError(f"{part.strip()!r} is not {name}=N, with a number N") from None
        minimum = 0 if name.startswith("start") else 1 if types[name] is int else 1e-9
        if not minimum <= fields[name] < math.inf:
            raise ValueError(f"{part.strip()!r} is too small or too large")
    return fields


def schedule_options(command: Decorated) -> Decorated:
    """Add the options for scheduled windows."""
    options = (
        click.option("--start-step", "start_steps", type=click.IntRange(min=0), metavar="N",
                     multiple=True, help="Open a window after N steps; may be repeated."),
        click.option("--num-steps", type=click.IntRange(min=1), metavar="M", multiple=True,
                     help="Length of the window in steps; for several windows, as often as "
                     "--start-step.  [default: 1]"),
        click.option("--start-time", "start_times", type=click.FloatRange(min=0), metavar="S",
                     multiple=True,
                     help="Open a window S seconds after the start of the job; may be repeated."),
        click.option("--duration", "durations", metavar="D", multiple=True,
                     type=click.FloatRange(min=0, min_open=True),
                     help="Length of the window in seconds, rounded up to whole steps."),
        click.option("--every", "repeat_intervals", metavar="K", multiple=True,
                     type=click.FloatRange(min=0, min_open=True),
                     help="Repeat the window every K steps, or K seconds with --start-time."),
        click.option("--schedule", "schedules", metavar="NAME=N,…", multiple=True,
                     callback=parsed_by(lambda texts: tuple(map(_parse_schedule, texts))),
                     help="Open windows in cycles, as torch.profiler.schedule: "
                     "wait=5,warmup=2,active=10,repeat=3,skip_first=20. Without repeat, or with "
                     "repeat=0, until the job ends. Or all of the above in one value: "
                     "start_step=100,num_steps=20,every=500. May be repeated."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


class ScheduleOptions(DepthOptions, frozen=True, kw_only=True):
    """Options for scheduled windows and the contents of windows."""

    start_steps: tuple[int, ...]
    num_steps: tuple[int, ...]
    start_times: tuple[float, ...]
    durations: tuple[float, ...]
    repeat_intervals: tuple[float, ...]
    schedules: tuple[schema.WindowSchedule, ...]

    @property
    def planned(self) -> list[schema.WindowSchedule]:
        """The schedules.

        Raises:
            UsageError: the options contradict each other.
        """
        contents = self.contents
        planned = [*self._by_start(), *self.schedules]
        if not planned and (contents.options or contents.depth == spool.Depth.LIGHT):
            raise errors.UsageError(
                "Set the start of the window with --start-step, --start-time or --schedule."
            )
        planned = [
            msgspec.structs.replace(s, depth=contents.depth, options=contents.options)
            for s in planned
        ]
        run.check_schedules(planned)
        return planned

    def _by_start(self) -> Iterator[schema.WindowSchedule]:
        by_steps, by_time = bool(self.start_steps), bool(self.start_times)
        if by_steps and by_time:
            raise errors.UsageError(
                "--start-step conflicts with --start-time; use --schedule start_time=… for one."
            )
        if self.num_steps and not by_steps:
            raise errors.UsageError("--num-steps requires --start-step.")
        if self.durations and not by_time:
            raise errors.UsageError("--duration requires --start-time.")
        if self.repeat_intervals and not (by_steps or by_time):
            raise errors.UsageError("--every requires --start-step or --start-time.")
        if by_steps:
            counts = self.num_steps or (1,) * len(self.start_steps)
            lengths = _pair("--start-step", self.start_steps, "--num-steps", counts)
        else:
            lengths = _pair("--start-time", self.start_times, "--duration", self.durations)
        start = "--start-step" if by_steps else "--start-time"
        intervals = self.repeat_intervals or (None,) * len(lengths)
        for (first, length), interval in _pair(start, lengths, "--every", intervals):
            if by_steps:
                yield _make_schedule(start_step=first, num_steps=length, interval=interval)
            else:
                yield _make_schedule(start_time=first, duration=length, interval=interval)


def _pair(
    start: str, starts: Sequence[Any], option: str, values: Sequence[Any]
) -> list[tuple[Any, Any]]:
    """Pair the values of two options that are repeated together."""
    if len(starts) == len(values):
        return list(zip(starts, values, strict=True))
    if not values:
        raise errors.UsageError(f"{start} requires {option}.")
    raise errors.UsageError(
        f"{start} is set {len(starts)} times and {option} {len(values)} times; set both equally "
        "often, or use --schedule for each."
    )


def _make_schedule(
    *,
    start_step: int | None = None,
    num_steps: int = 1,
    start_time: float | None = None,
    duration: float | None = None,
    interval: float | None = None,
) -> schema.WindowSchedule:
    """Make the schedule of windows with a start.

    Raises:
        UsageError: the length is missing, or its own windows overlap.
    """
    if start_step is None and duration is None:
        raise errors.UsageError("start_time requires duration.")
    length = num_steps if start_step is not None else duration or 0
    if interval is not None and interval <= length:
        raise errors.UsageError(
            f"windows of {number(length)} would overlap at --every {number(interval)}; raise "
            "--every"
        )
    return schema.WindowSchedule(
        first_step=start_step,
        step_count=None if start_step is None else num_steps,
        start_s=start_time,
        duration_s=duration,
        interval=interval,
    )
