"""Options for recording: tensors, the search for NaN, processes beside a job."""

from __future__ import annotations

import functools
from typing import Any

import click

from stepscope import budget, monitor, schema, spool
from stepscope.cli.options.common import Decorated, parse_size, parsed_by

_NEED = "--tensors, --tensors-matching or --tensors-raw"


def tensor_options(command: Decorated) -> Decorated:
    """Add the options for tensors; the command gets a `TensorPlan`, or None, as `tensors`."""

    @functools.wraps(command)
    def with_plan(*args: Any, **options: Any) -> Any:
        names = (
            *("collections", "patterns", "interval", "evaluation_interval", "steps", "ranks"),
            *("sharded", "histograms", "raw_patterns", "raw_limit"),
        )
        plan = _plan(**{name: options.pop(f"tensor_{name}") for name in names})
        return command(*args, tensors=plan, **options)

    collected: Decorated = with_plan
    for option in reversed(_TENSOR_OPTIONS):
        collected = option(collected)
    return collected


def _plan(
    *,
    collections: list[str] | None,
    patterns: tuple[str, ...],
    interval: int | None,
    evaluation_interval: int | None,
    steps: dict[str, Any] | None,
    ranks: list[int] | None,
    sharded: str | None,
    histograms: bool,
    raw_patterns: tuple[str, ...],
    raw_limit: int | None,
) -> spool.TensorPlan | None:
    """Make the plan.

    Raises:
        BadParameter: an option of tensors is given, and no tensor is selected.
    """
    if raw_limit is not None and not raw_patterns:
        raise click.BadParameter(
            "no tensor is recorded with its elements; add --tensors-raw, such as "
            "--tensors-raw gradient/.*",
            param_hint="--tensors-raw-limit",
        )
    if not collections and not patterns and not raw_patterns:
        values = (interval, evaluation_interval, steps, ranks, sharded)
        if histograms or any(value is not None for value in values):
            raise click.BadParameter(
                f"no tensor is selected; add {_NEED}, such as --tensors weights,gradients,losses",
                param_hint="--tensors-every, --tensors-eval-every, --tensors-steps, "
                "--tensors-ranks, --tensors-sharded, --tensor-histograms",
            )
        return None
    try:
        return spool.TensorPlan(
            collections=collections or [],
            patterns=patterns,
            interval=interval or (None if steps is None else 1),
            evaluation_interval=evaluation_interval,
            ranks=ranks,
            joins_shards=sharded == "whole",
            histograms=histograms,
            raw_patterns=raw_patterns,
            raw_limit_bytes=spool.DEFAULT_RAW_LIMIT_BYTES if raw_limit is None else raw_limit,
            **(steps or {}),
        )
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=_NEED) from None


