"""Rules on the command line: `stepscope rules`, `watch`, and options of `run`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.budget import Budget
from stepscope.cli.job import watching
from stepscope.cli.job.job_run import JobRun
from stepscope.cli.job.rule_options import RulePlan, plan_rules
from stepscope.cli.job.staging import Staging
from stepscope.cli.job.watching import Watching
from stepscope.cli.output import suggest
from stepscope.cli.writers.findings import delivery_lines
from stepscope.errors import UsageError
from stepscope.monitor import JobExit, UploadEnd
from stepscope.rules.profiler import RULES
from stepscope.rules.registry import BUILT_IN_RULES, HEADINGS
from stepscope.schema import STUCK_ALERT, Delivery, DeliveryState
from stepscope.testing import RunBuilder
from stepscope.watch import WatchConfig
from tests.support.command import run_command

WAITING_STEP = "wait 600 | forward 120 | backward 200 | optimizer 80"
COMPUTING = "wait 50 | forward 300 | backward 450 | optimizer 200"


def rules(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_command(Path.cwd(), "rules", *map(str, arguments))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Make a run that waits for data, and one that does not."""
    directory, run_paths = tmp_path_factory.mktemp("runs"), {}
    for name, step in (("loading", WAITING_STEP), ("computing", COMPUTING)):
        run = RunBuilder(directory / name, sampling_ms=1000)
        run.rank(0).draw(step, 60)
        run_paths[name] = run.write()
    return run_paths


def test_list_names_every_rule() -> None:
    listed = rules("list")
    assert listed.returncode == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [
        r.__name__ for r in BUILT_IN_RULES
    ]
    payload = json.loads(rules("list", "--json").stdout)
    assert [rule["rule"] for rule in payload] == [rule.__name__ for rule in BUILT_IN_RULES]


def test_explain_shows_the_page() -> None:
    shown = rules("explain", "low_gpu_utilization")
    assert shown.returncode == 0
    assert shown.stdout.startswith("# LowGPUUtilization\n")
    assert all(f"## {heading}" in shown.stdout for heading in HEADINGS)
    assert json.loads(rules("explain", "CPUBottleneck", "--json").stdout)["rule"] == "CPUBottleneck"


@pytest.mark.seed("DIAG-06")
def test_check_exits_with_3_when_a_rule_fires(runs: dict[str, Path]) -> None:
    checked = rules("check", runs["loading"])
    assert checked.returncode == 3, checked.stderr
    assert "found issues" in checked.stdout
    assert "waiting for batches takes 60.0% of step time" in checked.stdout
    assert "not applicable" in checked.stdout
    assert "no GPU samples" in checked.stdout


def test_check_exits_with_0_when_none_fires(runs: dict[str, Path]) -> None:
    checked = rules("check", runs["computing"])
    assert checked.returncode == 0, checked.stderr
    assert "found issues" not in checked.stdout


def test_check_as_json_has_debuggers_names(runs: dict[str, Path]) -> None:
    checked = rules("check", runs["loading"], "--rule", "dataloader_bottleneck", "--json")
    assert checked.returncode == 3
    payload = json.loads(checked.stdout)
    (finding,) = payload["findings"]
    assert payload["fired"] == ["DataloaderBottleneck"]
    assert finding["status"] == "IssuesFound"
    assert finding["RuleTriggered"] >= 1
    assert finding["Violations"] == finding["Datapoints"] == 50  # past the first ten
    assert "threshold:20" in finding["RuleParameters"].splitlines()
    assert finding["Details"]["ranks"]["rank 0"]


def test_parameters_from_the_command_line_and_a_file(runs: dict[str, Path], tmp_path: Path) -> None:
    config = tmp_path / "rules.toml"
    config.write_text("[DataloaderBottleneck]\nthreshold = 70\n")
    only = ("--rule", "DataloaderBottleneck")
    assert rules("check", runs["loading"], *only, "--config", config).returncode == 0
    again = ("--config", config, "--set", "DataloaderBottleneck.threshold=30")
    assert rules("check", runs["loading"], *only, *again).returncode == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rule", "Nonsense"), "CPUBottleneck"),
        (("--set", "StepOutlier.deviation=3"), "stddev, mode, n_outliers"),
        (("--config", "absent.toml"), "absent.toml"),
    ],
)
def test_mistakes_are_one_sentence(
    runs: dict[str, Path], arguments: tuple[str, ...], words: str
) -> None:
    checked = rules("check", runs["computing"], *arguments)
    assert checked.returncode == 2
    assert words in checked.stderr
    assert "Traceback" not in checked.stderr
    assert not checked.stdout


