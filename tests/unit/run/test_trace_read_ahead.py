"""Recordings that are looked at one after the other: what is read, and how often."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.run import Run
from stepscope.run.traces import Trace, reading_ahead
from stepscope.store import DictColumn, RunReader, open_run
from stepscope.views import VIEWS
from tests.support.drawn_trace import Event, distributed, training
from tests.support.imported_runs import import_into

RANKS = 5
COLUMNS = ("name", "start_ns", "duration_ns")
OWN_TIMES = ("name", "host_self_ns", "device_total_ns")
ALL = 1_000_000


def make_run(index: Path, recordings: Sequence[list[Event]]) -> Path:
    """Make a run of one trace per rank."""
    files = [index / f"rank{rank}.json" for rank in range(len(recordings))]
    for rank, (file, events) in enumerate(zip(files, recordings, strict=True)):
        file.write_text(json.dumps(distributed(events, rank, len(files))))
    import_into(index / "run", *files)
    return index / "run"


@pytest.fixture(scope="module")
def unlike(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a run whose traces grow with the rank; the second one has no kernel."""
    recordings = [training()[: 8 + 2 * rank] for rank in range(RANKS)]
    recordings[1] = [trace for trace in recordings[1] if trace["cat"] != "kernel"]
    return make_run(tmp_path_factory.mktemp("unlike"), recordings)


@pytest.fixture
def ranks(unlike: Path) -> Run:
    return Run(open_run(unlike))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two ranks, and six."""
    return [make_run(tmp_path_factory.mktemp("alike"), [training()] * count) for count in (2, 6)]


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of tables in the order in which they are read."""
    read: list[str] = []
    table = RunReader.table

    def counted(reader: RunReader, name: str, *args: Any, **options: Any) -> dict[str, Any]:
        read.append(name)
        return table(reader, name, *args, **options)

    monkeypatch.setattr(RunReader, "table", counted)
    return read


def plain(columns: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {
        name: (values.decode() if isinstance(values, DictColumn) else values).tolist()
        for name, values in columns.items()
    }


def tables_of(traces: Sequence[Trace]) -> list[list[dict[str, list[Any]]]]:
    """Query the traces one by one, as a view does."""
    return [
        [
            plain(trace.columns("kernels", COLUMNS)),
            plain(trace.columns("kernels", COLUMNS, condition="name LIKE 'nccl%'")),
            plain(trace.columns("operators", OWN_TIMES)),
            plain(trace.whole.columns("operators", OWN_TIMES)),
            plain(trace.columns("tracks", ("track", "stream"))),
        ]
        for trace in traces
    ]


@pytest.mark.parametrize("events", [0, 20, 30, ALL])
def test_the_same_as_of_each_alone(ranks: Run, events: int) -> None:
    within = ranks.within(20_000, 110_000)
    for signals in (ranks, within):
        alone = tables_of(signals.traces)
        assert tables_of(reading_ahead(signals.traces, events)) == alone
        assert any(kernels["name"] for kernels, *_ in alone)


def test_strings_are_those_in_use(ranks: Run) -> None:
    for alone, ahead in zip(ranks.traces, reading_ahead(ranks.traces), strict=True):
        names = [trace.columns("kernels", COLUMNS)["name"] for trace in (alone, ahead)]
        assert list(names[0].values) == list(names[1].values)
        assert np.array_equal(names[0].codes, names[1].codes)


def test_one_query_for_all(ranks: Run, queries: list[str]) -> None:
    traces = reading_ahead(ranks.traces)
    queries.clear()
    for trace in traces:
        trace.columns("kernels", COLUMNS)
        trace.columns("copies", COLUMNS)
    assert queries == ["kernels", "copies"]


def test_no_more_events_at_once_than_said(ranks: Run, queries: list[str]) -> None:
    counts = [trace.event_count for trace in ranks.traces]
    traces = reading_ahead(ranks.traces, sum(counts[:3]))
    queries.clear()
    reads = []
    for trace in traces:
        trace.columns("kernels", COLUMNS)
        reads.append(len(queries))
    assert counts[3] + counts[4] > sum(counts[:3]) > counts[4]
    assert reads == [1, 1, 1, 2, 3]


def test_a_recording_beyond_the_limit_is_read_alone(ranks: Run, queries: list[str]) -> None:
    traces = reading_ahead(ranks.traces, 1)
    queries.clear()
    for trace in traces:
        trace.columns("kernels", COLUMNS)
    assert len(queries) == RANKS


def test_asked_twice(ranks: Run, queries: list[str]) -> None:
    """Returned columns are dropped; those of other traces are not read again."""
    traces = reading_ahead(ranks.traces)
    queries.clear()
    for trace in traces:
        first = plain(trace.columns("kernels", COLUMNS))
        assert plain(trace.columns("kernels", COLUMNS)) == first
    assert len(queries) == 1 + RANKS


def test_gone_through_twice(ranks: Run, queries: list[str]) -> None:
    traces = reading_ahead(ranks.traces)
    queries.clear()
    first = [plain(trace.columns("kernels", COLUMNS)) for trace in traces]
    assert [plain(trace.columns("kernels", COLUMNS)) for trace in traces] == first
    assert len(queries) == 2


def test_some_left_out(ranks: Run) -> None:
    """A view may not want all, nor in this order."""
    alone = [plain(trace.columns("kernels", COLUMNS)) for trace in ranks.traces]
    traces = reading_ahead(ranks.traces, sum(t.event_count for t in ranks.traces[:2]))
    for index in (0, 3, 2, 4, 1, 1, 0):
        assert plain(traces[index].columns("kernels", COLUMNS)) == alone[index]


def test_quality_of_all_is_read_once(ranks: Run, queries: list[str]) -> None:
    traces = ranks.traces
    queries.clear()
    doubts = [set(trace.quality_issues) for trace in traces]
    assert queries == ["quality"]
    assert any(doubts)


@pytest.mark.parametrize(
    "view", ["steps", "gpu-metrics", "launches", "memory", "operators", "distributed", "insights"]
)
def test_views_do_not_read_more_often_for_more_ranks(
    runs: Sequence[Path], queries: list[str], view: str
) -> None:
    requests = []
    for run in runs:
        signals = Run(open_run(run))
        queries.clear()
        VIEWS[view](signals)
        requests.append(len(queries))
    assert requests[0] == requests[1]
