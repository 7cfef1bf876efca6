"""Samples, spans and traces: what is read from the store, and how often."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stepscope.analysis import measure_batch_creation
from stepscope.analysis.steps import phases
from stepscope.run import Run
from stepscope.run.model import process_tables, tables
from stepscope.run.model.metrics import NodeMetrics
from stepscope.run.model.process_tables import SizedCache
from stepscope.run.model.tables import load_spans, read_spans
from stepscope.run.model.traces import Trace, reading_ahead, release_columns
from stepscope.schema import IntervalChange
from stepscope.store import DictColumn, RunReader, open_run
from stepscope.testing import RunBuilder
from stepscope.views import VIEWS
from tests.support.drawn_trace import Event, distributed, training
from tests.support.imported_runs import import_into

STEP = "wait 20 | forward 30 | backward 60 | optimizer 10"


@pytest.fixture
def run(tmp_path: Path) -> RunBuilder:
    run = RunBuilder(tmp_path / "run", sampling_ms=1000)
    run.rank(0).draw(STEP, 200, jitter=0.1)
    run.rank(1).draw(STEP, 200, jitter=0.1, seed=1)
    for gpu in ("0", "2", "10"):
        run.metric("gpu_busy_ratio", lambda s, g=gpu: s / 100 + int(g), device=gpu)
    run.metric("gpu_power_watt", lambda s: np.nan if s > 5 else s, device="0")
    run.metric("gpu_temperature_celsius", np.nan, device="0")
    return run


def test_memory_of_large_reads_is_released(
    run: RunBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = open_run(run.write())
    names = sorted(process.process for process in reader.processes())
    before = read_spans(reader, names, ["forward"])
    monkeypatch.setattr(tables, "LARGE_READ", 0)
    for _ in range(2):
        after = read_spans(reader, names, ["forward"])
        assert sorted(after) == names
        for name in names:
            starts = [np.concatenate(list(rows[name]["start_ns"])) for rows in (before, after)]
            assert np.array_equal(*starts)


def test_they_are_those_of_the_table(run: RunBuilder) -> None:
    reader = open_run(run.write())
    metrics = Run(reader).metrics["n0"]
    rows = reader.table("metrics", ("t_ns", "metric", "device", "value"), order_by="t_ns")
    assert metrics.names == sorted(set(rows["metric"]))
    assert metrics.devices_of("gpu_busy_ratio") == ["0", "2", "10"]
    middle = int(np.median(rows["t_ns"]))
    for first, last in ((None, None), (None, middle), (middle, None), (middle - 10**10, middle)):
        part = metrics.between(first, last)
        inside = (rows["t_ns"] >= (first or 0)) & (rows["t_ns"] < (last or 2**62))
        for name in metrics.names:
            for device in part.devices_of(name):
                selected = inside & (rows["metric"] == name) & (rows["device"] == device)
                values = rows["value"][selected]
                assert np.array_equal(part.series(name, device), values, equal_nan=True)
                loaded = part.load("gpu_power_watt", name)[name][device]
                assert np.array_equal(loaded.value, values, equal_nan=True)
                assert loaded.t_ns.tolist() == rows["t_ns"][selected].tolist()
                present = values[~np.isnan(values)]
                expected = pytest.approx(present.mean()) if len(present) else None
                assert part.mean(name, device) == expected
    assert list(metrics.load("gpu_busy_ratio", "disk_read_bytes_per_s")["gpu_busy_ratio"]) == [
        "0",
        "2",
        "10",
    ]


def test_missing_is_not_zero(run: RunBuilder) -> None:
    reader = open_run(run.write())
    elsewhere = msgspec.structs.replace(reader.nodes()["n0"], node="elsewhere")
    for metrics in (Run(reader).metrics["n0"], NodeMetrics(reader, elsewhere)):
        assert metrics.mean("disk_read_bytes_per_s") is None
        assert metrics.mean("gpu_busy_ratio", "7") is None
        assert metrics.mean("gpu_temperature_celsius", "0") is None
        assert not len(metrics.series("disk_read_bytes_per_s"))


def test_spans_that_memory_cannot_hold_are_read_again(
    run: RunBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = open_run(run.write())
    first, second = (rank.spans for rank in Run(reader).ranks)
    monkeypatch.setattr(process_tables, "MAX_CACHED_SPANS", len(first) + len(second) - 1)
    earlier, last = Run(reader).ranks
    assert last.spans is last.spans
    again = earlier.spans
    assert again is not first
    assert again.start.tolist() == first.start.tolist()
    assert last.spans.end.tolist() == second.end.tolist()


def test_spans_of_a_node_are_read_at_once_if_memory_can_hold_them(
    run: RunBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = open_run(run.write())
    reads: list[Sequence[str]] = []

    def read(reader: RunReader, processes: Sequence[str], *args: Any, **options: Any) -> Any:
        reads.append(processes)
        return load_spans(reader, processes, *args, **options)

    monkeypatch.setattr(process_tables, "load_spans", read)
    together = Run(reader)
    spans = [rank.spans for rank in together.ranks]
    names = [process.process for process in together.processes if process.role == "main"]
    assert reads == [names]
    monkeypatch.setattr(process_tables, "MAX_CACHED_SPANS", max(map(len, spans)))
    for rank, expected in zip(Run(reader).ranks, spans, strict=True):
        assert rank.spans.start.tolist() == expected.start.tolist()
        assert rank.spans.end.tolist() == expected.end.tolist()
        assert rank.spans.kind.tolist() == expected.kind.tolist()
    assert all(len(processes) == 1 for processes in reads[1:])


@pytest.mark.parametrize("values", [3, 40])  # by which spans are grouped, and too many for that
def test_spans_of_a_long_run_are_read_in_ranges_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: int
) -> None:
    """The parts have the same spans in the same order, with their phases, as one query of all."""
    builder = RunBuilder(tmp_path / "run")
    thread = builder.rank()
    thread.draw("forward:Net=8 3 ( communication 1 ) | checkpoint ?")
    for step in range(100):
        thread.draw(f"wait={step % values} 2 | forward:Net=8 4 | loader_start ?")
        thread.draw("garbage_collection 1 | backward 5 ( communication 1 ) | optimizer 2")
    thread.evaluation(3).draw("wait=1 2 | forward 4 | backward 5 | optimizer 2", 9)
    reader = open_run(builder.write())
    at_once = Run(reader).ranks[0]
    monkeypatch.setattr(tables, "LARGE_READ", 30)
    monkeypatch.setattr(phases, "CHUNK_SPANS", 4)
    monkeypatch.setattr(phases, "CHUNK_ROWS", 4)
    parts = Run(reader).ranks[0]
    assert parts.spans.kinds == at_once.spans.kinds
    assert parts.spans.names == at_once.spans.names
    for column in ("start", "end", "kind", "name", "value", "unfinished"):
        assert getattr(parts.spans, column).tolist() == getattr(at_once.spans, column).tolist()
    for flag in (1, 2, 4, 8, 32):
        assert parts.spans.has_flag(flag).tolist() == at_once.spans.has_flag(flag).tolist()
    assert parts.spans.count_threads() == at_once.spans.count_threads()
    assert msgspec.json.encode(parts.waiting) == msgspec.json.encode(at_once.waiting)
    assert parts.steps.wall_ns.tolist() == at_once.steps.wall_ns.tolist()
    for phase, times in parts.steps.phase_ns.items():
        assert times.tolist() == at_once.steps.phase_ns[phase].tolist(), phase


def test_a_range_of_a_long_run_is_read_without_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spans, stack samples and delays of a range are those of the whole run, whose masks would take
    longer; an unfinished span still lasts until the end of the run, and workers are ahead."""
    builder = RunBuilder(tmp_path / "run", sampling_ms=5, code={"decode": "Scenes.load"})
    rank = builder.rank(workers=1)
    rank.draw("forward:Net=8 3 ( communication 1 ) | checkpoint ?")
    rank.draw("wait=0 30 | forward 30 | backward 30 | optimizer 10", 30)
    (worker,) = rank.workers
    worker.pause(75).draw("fetch 100 ( samples ( do:decode 80 ) | collate 10 )", 30)
    delayed = worker.thread().pause(50)
    for _ in range(30):
        delayed.draw("run_queue=1500000 2.5").pause(32.5)  # until a sample
        delayed.draw("run_queue=1500000 2.5").pause(62.5)
    worker.fact("stack_sampler", period_ns=5_000_000, counts_delays=True)
    reader = open_run(builder.write())
    long_run = Run(reader)
    (trainer,) = long_run.ranks
    (loader,) = long_run.workers_of(trainer.process)
    samples = long_run.stack_samples(loader)
    assert np.count_nonzero(samples.weight_ns < samples.weight_ns.max()) >= 29
    (fetcher,) = long_run.fetchers_of(trainer.process)
    starts = trainer.steps.start.tolist()
    for first, last in [(3, 7), (0, 29), (12, 13)]:
        of_cached = long_run.between(starts[first] - 40_000_000, starts[last] + 90_000_000)
        (expected,) = of_cached.ranks
        inside = of_cached.period.contains(fetcher.spans.start) | ~fetcher.spans.is_kind("fetch")
        cut = msgspec.structs.replace(fetcher, spans=fetcher.spans.take(inside))
        making = measure_batch_creation([cut], expected.steps)
        assert making is not None
        assert making.without_core_ratio
        with monkeypatch.context() as patch:
            patch.setattr(process_tables, "MAX_CACHED_SPANS", 0)
            read = Run(reader).between(*of_cached.period)
            (alone,) = read.ranks
            for column in ("start", "end", "unfinished"):
                spans = getattr(alone.spans, column).tolist()
                assert spans == getattr(expected.spans, column).tolist(), column
            for one in (alone.making, expected.making):
                assert msgspec.json.encode(one) == msgspec.json.encode(making)
        near = read.stack_samples(loader)
        inside = of_cached.period.contains(samples.t_ns)
        assert near.t_ns.tolist() == samples.t_ns[inside].tolist()
        assert near.weight_ns.tolist() == samples.weight_ns[inside].tolist()
        assert [near.stacks[code] for code in near.stack] == [
            samples.stacks[code] for code in samples.stack[inside]
        ]


