"""Requests to change the configuration of a running job, from a command or the web UI."""

from __future__ import annotations

import time

import msgspec

from stepscope import errors, rule_feed, schema, store
from stepscope.run import (
    check_schedules,
    check_windows_enabled,
    find_listening_nodes,
    read_configuration,
)


class ConfigurationEdit(msgspec.Struct, frozen=True, kw_only=True):
    """Requested changes; a field with its default changes nothing."""

    interval_ms: int | None = None
    automatic: bool | None = None
    """Whether automatic windows are recorded."""
    clear_schedules: bool = False
    """Remove all schedules, before others are added."""
    schedules: tuple[schema.WindowSchedule, ...] = ()
    """Schedules to add."""
    rules: tuple[str, ...] = ()
    """Rules to add."""
    without_rules: tuple[str, ...] = ()
    """Rules to remove."""
    assignments: tuple[str, ...] = ()
    """Parameters of rules: `Name.parameter=value`."""

    @property
    def concerns_windows(self) -> bool:
        """True if a setting of windows is to change."""
        return bool(self.schedules) or self.clear_schedules or self.automatic is not None

    @property
    def concerns_rules(self) -> bool:
        """True if rules or their parameters are to change."""
        return bool(self.rules or self.without_rules or self.assignments)


def request_configuration(
    run: str, location: str, reader: store.RunReader, edit: ConfigurationEdit, *, by: str
) -> int | None:
    """Request a change of the configuration of a running job.

    Args:
        run: the run as the user names it, for messages.
        location: location of the run.
        reader: the run.
        edit: the change.
        by: who requests it, from where.

    Returns:
        Number of the request; None if there is nothing to change.

    Raises:
        UsageError: the job cannot be changed, or the change is not valid.
        OSError: the run cannot be written.
    """
    find_listening_nodes(run, reader)
    history = read_configuration(reader)
    busy = errors.UsageError(f"another change of {run} is being applied; repeat yours afterwards")
    if history.is_pending:
        raise busy
    configuration = apply_edit(run, reader, history.current, edit)
    if configuration == history.current:
        return None
    request = schema.ConfigurationRequest(
        number=len(history.changes) + 1,
        requested_ns=time.time_ns(),
        by=by,
        configuration=configuration,
    )
    if not store.ConfigurationChanges(location).request(request):
        raise busy
    return request.number


def read_decision(location: str, number: int) -> schema.ConfigurationDecision | None:
    """Read the decision on a request; None before it."""
    return store.ConfigurationChanges(location).read_decision(number)


def apply_edit(
    run: str, reader: store.RunReader, current: schema.JobConfiguration, edit: ConfigurationEdit
) -> schema.JobConfiguration:
    """Apply a change to a configuration.

    Raises:
        UsageError: the change is not valid.
    """
    interval_ms = current.interval_ms if edit.interval_ms is None else edit.interval_ms
    if edit.interval_ms is not None and interval_ms not in schema.INTERVALS_MS:
        raise errors.UsageError(
            f"a sampling interval of {interval_ms} ms is not possible; choose one of "
            f"{', '.join(map(str, schema.INTERVALS_MS))} ms"
        )
    window = current.window
    if edit.concerns_windows:
        check_windows_enabled(run, reader)
        if edit.automatic is not None:
            window = "auto" if edit.automatic else "asked"
    schedules = [*([] if edit.clear_schedules else current.schedules), *edit.schedules]
    check_schedules(schedules)
    return msgspec.structs.replace(
        current,
        interval_ms=interval_ms,
        window=window,
        schedules=schedules,
        rules=_edit_rules(run, reader, current.rules, edit),
    )


def _edit_rules(
    run: str, reader: store.RunReader, rules: schema.RuleSelection | None, edit: ConfigurationEdit
) -> schema.RuleSelection | None:
    if not edit.concerns_rules:
        return rules
    if rules is None:
        raise errors.UsageError(
            f"no rule is evaluated while the job of {run} runs: it was started with --no-rules, or "
            "without stepscope run"
        )
    recorded = reader.info.options.get("rules") or {}
    return rule_feed.change_rules(
        rules,
        add=edit.rules,
        remove=edit.without_rules,
        assignments=edit.assignments,
        fixed=[*recorded.get("stop_on", []), *recorded.get("fail_on", [])],
    )
