"""Watch process as the launcher starts it, with real receivers and a report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.comparison import read_summary
from stepscope.rule_feed import recorded_rules
from stepscope.rules.profiler.host_memory import HostMemoryGrowth
from stepscope.schema import (
    STUCK,
    CalledCollective,
    ConfigurationDecision,
    ConfigurationRequest,
    DeliveryState,
    Finding,
    JobConfiguration,
    JobState,
    RankAccount,
    RankState,
    RuleRecord,
    RuleSelection,
    RuleStatus,
    StuckNode,
)
from stepscope.store import ConfigurationChanges, RunWriter, WindowRequests, open_run
from stepscope.testing import RunBuilder
from stepscope.watch import follower, growth, live, process as report_file
from stepscope.watch.config import (
    ActionConfig,
    ExportConfig,
    LeaseWatch,
    ReadingBudget,
    WatchConfig,
)
from stepscope.watch.process import RepeatedCommand, Watch, list_report_options
from tests.support.waiting import wait_until

LOADING = "wait 600 | forward 120 | backward 200 | optimizer 80"
SECOND_NS = 1_000_000_000


@pytest.fixture
def loading(tmp_path: Path) -> RunBuilder:
    """Job that waits for its data."""
    run = RunBuilder(tmp_path / "run", sampling_ms=1000)
    run.rank(0).draw(LOADING, 60)
    run.metric("cpu_busy_ratio", 0.5)
    return run


def watch(
    run: Path,
    *actions: ActionConfig,
    launcher_pid: int | None = None,
    shown: str | None = None,
    exports: Sequence[ExportConfig] = (),
    **rules: list[str],
) -> subprocess.Popen[bytes]:
    config = WatchConfig(
        run=str(run),
        shown=shown,
        launcher_pid=launcher_pid or os.getpid(),
        scan_ns=10 * SECOND_NS,
        selection=RuleSelection(**({"names": ["DataloaderBottleneck"]} | rules)),
        actions=list(actions),
        exports=list(exports),
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "stepscope.watch"], stdin=subprocess.PIPE
    )
    assert process.stdin is not None
    with process.stdin as stdin:
        stdin.write(msgspec.json.encode(config))
    return process


def record(run: Path) -> RuleRecord:
    recorded = recorded_rules(open_run(run))
    assert recorded is not None
    return recorded


def hook(url: str) -> ActionConfig:
    return ActionConfig(kind="webhook", address=url, target="http://127.0.0.1")


def test_a_finished_run_is_evaluated_recorded_and_delivered_once(
    loading: RunBuilder, receiver: Any, tmp_path: Path
) -> None:
    run, stop_request = loading.write(), tmp_path / "stop"
    stop = ActionConfig(
        kind="stop", address=str(stop_request), target="the job", rules=["DataloaderBottleneck"]
    )
    for _ in range(2):  # the second process resumes from the record of the first
        assert watch(run, stop, hook(receiver.url), shown="s3://bucket/a").wait(120) == 0
    (body,) = receiver.bodies
    assert not stop_request.exists()
    result = record(run)
    assert result.progress == "ended"
    assert [finding.rule for finding in result.fired] == ["DataloaderBottleneck"]
    # An alert names the run as its user does.
    assert body["run"] == "s3://bucket/a"
    assert body["recorded_ns"] == result.recorded_ns["DataloaderBottleneck"]
    assert [(delivery.action, delivery.state) for delivery in result.deliveries] == [
        ("stop", DeliveryState.FAILED),
        ("webhook", DeliveryState.SENT),
    ]


def test_the_figures_are_exported_and_a_failure_is_noted(
    loading: RunBuilder, tmp_path: Path
) -> None:
    run = loading.write()
    outputs = [tmp_path / "s.json", tmp_path / "missing" / "s.json"]
    exports = [ExportConfig(format="summary", output=str(output)) for output in outputs]
    assert watch(run, exports=exports).wait(120) == 0
    assert read_summary(outputs[0]).texts["verdict/suspect"] == "data_pipeline"
    (note,) = record(run).notes
    assert note.startswith(f"The export to summary failed: {outputs[1]}: No such file")


def test_a_command_that_hangs_or_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    command = RepeatedCommand(["--version"], "The export", timeout_s=1e-3)
    command.finish()
    assert command.problem == "The export failed: it took more than 1 ms and was killed"
    monkeypatch.setattr(sys, "executable", "/missing/python")
    command = RepeatedCommand(["--version"], "The export")
    command.finish()
    assert command.problem == "The export failed: /missing/python: No such file or directory"


def test_a_process_started_after_kill_9_repeats_nothing(loading: RunBuilder, receiver: Any) -> None:
    loading.status(JobState.IN_PROGRESS, heartbeat_ns=loading.end_ns)
    run = loading.write()
    first = watch(run, hook(receiver.url))
    wait_until(
        lambda: (
            (recorded := recorded_rules(open_run(run))) is not None
            and any(delivery.state is DeliveryState.SENT for delivery in recorded.deliveries)
        )
    )
    first.kill()
    first.wait()
    before = record(run)
    second = watch(run, hook(receiver.url))
    wait_until(lambda: record(run).written_ns > before.written_ns)
    second.send_signal(signal.SIGTERM)
    assert second.wait(120) == 0
    assert len(receiver.bodies) == 1
    assert record(run).recorded_ns == before.recorded_ns


def test_a_receiver_that_hangs_does_not_delay_the_record(
    loading: RunBuilder, receiver: Any
) -> None:
    receiver.responses = [0]
    loading.status(JobState.IN_PROGRESS, heartbeat_ns=loading.end_ns)
    run = loading.write()
    process = watch(run, hook(receiver.url))
    wait_until(lambda: receiver.bodies and record(run).deliveries)
    assert record(run).fired
    assert record(run).deliveries[0].state is DeliveryState.PENDING
    process.kill()
    process.wait()


def test_it_ends_when_its_launcher_has_exited_and_there_are_no_heartbeats(
    loading: RunBuilder,
) -> None:
    loading.status(JobState.IN_PROGRESS, heartbeat_ns=loading.end_ns)  # years ago
    run = loading.write()
    high_threshold = ["DataloaderBottleneck.threshold=90"]
    assert watch(run, launcher_pid=1, assignments=high_threshold).wait(120) == 0
    result = record(run)
    assert result.progress == "stopped"
    assert result.findings[0].status is RuleStatus.STOPPED


def test_a_process_that_is_continued_looks_for_the_end_at_once(
    loading: RunBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "POLL_S", 3600.0)
    loading.status(JobState.IN_PROGRESS, heartbeat_ns=loading.end_ns)
    run = loading.write()
    config = WatchConfig(run=str(run), launcher_pid=os.getppid(), scan_ns=10 * SECOND_NS)
    watch = Watch(config, LeaseWatch(str(run), None))

    def end_the_job() -> None:
        wait_until(lambda: recorded_rules(open_run(run)) is not None)
        ended = msgspec.structs.replace(loading.statuses["n0"], state=JobState.COMPLETED)
        with RunWriter(run, "n0") as writer:
            writer.put_status(ended)
        os.kill(os.getpid(), signal.SIGCONT)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGCONT)}
    thread = threading.Thread(target=end_the_job)
    thread.start()
    try:
        watch.run()
    finally:
        thread.join()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert record(run).progress == "ended"


@pytest.mark.extended("starts two processes")
@pytest.mark.seed("DBP-10")
def test_changed_rules_are_evaluated_from_the_start_of_the_run(loading: RunBuilder) -> None:
    loading.status(JobState.IN_PROGRESS, heartbeat_ns=loading.end_ns)
    run = loading.write()
    process = watch(run)
    wait_until(lambda: recorded_rules(open_run(run)) is not None and record(run).fired)
    fired_ns = record(run).recorded_ns["DataloaderBottleneck"]
    selection = RuleSelection(
        names=["DataloaderBottleneck", "StepOutlier"],
        assignments=["DataloaderBottleneck.threshold=40"],
    )
    changes = ConfigurationChanges(run)
    configuration = JobConfiguration(interval_ms=500, window="off", schedules=[], rules=selection)
    changes.request(
        ConfigurationRequest(number=1, requested_ns=1, by="a test", configuration=configuration)
    )
    changes.decide(1, ConfigurationDecision(decided_ns=2, configuration=configuration))
    wait_until(lambda: len(record(run).findings) == 2 and record(run).fired)
    (finding,) = record(run).fired
    assert finding.rule_parameters.startswith("threshold:40")
    assert record(run).recorded_ns["DataloaderBottleneck"] > fired_ns
    process.kill()
    process.wait()
    successor = watch(run)  # it begins with the changed rules
    before = record(run).written_ns
    wait_until(lambda: record(run).written_ns > before)
    assert [f.rule for f in record(run).findings] == selection.names
    # A rule whose file is gone: the others stay, and the record says so.
    missing = msgspec.structs.replace(
        configuration, rules=RuleSelection(names=["/nowhere/mine.py:Mine"])
    )
    changes.decide(2, ConfigurationDecision(decided_ns=3, configuration=missing))
    wait_until(lambda: record(run).notes)
    assert "the rules could not be changed: File not found" in record(run).notes[0]
    assert [f.rule for f in record(run).findings] == selection.names
    successor.send_signal(signal.SIGTERM)
    assert successor.wait(120) == 0


@pytest.mark.extended("such rules are in tests/unit/rule_feed")
def test_a_custom_rule_that_fails(loading: RunBuilder, tmp_path: Path) -> None:
    module = tmp_path / "custom.py"
    module.write_text(
        "from stepscope.rules import Rule\n"
        "class Wrong(Rule):\n    def check(self, signals):\n        return 1 / 0\n"
        "class Strange(Rule):\n    def check(self, signals):\n"
        "        return self.finding(triggered=1, details={'what': object()})\n"
    )
    run = loading.write()
    rules = [f"{module}:Wrong", f"{module}:Strange", "DataloaderBottleneck"]
    assert watch(run, names=rules).wait(120) == 0
    wrong, strange, loader = record(run).findings
    assert wrong.error == "ZeroDivisionError: division by zero"
    assert strange.status is RuleStatus.ERROR
    assert "object" in str(strange.error)
    assert loader.fired


@pytest.mark.extended("waits until it is tried again")
def test_a_run_that_cannot_be_written_temporarily(loading: RunBuilder) -> None:
    loading.status(JobState.IN_PROGRESS, heartbeat_ns=loading.end_ns)
    run = loading.write()
    document = run / "findings" / "rules.json"
    process = watch(run)
    wait_until(lambda: document.exists() and record(run).fired)
    document.unlink()
    document.mkdir()  # so that no file can replace it
    unchanged_ns = document.parent.stat().st_mtime_ns
    with RunWriter(run, "n0") as writer:
        ended = msgspec.structs.replace(loading.statuses["n0"], state=JobState.COMPLETED)
        writer.put_status(ended)
    wait_until(lambda: document.parent.stat().st_mtime_ns != unchanged_ns, waiting_for="no attempt")
    assert process.poll() is None
    document.rmdir()
    assert process.wait(120) == 0
    assert record(run).progress == "ended"


RULES = RuleSelection(names=["StepOutlier"])


def read_time(path: Path) -> int:
    return int(json.loads(path.read_text())["made_ns"]) if path.exists() else 0


@pytest.mark.extended("makes several reports")
@pytest.mark.seed("DBR-01")
def test_a_report_is_refreshed_only_as_often_as_its_share_of_the_time_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_file, "MAX_SHARE", 1e6)
    run = RunBuilder(tmp_path / "run")
    run.rank().draw("forward 300 | optimizer 80", 30)
    path = tmp_path / "report.json"
    words = ["report", str(run.write()), "-o", str(path)]
    report = RepeatedCommand(words, "The report")
    options = list_report_options(RULES)
    times_ns = [0]
    for _ in range(2):
        report.refresh(options)
        process = report._process
        report.refresh(options)
        assert report._process is process, "one process at a time"
        assert process.wait() == 0
        times_ns.append(read_time(path))
    monkeypatch.setattr(report_file, "MAX_SHARE", 1e-6)
    report.refresh(options)
    assert report._process is None
    report.finish(options)
    assert read_time(path) > times_ns[2] > times_ns[1] > 0


def make_rank(rank: int, *, has_called: bool) -> RankAccount:
    calls = [CalledCollective(group="0", number=1, kind="barrier")]
    if has_called:
        calls.append(CalledCollective(group="0", number=2, kind="barrier", has_ended=False))
    return RankAccount(rank=rank, process="", pid=1, state=RankState.ANSWERED, calls=calls)


def test_each_time_that_a_job_is_stuck_is_told_once(
    new_run: Callable[..., RunBuilder], receiver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "READ_INTERVAL_S", 0)
    builder = new_run()
    builder.rank(0).draw("forward 10", 5)
    run = builder.write()
    watch = Watch(
        WatchConfig(
            run=str(run),
            launcher_pid=os.getpid(),
            scan_ns=10 * SECOND_NS,
            selection=RuleSelection(names=["StepOutlier"]),
            actions=[ActionConfig(kind="webhook", address=receiver.url, target="receiver")],
        ),
        LeaseWatch(str(run), None),
    )
    for number in range(1, 3):
        for resolved_ns in (None, None, 400 * SECOND_NS):
            account = StuckNode(
                node="n0",
                since_ns=100 * number * SECOND_NS,
                seen_ns=(100 * number + 40) * SECOND_NS,
                resolved_ns=resolved_ns,
                limit_ns=30 * SECOND_NS,
                groups={"0": [0, 1]},
                ranks=[make_rank(0, has_called=True), make_rank(1, has_called=False)],
            )
            with RunWriter(run, "n0") as writer:
                writer.put_document(STUCK, "n0", account)
            watch._announce_stuck()
            wait_until(lambda: not watch._deliveries.has_pending)
        assert len(receiver.bodies) == number, "once per time"


GIB, MIB = 1 << 30, 1 << 20


def draw_leak(path: Path, rate: int) -> Path:
    """Draw a process that keeps *rate* a second, and another one that keeps nothing."""
    run = RunBuilder(path)
    run.rank(0).draw("forward 400 | backward 500 | optimizer 100", 100)
    run.metric("process_anonymous_bytes", lambda s: GIB + rate * s, device="1000")
    run.metric("process_anonymous_bytes", GIB, device="1001")
    run.metric("job_memory_bytes", lambda s: 2 * GIB + rate * s)
    run.metric("cgroup_memory_used_bytes", lambda s: 2 * GIB + rate * s)
    run.metric("cgroup_memory_limit_bytes", 8 * GIB)
    return run.write()


@pytest.mark.parametrize(
    ("rate", "takes_census", "count"),
    [(2 * MIB, True, 1), (2 * MIB, False, 0), (MIB // 4, True, 0)],
)
def test_processes_that_grow_are_asked_once_what_holds_their_memory(
    tmp_path: Path, rate: int, takes_census: bool, count: int
) -> None:
    run = draw_leak(tmp_path / "run", rate)
    now_s = [0.0]
    config = WatchConfig(
        run=str(run), launcher_pid=1, scan_ns=60 * SECOND_NS, takes_census=takes_census
    )
    for _ in range(2):  # also after a restart
        budget = ReadingBudget(1e9, interval_s=0)
        watching = growth.GrowthWatch(
            config, open_run(run), [HostMemoryGrowth()], budget, lambda: now_s[0]
        )
        watching.look(1)  # not due yet
        for heartbeat_ns in (1, 2):
            now_s[0] += growth.LOOK_S
            watching.look(heartbeat_ns)
    requests = WindowRequests(str(run)).read_new()
    assert [(r.name, r.is_census, r.pids) for r in requests] == count * [
        ("memory-growth-at-start", True, {"n0": [1000]})
    ]
    if count:  # a cache that filled at the start takes no census from a leak
        details = {"nodes": {"n0": {"growth_bytes": GIB, "growing_pids": [1000]}}}
        finding = Finding(
            rule=growth.GROWTH_RULE, status=RuleStatus.ISSUES_FOUND, details=details, nodes=["n0"]
        )
        later = WindowRequests(str(run))
        later.read_new()
        for passed_s, names in ((0, []), (growth.SETTLED_S, ["memory-growth"]), (9999, [])):
            now_s[0] += passed_s
            watching.note(finding)
            assert [request.name for request in later.read_new()] == names


def test_at_most_eight_processes_of_a_job_are_asked() -> None:
    details = {
        node: {"growth_bytes": size, "growing_pids": list(range(6))}
        for node, size in (("a", GIB), ("b", MIB), ("c", GIB), ("d", GIB))
    }
    finding = Finding(
        rule=growth.GROWTH_RULE,
        status=RuleStatus.ISSUES_FOUND,
        details={"nodes": details},
        nodes=list(details),
    )
    assert growth.choose_growing(finding) == {"a": [0, 1, 2, 3, 4, 5], "c": [0, 1]}
    unrelated = msgspec.structs.replace(finding, rule="LowGPUUtilization")
    assert growth.choose_growing(unrelated) == {}