def test_workers_belong_to_the_process_of_their_own_node(tmp_path: Path) -> None:
    """Processes of two nodes may have the same pid."""
    builder = RunBuilder(tmp_path / "run")
    drawn = [builder.rank(rank, workers=2, node=f"n{rank}") for rank in range(2)]
    for rank in drawn:
        rank.draw("wait=0 20 | forward 30 | backward 60 | optimizer 10", 20)
        rank.info = msgspec.structs.replace(rank.info, pid=7)
        for worker in rank.workers:
            worker.info = msgspec.structs.replace(worker.info, parent_pid=7)
    run = Run(open_run(builder.write()))
    for rank, node in zip(run.ranks, ("n0", "n1"), strict=True):
        assert [worker.node for worker in run.workers_of(rank.process)] == [node] * 2


@pytest.mark.seed("DBP-10")
def test_samples_weigh_as_much_as_their_interval(run: RunBuilder) -> None:
    """Means are those of time, wherever the sampling interval changed."""
    reader = open_run(run.write())
    rows = reader.table("metrics", ("t_ns", "value"), condition="device = '2'", order_by="t_ns")
    times, values = rows["t_ns"], rows["value"]
    changes = [(int(times[5]), 60_000), (int(times[9]), 100), (int(times[-3]), 200)]
    info = msgspec.structs.replace(
        reader.nodes()["n0"],
        interval_changes=[
            IntervalChange(t_ns=t_ns, interval_ns=1_000_000 * ms) for t_ns, ms in changes
        ],
    )
    first_ms = info.sample_interval_ns // 1_000_000
    assert info.interval_ns_at(int(times[5]) - 1) == info.sample_interval_ns
    assert info.interval_ns_at(int(times[9])) == 100_000_000
    assert info.max_interval_ns(0, int(times[5])) == info.sample_interval_ns
    assert info.max_interval_ns(int(times[9]), int(times[-1])) == 200_000_000
    assert info.max_interval_ns(0, int(times[-1])) == 60_000_000_000
    weights = []
    for t_ns in times:
        applied = [ms for start, ms in [(0, first_ms), *changes] if start <= t_ns]
        weights.append(applied[-1])
    expected = np.average(values, weights=weights)
    metrics = NodeMetrics(reader, info)
    assert metrics.mean("gpu_busy_ratio", "2") == pytest.approx(expected)
    assert metrics.mean("gpu_busy_ratio", "2") != pytest.approx(values.mean())
    # Device 10 has the highest value at each time.
    tenth = metrics.load("gpu_busy_ratio")["gpu_busy_ratio"]["10"].value
    highest = np.average(tenth, weights=weights)
    assert metrics.mean_of_highest("gpu_busy_ratio") == pytest.approx(highest)
    series = metrics.load("gpu_busy_ratio")["gpu_busy_ratio"]["2"]
    statistics = metrics.summarize(series)
    assert statistics.count == len(values)
    assert statistics.mean == pytest.approx(expected)
    in_time = np.repeat(values, weights)  # one value per millisecond
    assert statistics.p50 == pytest.approx(np.median(in_time), abs=1e-6)


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
        release_columns()
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
    """A recording beyond the limit is read alone."""
    counts = [trace.event_count for trace in ranks.traces]
    assert counts[3] + counts[4] > sum(counts[:3]) > counts[4]
    for limit, expected in ((sum(counts[:3]), [1, 1, 1, 2, 3]), (1, [1, 2, 3, 4, 5])):
        traces = reading_ahead(ranks.traces, limit)
        queries.clear()
        reads = []
        for trace in traces:
            trace.columns("kernels", COLUMNS)
            reads.append(len(queries))
        assert reads == expected


