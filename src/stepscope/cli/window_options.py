"""Options for the contents and the schedule of detailed windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from stepscope.errors import UsageError
from stepscope.monitor import WindowSchedule
from stepscope.quantities import number
from stepscope.run import WindowContents, choose_contents
from stepscope.spool import OPTIONS, Depth, StepSchedule, parse_step_schedule

Decorated = Callable[..., Any]

_OPTION_HELP = {
    "shapes": "Shapes, types and strides of operator inputs.",
    "stacks": "Python calls and modules.",
    "memory": "Allocations. The job pauses briefly at the end of the window, because the "
    "framework's profiler records them in the training process.",
    "flops": "Data to compute FLOPs (includes --shapes).",
    "modules": "Module hierarchy (includes --stacks).",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthOptions:
    """Options for the contents of a window."""

    full: bool
    shapes: bool
    stacks: bool
    memory: bool
    flops: bool
    modules: bool

    @property
    def contents(self) -> WindowContents:
        """Contents of the window.

        Raises:
            UsageError: options contradict each other.
        """
        return choose_contents(full=self.full, **{name: getattr(self, name) for name in OPTIONS})


def depth_options(command: Decorated) -> Decorated:
    """Add `--light/--full` and the optional contents of a full window."""
    for name in reversed(OPTIONS):
        command = click.option(f"--{name}", is_flag=True, help=_OPTION_HELP[name])(command)
    return click.option(
        "--full/--light",
        "full",
        default=True,
        help="Record operators, or only kernels, copies and runtime calls.  [default: full]",
    )(command)


def _parse_cycles(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> StepSchedule | None:
    try:
        return None if text is None else parse_step_schedule(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{error}; e.g. wait=5,warmup=2,active=10,repeat=3,skip_first=20."
        ) from None


def schedule_options(command: Decorated) -> Decorated:
    """Add the options for windows that are scheduled with the job."""
    options = (
        click.option("--start-step", type=click.IntRange(min=0), metavar="N",
                     help="Open a window after N steps."),
        click.option("--num-steps", type=click.IntRange(min=1), metavar="M",
                     help="Length of the window in steps."),
        click.option("--start-time", type=click.FloatRange(min=0), metavar="S",
                     help="Open a window S seconds after the start of the job."),
        click.option("--duration", type=click.FloatRange(min=0, min_open=True), metavar="D",
                     help="Length of the window in seconds, rounded up to whole steps."),
        click.option("--every", "repeat_interval", metavar="K",
                     type=click.FloatRange(min=0, min_open=True),
                     help="Repeat the window every K steps, or K seconds with --start-time."),
        click.option("--schedule", "cycles", callback=_parse_cycles, metavar="NAME=N,…",
                     help="Open windows in cycles, as torch.profiler.schedule: "
                     "wait=5,warmup=2,active=10,repeat=3,skip_first=20. Without repeat, or with "
                     "repeat=0, until the job ends."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def schedule(  # noqa: PLR0917 - in the order of the options
    start_step: int | None,
    num_steps: int | None,
    start_time: float | None,
    duration: float | None,
    repeat_interval: float | None,
    cycles: StepSchedule | None,
    contents: WindowContents,
) -> WindowSchedule | None:
    """Return the windows scheduled with the job, None if there are none.

    Raises:
        UsageError: the options contradict each other.
    """
    lengths = (num_steps, duration, repeat_interval)
    if cycles is not None:
        if (start_step, start_time, *lengths) != (None,) * 5:
            raise UsageError(
                "--schedule conflicts with --start-step, --num-steps, --start-time, --duration and "
                "--every; remove them."
            )
        return WindowSchedule(**cycles.settings, depth=contents.depth, options=contents.options)
    by_steps, by_time = start_step is not None, start_time is not None
    if by_steps and by_time:
        raise UsageError("--start-step conflicts with --start-time; remove one of them.")
    if not by_steps and not by_time:
        light = contents.depth == Depth.LIGHT
        if lengths != (None, None, None) or contents.options or light:
            raise UsageError(
                "Set the start of the window with --start-step, --start-time or --schedule."
            )
        return None
    if by_steps and (num_steps is None or duration is not None):
        raise UsageError("--start-step requires --num-steps.")
    if by_time and (duration is None or num_steps is not None):
        raise UsageError("--start-time requires --duration.")
    length = num_steps if by_steps else duration
    if repeat_interval is not None and length is not None and repeat_interval <= length:
        raise UsageError(
            f"windows of {number(length)} would overlap at --every {number(repeat_interval)}; "
            "raise --every"
        )
    return WindowSchedule(
        first_step=start_step,
        step_count=num_steps,
        start_s=start_time,
        duration_s=duration,
        interval=repeat_interval,
        depth=contents.depth,
        options=contents.options,
    )
