"""Memory timelines of torch.profiler: files that torch writes, drawn ones, and damaged ones."""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli import root
from stepscope.errors import UnreadableTraceError
from stepscope.importers.content import read_head
from stepscope.importers.memory_timeline import MemoryTimelineImporter
from stepscope.testing.importer_contract import ImporterContract
from stepscope.views import VIEWS, ViewOptions
from tests.support.imported_runs import import_into
from tests.support.kineto_files import BASE_NS, op, trace

NAMES = [
    *("parameter", "optimizer_state", "input", "temporary"),
    *("activation", "gradient", "autograd_detail", "unknown"),
]
"""Order of `_CATEGORY_TO_COLORS` in torch/profiler/_memory_profiler.py."""
PREEXISTING, CREATE, MOVE, DESTROY = 1, 2, 3, 4
"""Numbers of `Action` there."""
PARAMETER, TEMPORARY, GRADIENT = NAMES.index("parameter"), NAMES.index("temporary"), 5
CHANGES = [
    [-1, PREEXISTING, 1_000, PARAMETER],
    [BASE_NS + 2_000, CREATE, 500, TEMPORARY],
    [BASE_NS + 3_000, MOVE, -500, TEMPORARY],
    [BASE_NS + 3_000, MOVE, 500, GRADIENT],
    [BASE_NS + 4_000, CREATE, 200, TEMPORARY],
    [BASE_NS + 6_000, DESTROY, -200, TEMPORARY],
    [BASE_NS + 7_000, DESTROY, -500, GRADIENT],
]