def watch(run: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run_command(run.parent, "watch", str(run), *options)


@pytest.fixture(scope="module")
def loading(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = RunBuilder(tmp_path_factory.mktemp("runs") / "loading", sampling_ms=1000)
    run.rank(0).draw(WAITING_STEP, 60)
    run.metric("gpu_busy_ratio", 0.25, device="0")
    return run.write()


def test_a_finished_run_is_shown_once(loading: Path) -> None:
    shown = watch(loading)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("loading  completed") == 1
    assert "step 60 · 1 steps/s · data wait 60% of step time · GPU 25%" in shown.stdout
    assert re.search(r"job +60 s: steps 60 s \(100%\)$", shown.stdout, re.MULTILINE)
    assert "Bottleneck: data pipeline, 60% of step time." in shown.stdout
    assert "DataloaderBottleneck  rank 0: waiting for batches takes 60.0% of" in shown.stdout
    assert "stepscope diagnose RUN" in shown.stdout  # what to do


def test_as_json_it_is_one_line_per_scan(loading: Path) -> None:
    shown = watch(loading, "--json")
    assert shown.returncode == 0, shown.stderr
    (line,) = shown.stdout.splitlines()
    result = json.loads(line)
    assert result["state"] == "Completed"
    assert result["progress"] == "ended"
    assert result["suspect"] == "data_pipeline"
    assert result["pace"]["data_wait_ratio"] == pytest.approx(0.6)
    assert sum(part["time_ns"] for part in result["job"]["parts"]) == result["job"]["duration_ns"]
    assert result["rule_statuses"]["IssuesFound"] == len(result["findings"])
    assert sum(result["rule_statuses"].values()) >= 20


def test_looking_changes_nothing(loading: Path) -> None:
    before = sorted(loading.rglob("*"))
    watch(loading)
    assert sorted(loading.rglob("*")) == before


def test_no_run(tmp_path: Path) -> None:
    shown = watch(tmp_path / "absent")
    assert shown.returncode == 2
    assert "does not exist" in shown.stderr


DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("names", "assignments", "stop_on", "fail_on", "on_finding", "webhook"), ()),
    "notify": (),
    "on_stuck": (),
    "parameters": None,
    "report": None,
    "census": True,
    "no_rules": False,
    "to": (),
    "scan_interval": 60.0,
    "stop_grace": 30.0,
}
OWN = "from stepscope.rules import Rule\nclass Mine(Rule):\n    '''Mine.'''\n"
THREAD = """
import pathlib, signal, threading
def write():
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    pathlib.Path(__file__).with_suffix(".txt").write_text(" ".join(str(int(s)) for s in mask))
thread = threading.Thread(target=write)
thread.start()
thread.join()
"""


