"""The text of `configuration`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from stepscope.cli.text import clock_time
from stepscope.cli.writers.generic import write_entries
from stepscope.quantities import duration
from stepscope.views import ChangedSetting, ConfigurationView


def write_configuration(out: Console, payload: ConfigurationView) -> None:
    """Write the configuration of a job, and its changes."""
    if payload.missing is not None:
        out.print(payload.missing)
        return
    other_rules = f" (not: {', '.join(payload.other_rules)})" if payload.other_rules else ""
    rows = {
        "sampling interval": duration(payload.interval_ns),
        "automatic windows": "on" if payload.automatic_windows else "off",
        "scheduled windows": "; ".join(payload.schedules) or "none",
        "rules": f"{', '.join(payload.rules)}{other_rules}" if payload.rules else "none",
        "parameters of rules": ", ".join(payload.parameters) or "defaults",
    }
    write_entries(out, rows.items())
    write_changes(out, payload.changes)


def write_changes(out: Console, changes: Sequence[ChangedSetting]) -> None:
    """Write the changes of a configuration, one line each."""
    for change in changes:
        state = "" if change.state == "applied" else f"; {change.state}"
        reason = f": {change.reason}" if change.reason else ""
        text = f"{change.setting}: {change.before} → {change.after}"
        origin = f"by {change.by}{state}{reason}"
        out.print(f"{clock_time(change.changed_ns)}  {escape(text)}  [dim]{escape(origin)}[/dim]")