def write(path: Path, content: Any) -> Path:
    text = json.dumps(content).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def timelines(run: Path, *files: Path, **options: Any) -> list[Any]:
    shown = VIEWS["memory"](import_into(run, *files), ViewOptions(**options))
    return shown.timelines  # type: ignore[attr-defined, no-any-return]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the trace and memory timelines of two training steps."""
    torch = pytest.importorskip("torch")
    directory = tmp_path_factory.mktemp("torch")
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters())
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        profile_memory=True,
        record_shapes=True,
        with_stack=True,
    ) as profiler:
        for _ in range(2):
            loss = model(torch.randn(8, 16)).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    profiler.export_chrome_trace(str(directory / "trace.json"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the export is deprecated
        for name in ("memory.raw.json.gz", "memory.json", "sums.json.gz"):
            profiler.export_memory_timeline(str(directory / name), device="cpu")
    return directory


@pytest.mark.parametrize("name", ["memory.raw.json.gz", "memory.json", "sums.json.gz"])
def test_files_of_torch(recorded: Path, tmp_path: Path, name: str) -> None:
    """Torch's own sums by time are the reference, for its raw events as well."""
    times, sums = json.loads((recorded / "memory.json").read_bytes())
    totals = [sum(row) for row in sums]
    peak = totals.index(max(totals))
    (timeline,) = timelines(tmp_path / "run", recorded / name)
    assert timeline.peak_bytes == max(totals)
    assert timeline.end_bytes == totals[-1]
    rows = {row.category: row for row in timeline.categories}
    assert {name: row.end_bytes for name, row in rows.items()} == {
        name: sums[-1][1 + n] for n, name in enumerate(NAMES) if any(row[1 + n] for row in sums)
    }
    at_peak = {name: sums[peak][1 + n] for n, name in enumerate(NAMES) if name in rows}
    assert {name: row.at_peak_bytes for name, row in rows.items()} == at_peak
    assert sum(row.share_ratio for row in rows.values()) == pytest.approx(1)
    assert abs(timeline.peak_after_ns - 1000 * (times[peak] - times[0])) < 1000
    (weights,) = (curve for curve in timeline.curves if curve.category == "parameter")
    assert max(weights.curve_bytes) == max(row[1] for row in sums)


def test_together_with_its_trace(recorded: Path, tmp_path: Path) -> None:
    files = (recorded / "trace.json", recorded / "memory.raw.json.gz")
    shown: Any = VIEWS["memory"](import_into(tmp_path / "run", *files))
    (traced,), (timeline,) = shown.traces, shown.timelines
    assert timeline.during == traced.trace
    assert traced.devices[0].device == "CPU"
    assert 0 <= timeline.peak_after_ns <= traced.devices[0].curve_after_ns[-1]


def test_levels_by_hand(tmp_path: Path) -> None:
    (timeline,) = timelines(tmp_path / "run", write(tmp_path / "m.raw.json", CHANGES))
    assert (timeline.change_count, timeline.preexisting_bytes) == (7, 1_000)
    assert timeline.curve_after_ns == [0, 1_000, 2_000, 4_000, 5_000]
    assert {curve.category: curve.curve_bytes for curve in timeline.curves} == {
        "parameter": [1_000] * 5,
        "temporary": [500, 0, 200, 0, 0],
        "gradient": [0, 500, 500, 500, 0],
    }
    assert (timeline.peak_bytes, timeline.peak_after_ns, timeline.end_bytes) == (
        1_700,
        2_000,
        1_000,
    )
    rows = [
        (r.category, r.at_peak_bytes, r.largest_bytes, r.end_bytes) for r in timeline.categories
    ]
    assert rows == [
        ("parameter", 1_000, 1_000, 1_000),
        ("gradient", 500, 500, 0),
        ("temporary", 200, 500, 0),
    ]
    assert timeline.categories[1].share_ratio == 500 / 1_700


def test_the_trace_of_a_rank(tmp_path: Path) -> None:
    """Traces of two ranks cover the timeline: its name tells the rank."""
    files = [tmp_path / f"rank{rank}.json" for rank in range(2)]
    for rank, path in enumerate(files):
        path.write_bytes(trace(op("aten::mm", 0, 9_000), distributedInfo={"rank": rank}))
    ranked = write(tmp_path / "memory_rank1.raw.json.gz", CHANGES)
    unknown = write(tmp_path / "memory.raw.json.gz", CHANGES)
    shown = timelines(tmp_path / "run", *files, ranked, unknown)
    during = {timeline.name: timeline.during for timeline in shown}
    assert during == {"memory_rank1.raw.json.gz": "rank1.json", "memory.raw.json.gz": None}
    (of_rank_0,) = timelines(tmp_path / "again", *files, ranked, unknown, rank=0)
    assert of_rank_0.name == "memory.raw.json.gz"


def test_a_range_of_time(tmp_path: Path) -> None:
    """Levels in the range start from what was allocated before it."""
    run = import_into(tmp_path / "run", write(tmp_path / "m.raw.json", CHANGES))
    shown: Any = VIEWS["memory"](run, ViewOptions(from_ns=3_500, to_ns=5_000))
    (timeline,) = shown.timelines
    assert timeline.peak_bytes == timeline.end_bytes == 1_500
    assert VIEWS["memory"](run, ViewOptions(from_ns=4_500)).timelines[0].peak_bytes == 1_000  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([[], []], "its device allocated none"),
        ([*CHANGES, [1, 9, 5, 0]], "not a complete memory timeline"),
        ([[1_000, 2_000], [[0, 1, 0, 0, 0, 0, 0, 0, 0]]], "9 sums for each"),
    ],
)
def test_unreadable_files(tmp_path: Path, content: Any, reason: str) -> None:
    path = write(tmp_path / "m.json", content)
    with pytest.raises(UnreadableTraceError, match=reason):
        import_into(tmp_path / "run", path)


def test_truncated_files(tmp_path: Path) -> None:
    path = write(tmp_path / "m.raw.json.gz", CHANGES)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UnreadableTraceError, match=r"m\.raw\.json\.gz"):
        import_into(tmp_path / "run", path)


@pytest.mark.parametrize("content", [b"", b"[]", b'[{"ph": "X"}]', b"[[1, 2", b"\x1f\x8bxx"])
def test_other_files_are_left_to_others(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.raw.json.gz"
    path.write_bytes(content)
    readable = MemoryTimelineImporter().recognise(read_head(path), path)
    assert readable == (content == b"[[1, 2")  # the beginning of sums


def test_report_of_the_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    path = write(tmp_path / "m.raw.json", CHANGES)
    root.main(["import", str(path), "-o", run], standalone_mode=False)
    assert capsys.readouterr().out.splitlines() == [
        f"1 memory timeline, 7 changes in {run}",
        f"Next: stepscope show {run} memory",
    ]
    root.main(["show", run, "memory"], standalone_mode=False)
    assert "gradient" in capsys.readouterr().out
    root.main(["diagnose", run], standalone_mode=False)
    sentence = "No verdict: the imported files contain no event of a training process."
    assert sentence in " ".join(capsys.readouterr().out.split())


class TestMemoryTimeline(ImporterContract):
    importer = MemoryTimelineImporter
    varying = frozenset({"timeline"})

    def write(self, directory: Path) -> Path:
        return write(directory / "m.raw.json", CHANGES)
