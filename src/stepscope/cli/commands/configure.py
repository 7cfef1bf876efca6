"""`stepscope configure RUN`: show or change the configuration of a running job."""

from __future__ import annotations

import socket
import time
from typing import Any

import click

from stepscope import errors, schema, store
from stepscope.cli.options import common
from stepscope.cli.options.windows import ScheduleOptions, depth_options, schedule_options
from stepscope.cli.output import print_json, say
from stepscope.cli.text import console
from stepscope.quantities import duration
from stepscope.run import Run, has_ended
from stepscope.watch import ConfigurationEdit, read_decision, request_configuration, user_name

ANSWER_TIMEOUT_S = 20.0
"""Time that the monitor gets to decide on a change."""
POLL_S = 0.2


class ConfigureOptions(ScheduleOptions, frozen=True, kw_only=True):
    """Options of `stepscope configure`."""

    interval_ms: str | None
    names: tuple[str, ...]
    without_rules: tuple[str, ...]
    assignments: tuple[str, ...]
    no_windows: bool
    automatic: bool | None
    as_json: bool

    @property
    def edit(self) -> ConfigurationEdit:
        """The requested changes.

        Raises:
            UsageError: options contradict each other.
        """
        if self.num_steps and not self.start_steps:
            raise errors.UsageError(
                "--num-steps requires --start-step; for a window now, use `stepscope capture RUN`."
            )
        return ConfigurationEdit(
            interval_ms=None if self.interval_ms is None else int(self.interval_ms),
            automatic=self.automatic,
            clear_schedules=self.no_windows,
            schedules=tuple(self.planned),
            rules=self.names,
            without_rules=self.without_rules,
            assignments=self.assignments,
        )


@click.command(
    "configure",
    help="Change the sampling interval, the rules and the scheduled windows of a running job, and "
    "record the change in RUN. Without options, show the present configuration and its changes.",
)
@common.run_argument
@click.option(
    "--interval",
    "--interval-ms",
    "interval_ms",
    type=click.Choice([str(ms) for ms in schema.INTERVALS_MS]),
    help="Milliseconds between samples of the node.",
)
@common.rule_option
@click.option(
    "--without-rule",
    "without_rules",
    multiple=True,
    callback=common.parsed_by(common.split_names),
    metavar="RULE,…",
    help="Rules to evaluate no longer; may be repeated.",
)
@common.set_option("--rules-config of the job")
@schedule_options
@click.option("--no-windows", is_flag=True, help="Remove all scheduled windows, before others are "
              "added.")  # fmt: skip
@click.option(
    "--automatic/--no-automatic",
    "automatic",
    default=None,
    help="Record automatic windows and those after a slowdown, or not.",
)
@depth_options
@common.json_option("stepscope.views.ConfigurationView")
def command(run: str, **values: Any) -> None:
    _configure(run, ConfigureOptions(**values))


def _configure(run: str, options: ConfigureOptions) -> None:
    """Change the configuration if that is requested, and show it.

    Raises:
        UsageError: the change is refused; nothing has changed.
        StepscopeError: no monitor responds.
    """
    reader, edit = store.open_run(run), options.edit
    if edit != ConfigurationEdit():
        by = f"{user_name()} on {socket.gethostname()} with stepscope configure"
        number = request_configuration(run, run, reader, edit, by=by)
        if number is None:
            say("Nothing to change.")
        else:
            _await_decision(run, number, reader)
    from stepscope.cli.writers import write
    from stepscope.views import VIEWS, ViewOptions

    payload = VIEWS["configuration"](Run(store.open_run(run)), ViewOptions())
    if options.as_json:
        print_json(payload)
    else:
        write(console(), payload)


def _await_decision(run: str, number: int, reader: store.RunReader) -> None:
    """Wait until the monitors have applied a change.

    Raises:
        UsageError: they refuse it.
        StepscopeError: they do not respond.
    """
    start_s = time.monotonic()
    while True:
        is_over = has_ended(reader.statuses().values())
        decision = read_decision(run, number)
        if decision is not None:
            break
        if is_over:
            raise errors.StepscopeError("The job ended before the change was applied.")
        waited_s = time.monotonic() - start_s
        if waited_s > ANSWER_TIMEOUT_S:
            raise errors.StepscopeError(
                f"The monitor did not respond within {duration(1e9 * waited_s)}; it applies the "
                "change when it does."
            )
        time.sleep(POLL_S)
    if decision.refusal is not None:
        raise errors.UsageError(f"{decision.refusal}; nothing was changed")