def _parse_collections(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _parse_steps(text: str) -> dict[str, Any]:
    """Parse `START:END`, either of which may be missing, or `N,N,…`."""
    start, colon, end = text.partition(":")
    try:
        if colon:
            first_step, end_step = int(start or 0), int(end) if end else None
            if end_step is not None and end_step <= first_step:
                raise ValueError(text)
            return {"first_step": first_step, "end_step": end_step}
        steps = _parse_numbers(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither a range of steps, such as 100:500, nor steps, such as 5,7,9."
        ) from None
    # No step is a multiple of the interval before this end.
    return {"steps": steps, "first_step": 0, "end_step": 0}


def _parse_ranks(text: str) -> list[int] | None:
    if text == "all":
        return None
    try:
        return _parse_numbers(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither all nor ranks, such as 0,4.") from None


def _parse_numbers(text: str) -> list[int]:
    numbers = [int(word) for word in text.split(",")]
    if min(numbers) < 0:
        raise ValueError(text)
    return numbers


_TENSOR_OPTIONS = (
    click.option("--tensors", "tensor_collections", callback=parsed_by(_parse_collections),
                 metavar="NAMES", help="Record statistics of tensors: any of "
                 f"{', '.join(spool.COLLECTIONS)}, separated by commas."),
    click.option("--tensors-matching", "tensor_patterns", multiple=True, metavar="REGEX",
                 help="Record statistics of the tensors whose whole name matches, such as "
                 "layers.0.*, gradient/.* or activation/.*relu; may be repeated."),
    click.option("--tensors-every", "tensor_interval", type=click.IntRange(min=1), metavar="N",
                 help="Record tensors at every Nth step of an optimizer.  [default: "
                 f"{spool.DEFAULT_TENSOR_INTERVAL}, of XGBoost 5, or 1 with --tensors-steps]"),
    click.option("--tensors-eval-every", "tensor_evaluation_interval", metavar="N",
                 type=click.IntRange(min=1),
                 help="Record activations, inputs and outputs at every Nth call of a model for "
                 "evaluation; these are counted by themselves.  [default: as --tensors-every]"),
    click.option("--tensors-steps", "tensor_steps", callback=parsed_by(_parse_steps),
                 metavar="START:END",
                 help="Record tensors only in these steps; or only at these, such as 5,7,9."),
    click.option("--tensors-ranks", "tensor_ranks", callback=parsed_by(_parse_ranks),
                 metavar="RANKS",
                 help="Ranks that record tensors, such as 0.  [default: all]"),
    click.option("--tensors-sharded", "tensor_sharded", type=click.Choice(["shards", "whole"]),
                 help="Of a tensor whose parts are on several ranks (FSDP2, DTensor), record the "
                 "statistics of each rank's shard, or of the whole tensor.  [default: shards]"),
    click.option("--tensor-histograms", "tensor_histograms", is_flag=True,
                 help="Record a histogram of each tensor as well."),
    click.option("--tensors-raw", "tensor_raw_patterns", multiple=True, metavar="REGEX",
                 help="Record the tensors whose whole name matches with their elements, such as "
                 "gradient/fc.*; may be repeated."),
    click.option("--tensors-raw-limit", "tensor_raw_limit", callback=parsed_by(parse_size),
                 metavar="SIZE",
                 help="Size of the elements of a job; tensors beyond it are named in the run.  "
                 f"[default: {spool.DEFAULT_RAW_LIMIT_BYTES // 1_000_000}MB]"),
)  # fmt: skip


def nan_options(command: Decorated) -> Decorated:
    """Add the options; the command gets the start of the search, or None, as `nan_search`."""

    @functools.wraps(command)
    def with_start(*args: Any, find_nan: bool, on_nan: str | None, **options: Any) -> Any:
        start = spool.FROM_START if find_nan else spool.AFTER_LOSS if on_nan else None
        return command(*args, nan_search=start, **options)

    collected: Decorated = with_start
    for option in reversed(_NAN_OPTIONS):
        collected = option(collected)
    return collected


_NAN_OPTIONS = (
    click.option("--find-nan", is_flag=True,
                 help="Check the result of every operator, and name the one with the first NaN or "
                 "infinite number that reaches a loss, gradient or parameter. Slow."),
    click.option("--on-nan", type=click.Choice(["find"]),
                 help="Start that search after the first loss that is not finite."),
)  # fmt: skip


def parse_budget(text: str) -> budget.Budget:
    """Parse a share of one core, a size of memory, or both; the other one keeps its default.

    >>> parse_budget("5%,1GB")
    Budget(cpu_ratio=0.05, memory_bytes=1000000000)
    """
    limits: dict[str, Any] = {}
    for part in map(str.strip, text.split(",")):
        number = part.removesuffix("%").rstrip()
        if number != part:
            if not number.replace(".", "", 1).isdigit() or not float(number):
                raise click.BadParameter(f"{part!r} is not a share of a core, e.g. 2%.")
            name, limit = "cpu_ratio", float(number) / 100
        else:
            name, limit = "memory_bytes", parse_size(part)
        if name in limits:
            raise click.BadParameter(f"{text!r} is not a budget, e.g. 2%,150MB.")
        limits[name] = limit
    return budget.Budget(**limits)


interval_option = click.option(
    "--interval",
    "interval_ms",
    type=click.Choice([str(ms) for ms in schema.INTERVALS_MS]),
    callback=parsed_by(int),
    default=str(monitor.DEFAULT_INTERVAL_MS),
    show_default=True,
    help="Milliseconds between samples of the node.",
)
budget_option = click.option(
    "--monitor-budget",
    metavar="CPU,MEMORY",
    callback=parsed_by(parse_budget),
    default="2%,150MB",
    show_default=True,
    help="Share of one core, and memory, for the monitor and the watch process of this node, not "
    "counting programs that they start. Above that share they record less, and above that memory "
    "they free what they can; the run says so.",
)
