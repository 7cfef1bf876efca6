"""`stepscope compare BASE RUN`: what changed from one run to another, and whether it may."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from stepscope import cost, errors, store
from stepscope.cli.opening import resolve_run
from stepscope.cli.options.common import (
    epochs_option,
    json_option,
    parsed_by,
    price_options,
    split_names,
)
from stepscope.cli.output import STDOUT, locate, print_rows, write_file
from stepscope.comparison import (
    Comparison,
    RunSummary,
    compare_runs,
    compare_summaries,
    is_summary,
    parse_allowed_groups,
    parse_condition,
    read_summary,
    summarise_run,
)
from stepscope.run import Run

FAILED = 3
"""Exit status when a condition holds, as of `rules check` and `run --fail-on`."""
NOT_COMPARABLE = 4
"""Exit status when the runs did different work or lack a figure of a condition."""


class CompareOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `stepscope compare`."""

    conditions: tuple[str, ...]
    strict: bool
    allowed: tuple[str, ...]
    markdown: str | None
    junit: str | None
    usd_per_hour: str | None
    instance_type: str | None
    prices: Path | None
    epochs: float | None
    as_json: bool


@click.command(
    "compare",
    help="Compare two runs and test whether the differences exceed noise.\n\n"
    "BASE or RUN can be a directory of repeated runs of one program, ideally recorded alternately "
    "with those of the other; noise then includes differences between runs. Each can be the file "
    "of `stepscope export RUN --to summary -o FILE` as well.\n\n"
    "With --fail-if the exit status is 3 when a condition holds, and 4 when the runs did "
    "different work (see --allow-different) or a figure of a condition is missing.",
)
@click.argument("base", metavar="BASE")
@click.argument("run", metavar="RUN")
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="Condition that fails the comparison, e.g. 'step_time>+5%', 'data_wait>+3ms' "
    "or 'step_time_p95>120ms'; may be repeated. A change of the step counts only beyond noise.",
)
@click.option("--strict", is_flag=True, help="With --fail-if, also count changes within noise.")
@click.option(
    "--allow-different",
    "allowed",
    multiple=True,
    callback=parsed_by(split_names),
    metavar="GROUP,…",
    help="With --fail-if, allowed differences between the runs: model, batch, precision, hardware, "
    "software or all; may be repeated.",
)
@click.option(
    "--markdown", metavar="FILE", help="Write the comparison for a pull request; - is stdout."
)
@click.option(
    "--junit", metavar="FILE", help="Write conditions and contract as JUnit XML; - is stdout."
)
@price_options
@epochs_option
@json_option("stepscope.comparison.Comparison", has_ids=True)
def command(base: str, run: str, **values: Any) -> int:
    return _compare(base, run, CompareOptions(**values))


def _compare(base: str, run: str, options: CompareOptions) -> int:
    """Compare two runs, write the results, and return the exit code."""
    _check(options)
    conditions = [parse_condition(text) for text in options.conditions]
    groups = parse_allowed_groups(options.allowed)
    request = cost.PriceRequest(
        usd_per_hour=options.usd_per_hour,
        instance_type=options.instance_type,
        prices=options.prices,
    )
    terms: dict[str, Any] = {
        "epochs": options.epochs,
        "conditions": conditions,
        "allowed": groups,
        "strict": options.strict,
    }
    if is_summary(Path(base)) or is_summary(Path(run)):
        summaries = [_summarised(location, request) for location in (base, run)]
        comparison, is_of_two = compare_summaries(summaries[0], summaries[1], **terms), False
    else:
        locations = [resolve_run(base), resolve_run(run)]
        before, after = (_priced(location, request) for location in locations)
        comparison = compare_runs(before, after, **terms)
        is_of_two = len(before) == len(after) == 1
    _write_outputs(comparison, options, base, has_ids=is_of_two and options.prices is None)
    return _status(comparison)


def _write_outputs(
    comparison: Comparison, options: CompareOptions, base: str, *, has_ids: bool
) -> None:
    if options.markdown is not None:
        from stepscope.cli.writers.compare_files import markdown_of

        write_file(options.markdown, markdown_of(comparison))
    if options.junit is not None:
        from stepscope.cli.writers.compare_files import junit_of

        write_file(options.junit, junit_of(comparison))
    if options.as_json:
        of_ids = {
            "base": locate(base),
            "fail_if": options.conditions,
            "strict": options.strict,
            "allow_different": options.allowed,
            "usd_per_hour": options.usd_per_hour,
            "instance_type": options.instance_type,
            "epochs": options.epochs,
        }
        print_rows(comparison, "compare", of_ids, has_ids=has_ids)
    elif STDOUT not in {options.markdown, options.junit}:
        # Only text needs these imports; `--json` must start fast.
        from stepscope.cli.text import console
        from stepscope.cli.writers import write

        write(console(), comparison)


def _summarised(location: str, request: cost.PriceRequest) -> RunSummary:
    """Read the summary of a file, or make that of a run."""
    if is_summary(Path(location)):
        return read_summary(Path(location))
    runs = _priced(resolve_run(location), request)
    if len(runs) > 1:
        raise errors.UsageError(
            f"{location} holds {len(runs)} runs, and a summary is compared with one; pass one run."
        )
    return summarise_run(runs[0])


def _priced(location: str, request: cost.PriceRequest) -> list[Run]:
    """Apply the requested price to the runs, for cost, conditions and savings."""
    runs = []
    for run in store.repeated_runs(location):
        reader = store.open_run(run)
        reader.info = cost.apply_price(reader.info, reader.nodes().values(), request)
        runs.append(Run(reader))
    return runs


def _check(options: CompareOptions) -> None:
    """Reject options that contradict each other.

    Raises:
        UsageError: options contradict each other.
    """
    outputs = (options.markdown, options.junit)
    if (options.strict or options.allowed) and not options.conditions:
        option = "--strict" if options.strict else "--allow-different"
        raise errors.UsageError(f"{option} requires a condition; add one with --fail-if.")
    if (*outputs, STDOUT if options.as_json else None).count(STDOUT) > 1:
        raise errors.UsageError("Only one of --json, --markdown and --junit can go to stdout.")
    for output in outputs:
        if output not in {None, STDOUT} and not Path(str(output)).parent.is_dir():
            raise errors.UsageError(
                f"{Path(str(output)).parent} is not a directory; create it first."
            )


def _status(comparison: Comparison) -> int:
    if comparison.gate is None or comparison.gate.outcome == "passed":
        return 0
    return FAILED if comparison.gate.outcome == "failed" else NOT_COMPARABLE
