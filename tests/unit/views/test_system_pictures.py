"""Heat maps, series and scalars, against samples averaged one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.errors import UsageError
from stepscope.run import Run
from stepscope.store import DictColumn, RunWriter, open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from stepscope.views import VIEWS, ViewOptions, system
from stepscope.views.system import MAX_COLUMNS, show_system_heat, show_system_series
from stepscope.views.tensors.tensors import MAX_POINTS, show_tensors
from tests.support.printed import print_text

S = 1_000_000_000


def draw(path: Path) -> RunBuilder:
    """Ten minutes, 1,200 samples: three to a column of a heat map."""
    builder = RunBuilder(path, cores=40)
    builder.rank().draw("wait 5 | forward 990 | optimizer 5", 600)
    builder.metric("gpu_busy_ratio", lambda s: (s % 100) / 100, device="0")
    builder.metric("memory_used_bytes", lambda s: s * 1e6)
    for core in range(40):
        builder.metric("core_busy_ratio", core / 40, device=str(core))
    return builder.metric("cpu_busy_ratio", 0.5, node="n1")


@pytest.fixture
def run(drawn_once: Callable[..., Run]) -> Run:
    return drawn_once(draw)


@pytest.mark.seed("DBI-06")
def test_heat(run: Run) -> None:
    payload = show_system_heat(run)
    assert [node.node for node in payload.nodes] == ["n0", "n1"]
    node = payload.nodes[0]
    assert [row.name for row in node.rows[:2]] == ["GPU 0 utilisation", "core 0"]
    assert [row.name for row in node.rows[-2:]] == ["core 31", "memory"]
    assert node.left_out_count == 8
    assert all(len(row.shade_ratio) <= MAX_COLUMNS for row in node.rows)
    times = np.arange(0, 600 * S, S // 2)
    column_of = times // payload.column_ns
    gpu = (times / S % 100) / 100
    expected = [gpu[column_of == column].mean() for column in range(column_of[-1] + 1)]
    assert node.rows[0].shade_ratio == pytest.approx(expected, abs=1e-4)
    memory = node.rows[-1]
    assert memory.full == pytest.approx(times[column_of == column_of[-1]].mean() / S * 1e6)
    assert max(value for value in memory.shade_ratio if value is not None) == 1


def test_all_cores_of_a_node(run: Run) -> None:
    (node,) = show_system_heat(run, ViewOptions(name="n0")).nodes
    assert sum(row.metric == "core_busy_ratio" for row in node.rows) == 40
    with pytest.raises(UsageError, match="available: n0, n1"):
        show_system_heat(run, ViewOptions(name="n2"))


@pytest.mark.seed("DBI-04", "DBI-05")
def test_series(run: Run) -> None:
    payload = show_system_series(run)
    metrics = {series.metric for node in payload.nodes for series in node.series}
    assert metrics == {"gpu_busy_ratio", "memory_used_bytes", "cpu_busy_ratio"}
    gpu = payload.nodes[0].series[0]
    times = np.arange(0, 600 * S, S // 2)
    column_of = times // payload.piece_ns
    values = (times / S % 100) / 100
    for name, reduce in (("mean", np.mean), ("minimum", np.min), ("largest", np.max)):
        expected = [reduce(values[column_of == piece]) for piece in range(payload.piece_count)]
        assert getattr(gpu, name) == pytest.approx(expected)
    selected = show_system_series(run, ViewOptions(name="n0"))
    assert sum(len(node.series) for node in selected.nodes) == 42


def test_the_limit_of_series_omits_counters_of_processes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 40
    monkeypatch.setattr(system, "MAX_SERIES", limit)
    builder = RunBuilder(tmp_path / "run")
    builder.rank().draw("forward 1000", 4)
    builder.metric("swap_used_bytes", 1.0)
    per_process = ("process_cpu_cores", "process_memory_bytes", "process_cycles_per_s")
    for pid in range(limit // 2 - 3):
        for metric in per_process:
            builder.metric(metric, 1.0, device=str(pid))
    payload = show_system_series(builder.open(), ViewOptions(name="n0"))
    (node,) = payload.nodes
    counts = Counter(series.metric for series in node.series)
    assert counts == {
        "swap_used_bytes": 1,
        "process_cpu_cores": limit // 2 - 3,
        "process_memory_bytes": limit // 2 - 3,
        "process_cycles_per_s": 5,
    }
    assert payload.left_out_count == limit // 2 - 3 - 5


def test_series_of_a_range(run: Run) -> None:
    payload = VIEWS["system-series"](run, ViewOptions(from_ns=100 * S, to_ns=130 * S))
    assert (payload.start_after_ns, payload.piece_ns, payload.piece_count) == (100 * S, S, 30)
    memory = next(s for s in payload.nodes[0].series if s.metric == "memory_used_bytes")
    assert memory.mean == pytest.approx([(s + 0.25) * 1e6 for s in range(100, 130)])


@pytest.mark.seed("DBT-06")
def test_what_is_logged(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    builder.rank().draw("forward 10")
    path = builder.write()
    count = 2 * MAX_POINTS + 1
    value = np.arange(count, dtype=np.float64)
    value[[3, 10, 11]] = np.nan, np.inf, np.nan
    fixed = {"node": "n0", "process": "1-1-0", "log": "1s", "name": "loss"}
    with RunWriter(path, "n0") as writer:
        columns: dict[str, Any] = {k: DictColumn.constant(v, count) for k, v in fixed.items()}
        times = EPOCH_NS + np.arange(count) * S
        columns |= {
            "seq": np.arange(count),
            "t_ns": times,
            "step": np.arange(count),
            "value": value,
        }
        writer.append("scalars", columns)
    (series,) = show_tensors(Run(open_run(path))).scalars
    assert (series.name, series.values_per_point, series.nan_count) == ("loss", 3, 3)
    assert series.step == list(range(0, count, 3))
    # NaN and infinity have no say in the mean of their point.
    assert series.value[:4] == [1.0, 4.5, 7.0, 9.0]
    assert series.after_ns[:2] == [0, 3 * S]
    (some,) = VIEWS["tensors"](
        Run(open_run(path)), ViewOptions(from_ns=10 * S, to_ns=13 * S)
    ).scalars
    assert some.value == [None, None, 12.0]
    falling = Run(open_run(path)).between(EPOCH_NS, EPOCH_NS + 10 * S)
    no_rule = "o rule about tensors or losses fired in this range."
    assert show_tensors(falling).sentence == f"1 value of loss is NaN or infinite; n{no_rule}"
    finite = Run(open_run(path)).between(EPOCH_NS + 12 * S, EPOCH_NS + 21 * S)
    assert show_tensors(finite).sentence == f"loss rises from 12 to 20. N{no_rule}"
    assert show_tensors(Run(open_run(path)), ViewOptions(name="acc")).scalars == []


def test_text(run: Run) -> None:
    for view in ("system-heat", "system-series", "dashboard"):
        assert "n0" in print_text(VIEWS[view](run))
