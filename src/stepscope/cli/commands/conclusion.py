"""End of a recorded job: its verdict, and the trial of the first fix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope import errors, monitor
from stepscope.cli.job.launcher import stop_is_pending
from stepscope.cli.output import locate, print_json, say, suggest
from stepscope.cli.startup import one_thread_in_numpy

if TYPE_CHECKING:
    from rich.console import Console


def conclude(location: str | Path, *, as_json: bool, shown: str | Path | None = None) -> None:
    """Diagnose the run of a job that has ended, store the verdict and print it.

    Args:
        location: the run.
        as_json: print the verdict as JSON.
        shown: location of the run for the user, if it is another one.
    """
    shown = shown or location
    try:
        with one_thread_in_numpy():
            from stepscope.cli.writers.verdict import print_job_verdict
            from stepscope.rule_feed import make_verdict
            from stepscope.run import Run
            from stepscope.store import RunWriter, open_run

        verdict = make_verdict(Run(open_run(location)))
        # Stored first: the terminal may be closed or full.
        try:
            RunWriter(location, monitor.node_name()).put_document("findings", "verdict", verdict)
        except OSError as error:
            say(f"The verdict is not stored in the run: {errors.explain_os_error(error)}.")
        if as_json:
            print_json(verdict)
        else:
            print_job_verdict(verdict, shown)
    except Exception as error:  # noqa: BLE001 - the job's exit status comes first
        again = suggest("diagnose", locate(shown))
        reason = errors.explain_os_error(error).removesuffix(".")
        say(f"The verdict is not available: {reason}. Try: {again}")


def try_first_fix(location: Path, command: Sequence[str], out: Console | None) -> None:
    """Measure the first fix that can be tried; say why where there is none.

    Args:
        out: console for the outcome; None to write nothing.
    """
    from stepscope.cli.commands.try_changes import TryOptions, try_changes

    try:
        try_changes(str(location), TryOptions(), out, command=command, should_stop=stop_is_pending)
    except KeyboardInterrupt:
        say("The trial was interrupted.")
    except Exception as error:  # noqa: BLE001 - the job's exit status comes first
        say(f"No fix was tried: {error}")
