"""`overview`: the job, its status and verdict; `configuration`: settings and their changes.

`configuration`: settings of a job's recording that can change while it runs, and their changes. A
range of time does not restrict it: a setting holds until its next change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from stepscope import analysis, cost, diagnosis, rule_feed, schema
from stepscope.run import (
    ConfigurationChange,
    ConfigurationHistory,
    DividedTrace,
    IncarnationSteps,
    Run,
    Trace,
    describe_schedule,
    divide_traces,
    explain_lost_node,
    is_lost,
    job_borders,
    join_step_durations,
    list_incarnations,
    machine_count,
    node_state,
    read_configuration,
)
from stepscope.views.options import DEFAULTS, Ranged, ViewOptions
from stepscope.views.trace_data import QualityNote, note_run_quality

NOT_RECORDED = "no job was recorded into this run, so that there is no configuration"


class ChangedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """Setting that was changed while the job ran, or was to be changed."""

    changed_ns: Annotated[int, schema.field_label("time", unit="epoch_ns")]
    """When the change took effect; of one without effect, when it was requested."""
    setting: str
    before: str
    after: str
    by: Annotated[str, schema.field_label("requested by")]
    state: Literal["applied", "refused", "pending"]
    reason: str | None
    """Reason of a refusal."""


class ConfigurationView(schema.Payload, frozen=True, kw_only=True):
    """Payload of `configuration`."""

    interval_ns: Annotated[int | None, schema.field_label("sampling interval")]
    interval_choices_ns: list[int]
    """Sampling intervals that can be chosen."""
    automatic_windows: Annotated[bool, schema.field_label("automatic windows")]
    """True if a few steps are recorded in detail without a request."""
    schedules: Annotated[list[str], schema.field_label("scheduled windows")]
    rules: list[str]
    """Rules that are evaluated while the job runs."""
    other_rules: list[str]
    """Installed rules that are not evaluated."""
    parameters: Annotated[list[str], schema.field_label("parameters of rules")]
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
    installed = list_rules(schema.RuleSelection())
    return ConfigurationView(
        interval_ns=current.interval_ms * 1_000_000 or None,
        interval_choices_ns=[1_000_000 * ms for ms in schema.INTERVALS_MS],
        automatic_windows=current.window == "auto",
        schedules=[describe_schedule(schedule) for schedule in current.schedules],
        rules=rules,
        other_rules=[name for name in installed if name not in evaluated],
        parameters=[] if current.rules is None else current.rules.assignments,
        changes=_list_changes(history),
        missing=explain_no_configuration(run),
    )


def explain_no_configuration(run: Run) -> str | None:
    """Explain why a run has no configuration; None if it has one."""
    return None if read_configuration(run.reader).current.interval_ms else NOT_RECORDED


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


NOT_EVALUATED_YET = (
    "rules are evaluated on request: `stepscope rules check RUN` and the view insights do so"
)
NOT_EVALUATED = (
    "no rule was evaluated while the job ran: `stepscope rules check RUN` and the view insights "
    "evaluate rules now"
)


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of the job on one node."""

    node: str
    state: schema.JobState
    reason: str | None
    exit_code: Annotated[int | None, schema.field_label(display="identifier")]
    signal: Annotated[int | None, schema.field_label(display="identifier")]
    started_ns: Annotated[int, schema.field_label(unit="epoch_ns")]
    ended_ns: Annotated[int | None, schema.field_label(unit="epoch_ns")]
    heartbeat_ns: Annotated[int, schema.field_label(unit="epoch_ns")]
    duration_ns: int | None
    """Time from the start to the end or to the last heartbeat; null if unknown."""
    monitor_lost: bool
    """True if the job was in progress at its last heartbeat but has been silent since;
    `stepscope recover RUN` imports the rest."""
    gpu_busy_ratio: float | None
    """Mean over GPUs and samples; null without GPUs."""
    cpu_busy_ratio: float | None
    """Mean over samples, of the cores available to the job."""


class RecordedWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Reason and contents of a window of the job."""

    reason: str
    """`automatic`, `scheduled`, `requested` or `slower`."""
    depth: str
    """`light` or `full`."""
    options: list[str]
    """Contents: some of `shapes`, `stacks`, `memory`, `flops` and `modules`."""
    first_step: Annotated[int, schema.field_label(display="identifier")]
    """Number of its first step, counted from 0."""
    step_count: int


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One trace of the framework's profiler."""

    name: str
    rank: int | None
    start_ns: Annotated[int, schema.field_label("started", unit="epoch_ns")]
    duration_ns: int
    """Time from the start of its first event to the end of its last."""
    event_count: int
    clock_base_ns: Annotated[int | None, schema.field_label(unit="epoch_ns")]
    """Origin of the times in the file, since 1970. Null if the file has none: its times are read as
    microseconds since 1970 and may not be comparable with those of other traces."""
    window: RecordedWindow | None
    """Null for an imported file."""