def test_asked_twice(ranks: Run, queries: list[str]) -> None:
    """Columns of the traces that were read last are read once, until they are released."""
    payloads = []
    for count in (1, 0, 1):
        traces = reading_ahead(ranks.traces)
        queries.clear()
        payloads.append([plain(trace.columns("kernels", COLUMNS)) for trace in traces])
        assert [plain(trace.columns("kernels", COLUMNS)) for trace in traces] == payloads[0]
        some = [plain(trace.columns("kernels", COLUMNS[:1])) for trace in traces]
        assert some == [{COLUMNS[0]: columns[COLUMNS[0]]} for columns in payloads[0]]
        assert len(queries) == count
        if not count:
            release_columns()
    assert payloads[0] == payloads[1] == payloads[2]
    with pytest.raises(ValueError, match="read-only"):
        traces[0].columns("kernels", ("start_ns",))["start_ns"][0] = 0


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


def test_the_least_recently_used_values_are_made_again() -> None:
    calls: list[str] = []
    cache = SizedCache[str](5)

    def get(key: str) -> str:
        return cache.get(key, lambda: calls.append(key) or 2 * key)

    assert [get(key) for key in "abacab"] == ["aa", "bb", "aa", "cc", "aa", "bb"]
    assert calls == ["a", "b", "c", "b"]
    assert (get("d" * 9), get("d" * 9)) == (18 * "d", 18 * "d")  # one value is always kept
    assert calls[4:] == ["d" * 9]
