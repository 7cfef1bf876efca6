"""Import of all available real files of SageMaker Debugger, compared number by number."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.cli import root
from stepscope.diagnosis import diagnose
from stepscope.importers.smdebug.events import detect_form
from stepscope.run import Run
from stepscope.store import open_run
from tests.support.command import run_command
from tests.support.debugger_files import SHARED

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/traces/smdebug is not here")
LOSSY = {
    "1591160699.algo-1.json.corrupt",
    "1593673051473228_88359-8c859046be41.ant.amazon.com_horovod_timeline.json",
}
FILES = sorted(path for path in SHARED.rglob("*") if path.is_file()) if SHARED.is_dir() else []


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("debugger") / "run"


@pytest.fixture(scope="module")
def recorded(path: Path) -> list[dict[str, Any]]:
    """Import all files; return what the command says of each."""
    done = run_command(path.parent, "import", str(SHARED), "-o", str(path), "--json")
    return json.loads(done.stdout)["recorded"]


@pytest.fixture(scope="module")
def run(path: Path, recorded: list[dict[str, Any]]) -> Run:
    return Run(open_run(path))


def raw_events() -> list[dict[str, Any]]:
    """Return every X event of every file with its phase and absolute times."""
    events = []
    for path in FILES:
        if "pevents" not in path.parts:
            continue
        base, phases = 0, {}
        for event in json.loads(path.read_text()):
            args = event.get("args", {})
            base = args.get("start_time_since_epoch_in_micros", base)
            if event["ph"] == "M" and "name" in args:
                phases[event["pid"]] = args["name"]
            if event["ph"] == "X":
                start = (base + event["ts"]) * 1000
                events.append({**event, "phase": phases[event["pid"]], "start": start})
    return events


def test_files_that_lost_something_say_so(recorded: list[dict[str, Any]]) -> None:
    assert len(recorded) == len(FILES)
    assert {file["name"] for file in recorded if file["lost"] is not None} == LOSSY


@pytest.mark.extended("the same files are imported together")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_alone(tmp_path: Path, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert detect_form(path) is not None
    arguments = ["import", str(path), "-o", str(tmp_path / "run"), "--json"]
    root.main(arguments, standalone_mode=False)
    (recorded,) = json.loads(capsys.readouterr().out)["recorded"]
    assert (recorded["lost"] is not None) == (path.name in LOSSY)


def test_samples_are_those_of_the_files(run: Run) -> None:
    lines: set[tuple[int, str, str, float]] = set()
    names = {
        "CPUUtilization": "core_busy_ratio",
        "GPUUtilization": "gpu_busy_ratio",
        "GPUMemoryUtilization": "gpu_memory_used_ratio",
    }
    for path in FILES:
        for line in path.read_text().splitlines() if "system" in path.parts else ():
            row = json.loads(line, parse_float=Decimal) if line.strip() else None
            if row is not None:
                device, value = row["Name"][3:], float(row["Value"]) / 100
                lines.add((int(row["Timestamp"] * 10**9), names[row["Dimension"]], device, value))
    table = run.reader.table("metrics", order_by="t_ns")
    rows = zip(*(table[n].tolist() for n in ("t_ns", "metric", "device", "value")), strict=True)
    assert {row for row in rows if row[2]} == lines
    assert len(lines) == 78


def test_spans_are_those_of_the_files(run: Run) -> None:
    """Each possible event is one span with its exact time; marks of steps are added."""
    day = 24 * 3600 * 10**9
    expected = Counter(
        (event["start"], event["start"] + event["dur"] * 1000)
        for event in raw_events()
        if event["dur"] * 1000 < day
    )
    table = run.reader.table("spans")
    is_range = table["kind"] != "step"
    ends = np.ma.filled(table["end_ns"], -1)[is_range].tolist()
    spans = Counter(zip(table["start_ns"][is_range].tolist(), ends, strict=True))
    assert {key: n for key, n in spans.items() if key[1] >= 0} == expected
    kinds = Counter(table["kind"].tolist())
    assert kinds["mode"] == sum("Step:" in event["phase"] for event in raw_events())
    # Nine of NCCL's collectives; four of Horovod's start and never end in these files.
    assert (kinds["step"], kinds["communication"]) == (31, 9 + 4)


def test_the_keras_job(run: Run) -> None:
    (rank,) = run.ranks
    raw = [event for event in raw_events() if event["name"] == "Step:ModeKeys.TRAIN"]
    starts = [event["start"] for event in raw]
    ends = [event["start"] + event["dur"] * 1000 for event in raw]
    borders = np.array([starts[0], *ends])
    assert rank.steps.end.tolist() == borders[1:].tolist()
    assert rank.steps.duration_ns.tolist() == [event["dur"] * 1000 for event in raw]
    evaluated = sum(e["dur"] * 1000 for e in raw_events() if e["name"] == "Step:ModeKeys.EVAL")
    assert rank.steps.evaluation.total_ns == evaluated
    verdict = diagnose(run)
    assert verdict.suspect == "insufficient_evidence"
    assert "no forward and backward passes" in verdict.headline
    get_next = [event for event in raw_events() if event["name"].startswith("IteratorGetNext")]
    waits = Counter((event["start"], event["start"] + event["dur"] * 1000) for event in get_next)
    table = run.reader.table("spans", condition="kind = 'data_wait'")
    times = zip(table["start_ns"].tolist(), table["end_ns"].tolist(), strict=True)
    assert Counter(times) == waits


def test_missing_data_is_reported(run: Run) -> None:
    process_notes = " ".join(note for process in run.processes for note in process.notes)
    assert "19 events with impossible durations (up to 226 h)" in process_notes
    node_notes = " ".join(n for status in run.reader.statuses().values() for n in status.notes)
    assert "its last line is truncated" in node_notes
