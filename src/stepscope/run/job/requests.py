"""Requests from outside the job, for windows and for changes of its configuration.

Used by `stepscope capture` and by the web UI.

Configuration of a job's recording, and its history. Used by `stepscope configure`, by the web UI
and by views.
"""

from __future__ import annotations

import itertools
import math
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from stepscope import errors, quantities, schema, spool, store
from stepscope.quantities import duration

MAX_REQUESTED_STEPS = 10_000
GROWTH_CENSUS = "memory-growth"
"""Name of the request for censuses that is made because memory grows."""


class WindowContents(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a window."""

    depth: str
    options: list[str]


def choose_contents(*, full: bool, **flags: bool) -> WindowContents:
    """Translate flags into window contents.

    Raises:
        UsageError: a light window cannot hold the requested contents.
    """
    options = [name for name in spool.OPTIONS if flags[name]]
    if options and not full:
        raise errors.UsageError(
            f"a light window has no operators; leave out --light or --{options[0]}"
        )
    return WindowContents(depth=spool.Depth.FULL if full else spool.Depth.LIGHT, options=options)


def make_window_request(
    contents: WindowContents, *, steps: int | None = None, seconds: float | None = None
) -> store.WindowRequest:
    """Create a request for a window of some steps or seconds, with a unique name."""
    return store.WindowRequest(
        name=_new_name(),
        asked_ns=time.time_ns(),
        step_count=steps,
        duration_ns=None if seconds is None else round(1e9 * seconds),
        depth=contents.depth,
        options=contents.options,
    )


def make_census_request() -> store.WindowRequest:
    """Create a request for a census of memory, with a unique name."""
    return store.WindowRequest(name=_new_name(), asked_ns=time.time_ns(), is_census=True)


def request_growth_census(
    location: str, pids: dict[str, list[int]], *, is_early: bool = False
) -> None:
    """Request censuses of the processes that grow, once in a run, and once at its start.

    Args:
        location: the run.
        pids: the processes by node.
        is_early: at the start, where a cache that fills may look like a leak.
    """
    name = f"{GROWTH_CENSUS}-at-start" if is_early else GROWTH_CENSUS
    request = store.WindowRequest(
        name=name, asked_ns=time.time_ns(), reason=GROWTH_CENSUS, is_census=True, pids=pids
    )
    send_window_request(location, request)


def _new_name() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def send_window_request(location: str, request: store.WindowRequest) -> None:
    """Write a request into the run, from which the monitors of all nodes read it."""
    store.WindowRequests(location).send(request)


def check_windows_enabled(run: str, reader: store.RunReader) -> None:
    """Raise UsageError if the job of a run cannot record windows."""
    if reader.info.options.get("window") != "off":
        return
    if reader.info.attached_pid is not None:
        raise errors.UsageError(
            f"the job of {run} was not started with KINETO_USE_DAEMON=1, without which no window "
            "can be opened from outside"
        )
    raise errors.UsageError(f"the job of {run} was started with --window off")


def read_request_statuses(
    location: str, name: str, nodes: Iterable[str]
) -> dict[str, store.RequestStatus]:
    """Read the statuses of a request by node; nodes without a status are omitted."""
    requests = store.WindowRequests(location)
    statuses = {node: requests.read_status(name, node) for node in nodes}
    return {node: status for node, status in statuses.items() if status is not None}


def find_listening_nodes(run: str, reader: store.RunReader) -> list[str]:
    """List the nodes with a listening monitor.

    Raises:
        UsageError: no monitor is listening.
    """
    if not reader.is_local:
        raise errors.UsageError(
            f"{run} is in an object store, where no monitor looks for requests; name the directory "
            "that the job is recorded into"
        )
    statuses = reader.statuses()
    if not statuses:
        raise errors.UsageError(f"no monitor has written to {run} yet; is its job running?")
    running = {node: status for node, status in statuses.items() if not status.state.is_final}
    if not running:
        raise errors.UsageError(f"the job of {run} is over")
    from stepscope.run.job.times import is_lost  # NumPy, which a start of a job does without

    listening = [node for node, status in running.items() if not is_lost(status)]
    if not listening:
        age = min((time.time_ns() - status.heartbeat_ns) / 1e9 for status in running.values())
        raise errors.UsageError(
            f"the monitor of {run} has sent no heartbeat for {duration(1e9 * age)}; if the job is "
            f"gone, recover the rest with: stepscope recover {run}"
        )
    return listening


NONE = "none"
_UNITS_PER_S = 1000
"""Resolution at which schedules in time are compared."""


class SettingChange(msgspec.Struct, frozen=True, kw_only=True):
    """One setting before and after a change of the configuration, as text."""

    setting: str
    before: str
    after: str


class ConfigurationChange(msgspec.Struct, frozen=True, kw_only=True):
    """One request to change the configuration, with the decision on it."""

    request: schema.ConfigurationRequest
    decision: schema.ConfigurationDecision | None
    """None while no monitor has decided."""
    settings: list[SettingChange]
    """Requested changes."""


class ConfigurationHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of a job over time."""

    current: schema.JobConfiguration
    changes: list[ConfigurationChange]

    @property
    def is_pending(self) -> bool:
        """True while a request waits for a decision."""
        return any(change.decision is None for change in self.changes)


def read_configuration(reader: store.RunReader) -> ConfigurationHistory:
    """Read the configuration of a job and its changes so far."""
    requests = reader.documents(store.CONFIGURATION_REQUESTS, schema.ConfigurationRequest)
    decisions = reader.documents(store.CONFIGURATION_DECISIONS, schema.ConfigurationDecision)
    current, changes = _initial_configuration(reader.info), []
    for name, request in sorted(requests.items(), key=lambda item: item[1].number):
        decision = decisions.get(name)
        settings = list(describe_changes(current, request.configuration))
        changes.append(ConfigurationChange(request=request, decision=decision, settings=settings))
        if decision is not None and decision.configuration is not None:
            current = decision.configuration
    return ConfigurationHistory(current=current, changes=changes)


def _initial_configuration(info: schema.RunInfo) -> schema.JobConfiguration:
    options = info.options
    schedules = options.get("windows") or []
    return schema.JobConfiguration(
        interval_ms=options.get("interval_ms", 0),
        window=options.get("window", "auto"),
        schedules=msgspec.convert(
            [schedules] if isinstance(schedules, dict) else schedules, list[schema.WindowSchedule]
        ),
        rules=_initial_rules(options.get("rules"), Path(info.working_directory)),
    )


def _initial_rules(recorded: dict[str, Any] | None, directory: Path) -> schema.RuleSelection | None:
    if recorded is None:
        return None
    return schema.RuleSelection(
        names=[_absolute(name, directory) for name in recorded.get("names", [])],
        config=recorded.get("config"),
        assignments=recorded.get("set", []),
    )


def _absolute(name: str, directory: Path) -> str:
    """Make the path of a rule in a file absolute: the reader may be in another directory."""
    path, colon, rule = name.rpartition(":")
    return f"{directory / path}:{rule}" if colon else name


def describe_changes(
    before: schema.JobConfiguration, after: schema.JobConfiguration
) -> Iterator[SettingChange]:
    """Describe the settings in which two configurations differ."""
    texts = (
        ("sampling interval", *(duration(1e6 * c.interval_ms) for c in (before, after))),
        ("automatic windows", *("on" if c.window == "auto" else "off" for c in (before, after))),
    )
    for setting, old, new in texts:
        if old != new:
            yield SettingChange(setting=setting, before=old, after=new)
    for schedule in before.schedules:
        if schedule not in after.schedules:
            yield SettingChange(
                setting="scheduled window", before=describe_schedule(schedule), after=NONE
            )
    for schedule in after.schedules:
        if schedule not in before.schedules:
            yield SettingChange(
                setting="scheduled window", before=NONE, after=describe_schedule(schedule)
            )
    if before.rules != after.rules and before.rules is not None and after.rules is not None:
        yield from _describe_rule_changes(before.rules, after.rules)


def _describe_rule_changes(
    before: schema.RuleSelection, after: schema.RuleSelection
) -> Iterator[SettingChange]:
    old, new = describe_rules(before), describe_rules(after)
    if old != new:
        yield SettingChange(setting="rules", before=old, after=new)
    old_values, new_values = read_assigned(before), read_assigned(after)
    for name in dict.fromkeys([*old_values, *new_values]):
        if old_values.get(name) != new_values.get(name):
            default = "value of the file or default" if after.config else "default"
            yield SettingChange(
                setting=name,
                before=old_values.get(name, default),
                after=new_values.get(name, default),
            )


def describe_rules(selection: schema.RuleSelection) -> str:
    """Describe the evaluated rules."""
    if selection.names:
        return ", ".join(selection.names)
    return f"all but {', '.join(selection.without)}" if selection.without else "all"


def read_assigned(selection: schema.RuleSelection) -> dict[str, str]:
    """Return the assigned values of parameters, by `Name.parameter`."""
    pairs = (text.partition("=") for text in selection.assignments)
    return {name.strip(): value.strip() for name, _, value in pairs}


def check_schedules(schedules: Iterable[schema.WindowSchedule]) -> None:
    """Check that no windows of different schedules overlap.

    That is not known of windows in steps and windows in time.

    Raises:
        UsageError: two schedules overlap.
    """
    for first, second in itertools.combinations(schedules, 2):
        if (first.first_step is None) != (second.first_step is None):
            continue
        start = spool.find_overlap(_to_windows(first), _to_windows(second))
        if start is not None:
            position = f"step {start}"
            if first.first_step is None:
                position = f"{duration(1e9 * start / _UNITS_PER_S)} after the start"
            raise errors.UsageError(
                "windows must not overlap and need a gap, which these do not have at "
                f"{position}: {describe_schedule(first)}; {describe_schedule(second)}"
            )


def _to_windows(schedule: schema.WindowSchedule) -> spool.ScheduledWindows:
    """Return the windows of a schedule; those in time have milliseconds in place of steps."""
    if schedule.first_step is not None:
        return spool.ScheduledWindows.copy(schedule)
    scaled = {
        "first_step": round(_UNITS_PER_S * (schedule.start_s or 0)),
        "step_count": math.ceil(_UNITS_PER_S * (schedule.duration_s or 0)),
        "min_start": _UNITS_PER_S * schedule.min_start,
    }
    if schedule.interval is not None:
        scaled["interval"] = _UNITS_PER_S * schedule.interval
    return spool.ScheduledWindows.copy(msgspec.structs.replace(schedule, **scaled))


def describe_schedule(schedule: schema.WindowSchedule) -> str:
    """Describe a schedule of windows, such as `steps 100 to 119 every 500 steps`."""
    if schedule.first_step is not None:
        first, count = schedule.first_step, schedule.step_count or 1
        text = f"step {first}" if count == 1 else f"steps {first} to {first + count - 1}"
        repeat = (
            None if schedule.interval is None else f"{quantities.number(schedule.interval)} steps"
        )
    else:
        start, length = 1e9 * (schedule.start_s or 0), 1e9 * (schedule.duration_s or 0)
        text = f"{duration(length)} from {duration(start)} after the start"
        repeat = None if schedule.interval is None else duration(1e9 * schedule.interval)
    parts = [text]
    if repeat is not None:
        times = "" if schedule.repeat_count is None else f" {schedule.repeat_count} times"
        parts.append(f"every {repeat}{times}")
    if schedule.warmup_count:
        parts.append(f"after {schedule.warmup_count} warm-up steps")
    if schedule.depth == spool.Depth.LIGHT:
        parts.append("without operators")
    elif schedule.options:
        parts.append(f"with {' and '.join(n for n in spool.OPTIONS if n in schedule.options)}")
    return " ".join(parts)
