"""`stepscope try RUN`: measure a fix by running the job with and without it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.text import Text

from stepscope import diagnosis, errors, quantities, schema, store, trials
from stepscope.cli.job.launcher import stop_is_pending
from stepscope.cli.options.common import json_option, run_argument
from stepscope.cli.output import print_json, say
from stepscope.cli.text import console
from stepscope.diagnosis import describe_outcome
from stepscope.quantities import duration, percent
from stepscope.run import Run

DEFAULT_PAIRS = 5
MIN_LOSS_DIFFERENCE = 0.001
"""Smaller relative differences of losses are called equal, up to the difference."""


class TryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `stepscope try`."""

    fix: str | None = None
    changes: tuple[str, ...] = ()
    steps: int | None = None
    pairs: int = DEFAULT_PAIRS
    allow_different_results: bool = False
    in_place: bool = False


@click.command(
    "try",
    help="Measure a fix of RUN: run the job's own command for some steps, alternately without and "
    "with one change, and compare.\n\n"
    "No file of the job is edited. Every trial really runs the first steps of the job. The files "
    "that they write are discarded where the kernel lets this user mount overlays; elsewhere "
    "nothing runs without --in-place. What the job sends over a network is sent. CMD replaces "
    "the recorded command.",
)
@run_argument
@click.option(
    "--fix",
    metavar="N|all",
    help="Number of a fix in `stepscope diagnose RUN`, or all. Default: the first that can be "
    "tried.",
)
@click.option(
    "--change",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change to try instead of a fix, such as num_workers=2; several are tried together.",
)
@click.option("--steps", type=click.IntRange(min=10), help="Measured steps per trial.")
@click.option(
    "--pairs",
    type=click.IntRange(min=trials.MIN_PAIRS),
    default=DEFAULT_PAIRS,
    show_default=True,
    help="Pairs of trials without and with the change.",
)
@click.option(
    "--allow-different-results",
    is_flag=True,
    help="Allow changes with which the job computes something else, such as another batch size.",
)
@click.option("--in-place", is_flag=True, help="Let the trials write the files of the job.")
@json_option("stepscope.schema.TriedChange", form="list")
@click.argument("command", nargs=-1, metavar="[-- CMD…]", type=click.UNPROCESSED)
def command(run: str, command: tuple[str, ...], as_json: bool, **values: Any) -> None:
    options = TryOptions(**values)
    if options.fix is not None and options.changes:
        raise errors.UsageError("Give --fix or --change, not both.")
    out = None if as_json else console()
    outcomes = try_changes(run, options, out, command=command)
    if as_json:
        print_json(outcomes)


def try_changes(
    location: str,
    options: TryOptions,
    out: Console | None,
    *,
    command: Sequence[str] = (),
    should_stop: Callable[[], bool] = lambda: False,
) -> list[schema.TriedChange]:
    """Try changes, store the outcomes in the run and write them.

    Args:
        out: console for the outcomes; None to write nothing.
        command: replaces the recorded command.
        should_stop: True ends the trials.

    Raises:
        StepscopeError: nothing can be tried, or a single candidate has no result.
        KeyboardInterrupt: interrupted; finished outcomes are stored.
    """
    if store.is_remote(location):
        raise errors.UsageError("A trial needs the job's machine and a local run directory.")
    run = Run(store.open_run(location))
    source = trials.JobSource.of_run(run, command)
    verdict = diagnosis.diagnose(run)
    candidates = trials.choose_candidates(
        verdict,
        fix=options.fix,
        changes=trials.parse_changes(options.changes),
        allow_different_results=options.allow_different_results,
        is_map_style=_is_map_style(run),
    )
    if not options.in_place:
        _check_isolation(Path(source.directory))
    session = trials.TrialSession(
        run=run,
        source=source,
        pair_count=options.pairs,
        steps=options.steps,
        is_isolated=not options.in_place,
        should_stop=should_stop,
        on_progress=say,
    )
    for note in source.notes:
        say(note)
    outcomes = []
    for candidate in candidates:
        say(f"trying {candidate.title}")
        try:
            outcome = session.try_candidate(candidate, verdict.cause)
        except errors.TrialError as error:
            if len(candidates) == 1:
                raise
            say(str(error))
            continue
        _store(location, outcome)
        outcomes.append(outcome)
        if out is not None:
            write_outcome(out, candidate, outcome)
    return outcomes