class StepPart(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of the mean step; they sum to it."""

    phase: str
    mean_ns: float
    share_ratio: float | None


class Money(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of the job: machines x price x time, in US dollars."""

    usd_per_hour: Annotated[float, schema.field_label("price per hour", unit="usd")]
    """Price of one machine."""
    price: cost.PriceUsed
    """Price of one machine with its origin and date."""
    instance_count: Annotated[int, schema.field_label("machines")]
    job_usd: Annotated[float, schema.field_label("cost")]
    """Cost so far, rounded to the cent."""
    step_usd: Annotated[float | None, schema.field_label("cost per step")]
    """Cost of the mean step; null without steps."""
    suspect_step_usd: Annotated[float | None, schema.field_label("suspect's cost per step")]
    """Share of `step_usd` that the suspect owns; null without a bottleneck."""
    fix_savings_usd: Annotated[list[float | None], schema.field_label("savings by fix")]
    """Predicted saving per step of each fix of the verdict; null without a prediction."""


class ShortFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Rule that fired; `insights` has all details."""

    rule: str
    triggered_count: Annotated[int, schema.field_label("triggers")]
    sentence: str
    recommendation: str
    first_after_ns: int | None
    """Time after the run's origin."""
    last_after_ns: int | None
    """Time after the run's origin."""


class Overview(Ranged, frozen=True, kw_only=True):
    """Payload of `overview`."""

    run_id: str
    command: list[str]
    working_directory: str
    created_ns: Annotated[int, schema.field_label(unit="epoch_ns")]
    """When the run directory was created: for traces the time of their import."""
    started_ns: Annotated[int | None, schema.field_label(unit="epoch_ns")]
    """Start of the job, or of the first imported trace; null where its clock is not known."""
    git_revision: str | None
    versions: dict[str, str]
    rank_count: int
    devices: list[str]
    """Models of the GPUs in traces."""
    nodes: list[NodeStatus]
    recordings: list[Recording]
    """Profiler windows of the job, or imported traces."""
    quality: list[QualityNote]
    """Quality issues across traces."""
    verdict: diagnosis.Verdict
    duration_ns: int
    """Time from the start of the job, or of the first trace, to its end or last heartbeat."""
    step_ns: analysis.Statistics | None
    """Measured steps of all ranks; of a run of traces the steps that they mark."""
    step_parts: list[StepPart]
    suspect_step_ns: Annotated[float | None, schema.field_label("suspect's time per step")]
    """Part of the mean step that the suspect owns; null without a bottleneck."""
    gpu_busy_ratio: float | None
    """Mean over nodes, GPUs and samples; of a run of traces the share of step time in which the
    device had any work."""
    cpu_busy_ratio: float | None
    money: Money | None
    money_missing: str | None
    findings: list[ShortFinding]
    """Rules that fired while the job ran, by trigger count."""
    findings_missing: str | None
    configuration_changes: list[ChangedSetting]
    """Settings of the recording that were changed while the job ran."""
    job: str | None
    """Job of several launchers that share the run, as its launcher calls it; null for one."""
    incarnations: list[IncarnationSteps]
    """Starts of the training processes of a restarted job; empty for a job that was started
    once."""


def measure_duration(run: Run, verdict: diagnosis.Verdict) -> int:
    """Measure the duration of the job so far, with its launch where the whole job is accounted
    for; of an imported run, that of its traces."""
    if verdict.job is not None:
        return verdict.job.duration_ns
    start_ns, end_ns = job_borders(run)
    return end_ns - start_ns


def show_overview(run: Run, _options: ViewOptions = DEFAULTS) -> Overview:
    """Show the job, its status, and the verdict."""
    info = run.reader.info
    versions: dict[str, str] = {"stepscope": info.stepscope_version}
    for rank in run.ranks:
        versions |= rank.process.versions
    divided = [] if run.ranks else divide_traces(run)
    verdict = rule_feed.make_verdict(run)
    start_ns, _ = job_borders(run)
    duration_ns = measure_duration(run, verdict)
    statuses = run.reader.statuses()
    nodes = [_show_node(run, node, statuses) for node in sorted(statuses)]
    priced = cost.price_job(
        info, run.nodes.values(), instance_count=machine_count(run.reader), duration_ns=duration_ns
    )
    recorded = rule_feed.recorded_rules(run.reader)
    incarnations = list_incarnations(run)
    return Overview(
        run_id=info.run_id,
        command=info.command,
        working_directory=info.working_directory,
        created_ns=info.created_ns,
        started_ns=_find_start(run, start_ns),
        git_revision=info.git_revision,
        versions=versions,
        rank_count=len(run.ranks) or len({trace.rank for trace in run.traces}),
        devices=_list_devices(run),
        nodes=nodes,
        recordings=[_show_trace(trace) for trace in run.traces],
        quality=note_run_quality(run, run.traces),
        doubts=verdict.doubts,
        verdict=verdict,
        duration_ns=duration_ns,
        step_ns=analysis.summarize(
            join_step_durations(divided) if divided else run.measured_step_ns
        ),
        step_parts=_show_step_parts(verdict),
        suspect_step_ns=verdict.suspect_step_ns,
        gpu_busy_ratio=_measure_busy_ratio(divided)
        if divided
        else analysis.average_present(node.gpu_busy_ratio for node in nodes),
        cpu_busy_ratio=analysis.average_present(node.cpu_busy_ratio for node in nodes),
        money=None if isinstance(priced, str) else _price_verdict(priced, verdict),
        money_missing=priced if isinstance(priced, str) else None,
        findings=_show_findings(run, recorded),
        findings_missing=_explain_no_findings(nodes) if recorded is None else None,
        configuration_changes=list_applied_changes(run),
        job=info.job,
        incarnations=incarnations if len(incarnations) > 1 else [],
    )


def _find_start(run: Run, start_ns: int) -> int | None:
    """Find the start; a trace whose file states no clock base tells none."""
    if run.reader.statuses() or not run.traces:
        return start_ns
    return min((trace.start_ns for trace in run.traces if trace.base_ns), default=None)


def _measure_busy_ratio(divided: Sequence[DividedTrace]) -> float | None:
    """Measure the share of step time in which the devices had work; None without devices, or with
    work that is not understood."""
    if any(one.trace.unknown_devices is not None for one in divided):
        return None
    on_device = [one for one in divided if not one.on_host]
    wall_ns = sum(int(one.steps.wall_ns.sum()) for one in on_device)
    return sum(int(one.busy_ns.sum()) for one in on_device) / wall_ns if wall_ns else None


def _list_devices(run: Run) -> list[str]:
    names = run.reader.table("devices", columns=["name"])["name"].tolist() if run.traces else []
    return sorted({name for name in names if name})


def _explain_no_findings(nodes: Sequence[NodeStatus]) -> str:
    return NOT_EVALUATED if nodes else NOT_EVALUATED_YET


def _show_step_parts(verdict: diagnosis.Verdict) -> list[StepPart]:
    mean_ns = verdict.mean_step_ns or 0.0
    return [
        StepPart(phase=phase, mean_ns=mean_ns * share, share_ratio=share)
        for phase, share in verdict.phases.items()
    ]


def _price_verdict(priced: cost.PricedJob, verdict: diagnosis.Verdict) -> Money:
    step = cost.price_verdict(verdict, priced.cost)
    return Money(
        usd_per_hour=priced.price.used.usd_per_hour,
        price=priced.price.used,
        instance_count=priced.cost.instance_count,
        job_usd=priced.job_usd,
        step_usd=None if step is None else step.step_usd,
        suspect_step_usd=None if step is None or not verdict.has_bottleneck else step.suspect_usd,
        fix_savings_usd=[None] * len(verdict.fixes) if step is None else step.fix_savings_usd,
    )


def _show_findings(run: Run, recorded: schema.RuleRecord | None) -> list[ShortFinding]:
    if recorded is None or not recorded.fired:
        return []
    count_until = run.clock.count_until
    return [
        ShortFinding(
            rule=finding.rule,
            triggered_count=finding.rule_triggered,
            sentence=finding.sentences[0] if finding.sentences else "",
            recommendation=finding.recommendation,
            first_after_ns=None if finding.first_ns is None else count_until(finding.first_ns),
            last_after_ns=None if finding.last_ns is None else count_until(finding.last_ns),
        )
        for finding in sorted(
            rule_feed.refuse_advice(recorded.fired, run), key=lambda rule: -rule.rule_triggered
        )
    ]


def _show_trace(trace: Trace) -> Recording:
    facts = trace.window_facts
    return Recording(
        name=trace.name,
        rank=trace.rank,
        start_ns=trace.start_ns,
        duration_ns=trace.end_ns - trace.start_ns,
        event_count=trace.event_count,
        clock_base_ns=trace.base_ns or None,
        window=RecordedWindow(
            reason=facts.reason,
            depth=facts.depth,
            options=facts.options,
            first_step=facts.first_step,
            step_count=facts.step_count,
        )
        if facts is not None
        else None,
    )


def _show_node(run: Run, node: str, statuses: Mapping[str, schema.JobStatus]) -> NodeStatus:
    status = statuses[node]
    metrics = run.metrics.get(node)
    return NodeStatus(
        node=node,
        state=node_state(status, statuses.values()),
        reason=explain_lost_node(status, statuses.values()),
        exit_code=status.exit_code,
        signal=status.signal,
        started_ns=status.started_ns,
        ended_ns=status.ended_ns,
        heartbeat_ns=status.heartbeat_ns,
        duration_ns=status.duration_ns,
        monitor_lost=is_lost(status),
        gpu_busy_ratio=metrics.mean_over_devices("gpu_busy_ratio") if metrics else None,
        cpu_busy_ratio=metrics.mean("cpu_busy_ratio") if metrics else None,
    )