def plan(**options: Any) -> RulePlan:
    planned = plan_rules(**{**DEFAULTS, **options})
    assert planned is not None
    return planned


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--rules", "StepOutlier,Nonsense"), "Unknown rule 'Nonsense'. Rules: "),
        (("--rule", "absent.py:Mine"), "Specify a custom rule as path.py:MyRule"),
        (("--stop-on", "Nonsense"), "Unknown rule 'Nonsense'. Rules: "),
        (("--fail-on", "Nonsense"), "Unknown rule 'Nonsense'. Rules: "),
        (("--set", "StepOutlier.deviation=3"), "stddev, mode, n_outliers"),
        (("--rules-config", "absent.toml"), "absent.toml cannot be read"),
        (("--scan-interval", "0.5"), "0.5 is not in the range"),
        (("--webhook", "example.org/hook"), "does not start with http:// or https://"),
        (("--no-rules", "--stop-on", "StepOutlier"), "no-rules conflicts with other options"),
    ],
)
def test_refused_in_one_sentence(tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    done = run_command(tmp_path, "run", "--out", "run", *options, "--", "true")
    assert done.returncode == 2
    assert says in done.stderr
    if "there are" in says:
        assert all(rule.__name__ in done.stderr for rule in RULES)
    assert "Traceback" not in done.stderr
    assert not done.stdout
    assert not list(tmp_path.iterdir())


def test_rules_are_known_by_their_names(tmp_path: Path) -> None:
    custom_rule = tmp_path / "own.py"
    custom_rule.write_text(OWN)
    requested = {
        "names": (f"{custom_rule}:Mine", "step_outlier"),
        "stop_on": ("Mine",),
        "fail_on": ("dataloader_bottleneck", f"{custom_rule}:Mine"),
    }
    planned = plan(**requested)
    assert planned.stop_on == ["Mine"]
    assert planned.fail_on == ["DataloaderBottleneck", "Mine"]


def test_threads_that_rules_start_take_no_signals_of_the_launcher(tmp_path: Path) -> None:
    custom_rule = tmp_path / "own.py"
    custom_rule.write_text(OWN + THREAD)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    plan(names=(f"{custom_rule}:Mine",))
    blocked = set(map(int, (tmp_path / "own.txt").read_text().split()))
    assert {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD} <= blocked
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_secrets_stay_out_of_what_the_run_says() -> None:
    requested = {
        "on_finding": ("notify --token=abcdef123",),
        "webhook": ("https://u:p@hooks.example.org/services/T0/SECRET?key=abc",),
    }
    planned = plan(**requested)
    targets = [action.target for action in planned.actions]
    assert targets == ["notify --token=****", "https://hooks.example.org"]
    assert "SECRET" not in json.dumps(planned.recorded)


@pytest.mark.parametrize(("scan_s", "flush_s"), [(1, 1), (10, 2.5), (60, 5), (600, 5)])
def test_data_arrive_before_the_next_scan_ends(scan_s: float, flush_s: float) -> None:
    assert plan(scan_interval=scan_s).flush_s == flush_s


def test_values_are_told_apart() -> None:
    planned = plan(on_stuck=("stop", "notify-send stuck", "https://hooks.example/secret"))
    assert planned.on_stuck_stop
    assert [(a.kind, a.target, a.rules) for a in planned.actions] == [
        ("command", "notify-send stuck", [STUCK_ALERT]),
        ("webhook", "https://hooks.example", [STUCK_ALERT]),
    ]


def test_a_url_without_a_host_is_refused() -> None:
    with pytest.raises(UsageError, match="Invalid value for --on-stuck: 'https://"):
        plan(on_stuck=("https:///path",))


def test_actions_need_the_process_that_performs_them() -> None:
    with pytest.raises(UsageError, match="--no-rules conflicts with other options for rules"):
        plan(on_stuck=("stop",), no_rules=True)


URL = "s3://bucket/a"


@pytest.fixture
def run(tmp_path: Path) -> JobRun:
    directory = RunBuilder(tmp_path / "staging").write()
    return JobRun(directory, Staging(URL, directory, None))


def test_rules_that_outlast_the_job(
    run: JobRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    messages: list[WatchConfig] = []

    def start_slow(module: str, *, log: int, message: bytes) -> subprocess.Popen[bytes]:
        messages.append(msgspec.json.decode(message, type=WatchConfig))
        command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        return subprocess.Popen(command, stdin=subprocess.PIPE)

    monkeypatch.setattr("stepscope.monitor.start_beside", start_slow)
    monkeypatch.setattr(watching, "RULES_TIMEOUT_S", 0.0)
    rules = Watching(run, RulePlan(), tmp_path / "stop", Budget())
    rules.companion.keep(1)
    process = rules.companion.process
    assert process is not None
    try:
        rules.conclude(JobExit(exit_code=0, signal=None), complete=True)
        assert [(config.run, config.shown) for config in messages] == [(str(run.location), URL)]
        check = suggest("rules", "check", URL)
        assert f"Rules are still being evaluated. Later: {check}" in capsys.readouterr().err
        assert rules.is_left_running
        end = UploadEnd(url=URL, complete=True, remaining_count=0, remaining_bytes=0)
        run.conclude(True, end, is_read=True)
        stays = f"The recording stays in {run.location} while rules are evaluated."
        assert stays in capsys.readouterr().err
        assert suggest("recover", URL) in Staging(URL, run.location, None).recovery
        assert run.location.exists()
        run.conclude(True, end)
        assert not run.location.exists()
    finally:
        process.communicate(b"")


def delivery(action: str, target: str, rule: str, **values: Any) -> Delivery:
    return Delivery(action=action, number=0, target=target, rule=rule, **values)


def test_one_line_per_receiver_and_outcome() -> None:
    hook, sent = ("webhook", "https://example.org/hook"), DeliveryState.SENT
    deliveries = [
        delivery("stop", "the job", STUCK_ALERT, state=sent, try_count=1),
        delivery(*hook, "LossSpike", state=sent, try_count=1),
        delivery(*hook, "IOBottleneck", state=sent, try_count=2),
        delivery(*hook, "TreeDepth", state=DeliveryState.FAILED, try_count=3, error="HTTP 500"),
        delivery("command", "./alert.sh", "LossSpike"),
    ]
    assert delivery_lines(deliveries) == [
        "stop the job (Stuck): done",
        "webhook https://example.org/hook (LossSpike, IOBottleneck): sent",
        "webhook https://example.org/hook (TreeDepth): failed after 3 tries (HTTP 500)",
        "command ./alert.sh (LossSpike): not done yet",
    ]
