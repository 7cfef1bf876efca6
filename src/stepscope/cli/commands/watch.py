"""`stepscope watch RUN`: a running job, live in the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
from rich.live import Live

from stepscope import rule_feed, schema, store
from stepscope.cli.opening import say_recovery
from stepscope.cli.options.common import json_option, run_argument, scan_option
from stepscope.cli.output import print_json_line
from stepscope.cli.text import console
from stepscope.cli.writers.live import live_text
from stepscope.watch import Observer, Pause, follow_records


@click.command(
    "watch",
    help="Show the state, pace, suspect and findings of a running job. Ends with the job, or with "
    "Ctrl-C, which does not affect the job; a finished run is shown once.",
)
@run_argument
@scan_option("Interval of rule evaluation if the job does not evaluate rules.")
@json_option("stepscope.watch.LiveView", form="lines")
def command(run: str, scan_interval: float, as_json: bool) -> None:
    reader = store.open_run(run)
    say_recovery(reader)
    try:
        if as_json:
            _print_lines(reader, scan_interval)
        else:
            _show(reader, scan_interval)
    except KeyboardInterrupt:
        pass


def _print_lines(reader: store.RunReader, scan_s: float) -> None:
    """Print one line of JSON per scan."""
    observer = Observer(reader)
    for record in _scans(reader, scan_s):
        print_json_line(observer.observe(record))


def _show(reader: store.RunReader, scan_s: float) -> None:
    """Show a picture that is updated in place; without a terminal, print one per scan."""
    out, observer = console(), Observer(reader)
    if not out.is_terminal:
        for record in _scans(reader, scan_s):
            out.print(live_text(observer.observe(record)), soft_wrap=True)
            out.print()
        return
    latest: schema.RuleRecord | None = None
    with Live(console=out, auto_refresh=False) as live:

        def refresh(seconds: float) -> bool:
            if latest is not None:
                live.update(live_text(observer.observe(latest)), refresh=True)
            return _sleep(seconds)

        for record in _records(reader, scan_s, refresh):
            latest = record
            live.update(live_text(observer.observe(latest)), refresh=True)


def _scans(reader: store.RunReader, scan_s: float) -> Iterator[schema.RuleRecord]:
    """Yield the first record of each scan; later ones only add deliveries."""
    before: tuple[int | None, schema.Progress] = None, "running"
    for record in _records(reader, scan_s, _sleep):
        if (record.end_ns, record.progress) != before:
            before = record.end_ns, record.progress
            yield record


def _records(reader: store.RunReader, scan_s: float, pause: Pause) -> Iterator[schema.RuleRecord]:
    return follow_records(reader, rule_feed.choose_rules, scan_ns=round(1e9 * scan_s), pause=pause)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return True
