"""Changes of the configuration of a running job, as of `stepscope configure`."""

from __future__ import annotations

from stepscope.errors import StepscopeError, UsageError
from stepscope.run import Run, find_listening_nodes, has_ended
from stepscope.schema import WindowSchedule
from stepscope.server.open_runs import OpenRuns
from stepscope.server.payloads import (
    ConfigureAccepted,
    ConfigureProgress,
    ConfigureRequest,
    ScheduleRequest,
)
from stepscope.watch import (
    ConfigurationEdit,
    read_decision,
    request_configuration,
    user_name,
)

JOB_ENDED = "the job ended before the change was applied"


def configure(
    runs: OpenRuns, *, location: str, revision: int, request: ConfigureRequest, client: str
) -> ConfigureAccepted:
    """Request a change of the configuration.

    Raises:
        UsageError: the job cannot be changed, or the change is not valid.
    """
    names = (*request.rules, *request.without_rules, *request.assignments)
    if any(":" in name for name in names):
        # Loading a file runs it, with the rights of the server.
        raise UsageError(
            "a rule in a file can be changed with `stepscope configure RUN --rule FILE:RULE` only"
        )
    number = request_configuration(
        request.run,
        location,
        runs.open(location, revision).reader,
        ConfigurationEdit(
            interval_ms=None if request.interval_ns is None else request.interval_ns // 1_000_000,
            automatic=request.automatic,
            clear_schedules=request.clear_schedules,
            schedules=tuple(_make_schedule(schedule) for schedule in request.schedules),
            rules=tuple(request.rules),
            without_rules=tuple(request.without_rules),
            assignments=tuple(request.assignments),
        ),
        by=f"{user_name()} in the web UI (from {client})",
    )
    return ConfigureAccepted(number=number)


def _make_schedule(request: ScheduleRequest) -> WindowSchedule:
    if request.interval is not None and request.interval <= request.step_count:
        raise UsageError(
            f"windows of {request.step_count} steps would overlap every {request.interval} steps"
        )
    return WindowSchedule(
        first_step=request.first_step, step_count=request.step_count, interval=request.interval
    )


def configure_progress(
    runs: OpenRuns, *, location: str, revision: int, number: int
) -> ConfigureProgress:
    """Read the decision of the monitors on a change."""
    decision = read_decision(location, number)
    statuses = runs.open(location, revision).reader.statuses().values()
    job_is_over = has_ended(statuses)
    failure = JOB_ENDED if decision is None and job_is_over else None
    return ConfigureProgress(
        number=number,
        finished=decision is not None or job_is_over,
        failure=failure if decision is None else decision.refusal,
    )


def configure_obstacle(run: Run) -> str | None:
    """Reason why the configuration cannot be changed now; None when it can."""
    try:
        find_listening_nodes(run.reader.info.run_id, run.reader)
    except UsageError as error:
        return str(error)
    except (StepscopeError, OSError) as error:
        return f"the run is not writable: {error}"
    return None