def _is_map_style(run: Run) -> bool:
    """Return True if the training data are known to be those of a map-style dataset."""
    loader = run.ranks[0].loader if run.ranks else None
    return loader is not None and loader.iterable is False


def _check_isolation(directory: Path) -> None:
    """Check that the files that trials write can be discarded; name the paths where not.

    Raises:
        UsageError: they cannot, or not in the working directory of the job.
    """
    real = trials.find_real_directories()
    if real is None or any(directory.is_relative_to(path) for path in real):
        raise errors.UsageError(
            "This machine cannot discard the files that a trial writes (no user namespaces or "
            "overlays). The job's first steps would write for real: pass --in-place to accept that."
        )
    if real:
        say(f"Files that a trial writes in {', '.join(real)} are not discarded.")


def _store(location: str, outcome: schema.TriedChange) -> None:
    names = "+".join(f"{change.name}={change.value}" for change in outcome.changes)
    moment = time.strftime("%Y%m%d-%H%M%S", time.localtime(outcome.created_ns / 1e9))
    with store.RunWriter(location, outcome.node) as writer:
        for attempt in ("", *(f"-{n}" for n in range(2, 100))):
            if writer.add_document(diagnosis.TRIES, f"{moment}-{names}{attempt}", outcome):
                return


def write_outcome(out: Console, candidate: trials.Candidate, outcome: schema.TriedChange) -> None:
    """Write the outcome of a trial as text."""
    out.print()
    number = "" if candidate.number is None else f"Fix {candidate.number}: "
    out.print(Text(f"{number}{candidate.title}", style="bold"))
    base = _mean([pair.base_step_ns for pair in outcome.pairs])
    changed = _mean([pair.changed_step_ns for pair in outcome.pairs])
    lines = [
        f"Measured: {describe_outcome(outcome)}, confidence {percent(outcome.confidence_ratio)}. "
        f"Mean step {duration(base)} without, {duration(changed)} with the change.",
        f"Predicted: {diagnosis.describe_prediction(outcome) or 'nothing'}.",
        f"Each trial: {quantities.count_of(outcome.step_count, 'measured step')} after "
        f"{outcome.warmup_step_count} of warm-up, from the start of the job.",
        describe_losses(outcome.losses),
        *(f"In the script: {line}" for line in candidate.lines),
    ]
    for line in lines:
        out.print(Text(f"  {line}"))


def describe_losses(losses: schema.LossComparison | None) -> str:
    """Describe the losses with a change beside those without."""
    if losses is None:
        return "Losses: not compared."
    count = quantities.count_of(losses.loss_count, "first loss", "first losses")
    difference = losses.max_relative_difference
    if not difference:
        return f"Losses: identical ({count})."
    is_large = difference >= MIN_LOSS_DIFFERENCE
    relation = "differ by up to" if is_large else "equal up to"
    text = f"Losses: {relation} {_describe_ratio(difference)} ({count})"
    if losses.own_relative_difference:
        variation = _describe_ratio(losses.own_relative_difference)
        text += f"; trials without the change differ by up to {variation}"
    return f"{text}."


def _describe_ratio(ratio: float) -> str:
    if ratio < MIN_LOSS_DIFFERENCE:
        return f"{ratio:.0e} of their value"
    return percent(ratio, 1 if ratio < 0.1 else 0)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def try_first_fix(location: Path, command: Sequence[str], out: Console | None) -> None:
    """Measure the first fix that can be tried; say why where there is none.

    Args:
        out: console for the outcome; None to write nothing.
    """
    try:
        try_changes(str(location), TryOptions(), out, command=command, should_stop=stop_is_pending)
    except KeyboardInterrupt:
        say("The trial was interrupted.")
    except Exception as error:  # noqa: BLE001 - the job's exit status comes first
        say(f"No fix was tried: {error}")
