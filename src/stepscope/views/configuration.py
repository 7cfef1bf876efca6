"""`configuration`: settings of a job's recording that can change while it runs, and their changes.

A range of time does not restrict it: a setting holds until its next change.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from stepscope.run import (
    ConfigurationChange,
    ConfigurationHistory,
    Run,
    describe_schedule,
    read_configuration,
)
from stepscope.schema import INTERVALS_MS, Payload, RuleSelection, field_label
from stepscope.views.options import DEFAULTS, ViewOptions

NOT_RECORDED = "no job was recorded into this run, so that there is no configuration"


class ChangedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """Setting that was changed while the job ran, or was to be changed."""

    changed_ns: Annotated[int, field_label("time", unit="epoch_ns")]
    """When the change took effect; of one without effect, when it was requested."""
    setting: str
    before: str
    after: str
    by: Annotated[str, field_label("requested by")]
    state: Literal["applied", "refused", "pending"]
    reason: str | None
    """Reason of a refusal."""


class ConfigurationView(Payload, frozen=True, kw_only=True):
    """Payload of `configuration`."""

    interval_ns: Annotated[int | None, field_label("sampling interval")]
    interval_choices_ns: list[int]
    """Sampling intervals that can be chosen."""
    automatic_windows: Annotated[bool, field_label("automatic windows")]
    """True if a few steps are recorded in detail without a request."""
    schedules: Annotated[list[str], field_label("scheduled windows")]
    rules: list[str]
    """Rules that are evaluated while the job runs."""
    other_rules: list[str]
    """Installed rules that are not evaluated."""
    parameters: Annotated[list[str], field_label("parameters of rules")]
    """Parameters that were set: `Name.parameter=value`."""
    changes: list[ChangedSetting]
    """Changes while the job ran, in the order of time."""
    missing: str | None


def show_configuration(run: Run, _options: ViewOptions = DEFAULTS) -> ConfigurationView:
    """Show the configuration of a job, and its changes."""
    from stepscope.rule_feed import list_rules  # 0.1 s that the overview does not need

    history = read_configuration(run.reader)
    current = history.current
    rules = [] if current.rules is None else list_rules(current.rules)
    evaluated = {name.rpartition(":")[2] for name in rules}
    installed = list_rules(RuleSelection())
    return ConfigurationView(
        interval_ns=current.interval_ms * 1_000_000 or None,
        interval_choices_ns=[1_000_000 * ms for ms in INTERVALS_MS],
        automatic_windows=current.window == "auto",
        schedules=[describe_schedule(schedule) for schedule in current.schedules],
        rules=rules,
        other_rules=[name for name in installed if name not in evaluated],
        parameters=[] if current.rules is None else current.rules.assignments,
        changes=_list_changes(history),
        missing=None if current.interval_ms else NOT_RECORDED,
    )


def list_applied_changes(run: Run) -> list[ChangedSetting]:
    """List the settings that were changed while the job ran."""
    changes = _list_changes(read_configuration(run.reader))
    return [change for change in changes if change.state == "applied"]


def _list_changes(history: ConfigurationHistory) -> list[ChangedSetting]:
    return [row for change in history.changes for row in _list_settings(change)]


def _list_settings(change: ConfigurationChange) -> list[ChangedSetting]:
    request, decision = change.request, change.decision
    is_applied = decision is not None and decision.configuration is not None
    return [
        ChangedSetting(
            changed_ns=decision.decided_ns
            if decision is not None and is_applied
            else request.requested_ns,
            setting=setting.setting,
            before=setting.before,
            after=setting.after,
            by=request.by,
            state="applied" if is_applied else "pending" if decision is None else "refused",
            reason=None if decision is None else decision.refusal,
        )
        for setting in change.settings
    ]
