"""Every real file of SageMaker Debugger's at hand reads in, with its numbers."""

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
from stepscope.importers.smdebug.forms import detect_form
from stepscope.run import Run
from stepscope.store import open_run
from tests.support.debugger_files import SHARED

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/traces/smdebug is not here")
LOSSY = {
    "1591160699.algo-1.json.corrupt",
    "1593673051473228_88359-8c859046be41.ant.amazon.com_horovod_timeline.json",
}
FILES = sorted(path for path in SHARED.rglob("*") if path.is_file()) if SHARED.is_dir() else []


@pytest.fixture(scope="module")
def signals(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = tmp_path_factory.mktemp("debugger") / "run"
    root.main(["import", str(SHARED), "-o", str(run)], standalone_mode=False)
    return Run(open_run(run))


def raw_events() -> list[dict[str, Any]]:
    """Every X event of every file with its phase and absolute times, read the plain way."""
    found = []
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
                found.append({**event, "phase": phases[event["pid"]], "start": start})
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_alone(tmp_path: Path, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert detect_form(path) is not None
    arguments = ["import", str(path), "-o", str(tmp_path / "run"), "--json"]
    root.main(arguments, standalone_mode=False)
    (recorded,) = json.loads(capsys.readouterr().out)["recorded"]
    assert (recorded["lost"] is not None) == (path.name in LOSSY)


def test_samples_are_those_of_the_files(signals: Run) -> None:
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
    table = signals.reader.table("metrics", order_by="t_ns")
    rows = zip(*(table[n].tolist() for n in ("t_ns", "metric", "device", "value")), strict=True)
    assert {row for row in rows if row[2]} == lines
    assert len(lines) == 78


def test_spans_are_those_of_the_files(signals: Run) -> None:
    """One span per possible event, at its exact time, besides the marks of steps."""
    day = 24 * 3600 * 10**9
    wanted = Counter(
        (event["start"], event["start"] + event["dur"] * 1000)
        for event in raw_events()
        if event["dur"] * 1000 < day
    )
    table = signals.reader.table("spans")
    chosen = table["kind"] != "step"
    ends = np.ma.filled(table["end_ns"], -1)[chosen].tolist()
    found = Counter(zip(table["start_ns"][chosen].tolist(), ends, strict=True))
    assert {key: n for key, n in found.items() if key[1] >= 0} == wanted
    kinds = Counter(table["kind"].tolist())
    assert kinds["mode"] == sum("Step:" in event["phase"] for event in raw_events())
    # Nine of NCCL's collectives; four of Horovod's begin and never end in the files at hand.
    assert (kinds["step"], kinds["communication"]) == (31, 9 + 4)


def test_the_keras_job(signals: Run) -> None:
    (rank,) = signals.ranks
    raw = [event for event in raw_events() if event["name"] == "Step:ModeKeys.TRAIN"]
    starts = [event["start"] for event in raw]
    ends = [event["start"] + event["dur"] * 1000 for event in raw]
    borders = np.array([starts[0], *ends])
    assert rank.steps.end.tolist() == borders[1:].tolist()
    evaluated = sum(e["dur"] * 1000 for e in raw_events() if e["name"] == "Step:ModeKeys.EVAL")
    assert rank.steps.evaluation.total_ns == evaluated
    assert diagnose(signals).suspect == "insufficient_evidence"


def test_what_was_lost_is_said(signals: Run) -> None:
    notes = " ".join(note for process in signals.processes for note in process.notes)
    assert "19 events with impossible durations (up to 812,355 s)" in notes
    said = " ".join(n for status in signals.reader.statuses().values() for n in status.notes)
    assert "its last line is truncated" in said
