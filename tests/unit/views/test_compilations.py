"""View of compilations: functions, causes, and the work of compiled code in traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.importers import import_files
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.views.operators.compilations import NO_COMPILATIONS, show_compilations
from stepscope.views.options import ViewOptions
from tests.support.compiler_logs import end, graph, graph_break, start, training_log
from tests.support.kineto_files import Event, kernel, launch, op, trace

MS = 1_000_000


def call(key: str, at: int, *kernels: tuple[str, int]) -> list[Event]:
    """Draw a call of a graph that launches kernels of some durations, all in microseconds."""
    events = [op(f"## Call CompiledFxGraph {key} ##", 1_000 * at, 50_000, external=at)]
    for number, (name, duration) in enumerate(kernels):
        begin = 1_000 * (at + 1 + 5 * number)
        events += [
            op(name, begin, 4_000, external=at + 1 + number),
            launch(begin + 1_000, 1_000, at + number, external=at + 1 + number),
            kernel(begin + 100_000 * (1 + number), 1_000 * duration, at + number, name=name),
        ]
    return events


def open_imported(tmp_path: Path, log: bytes, *events: Event) -> Run:
    run = RunBuilder(tmp_path / "run").write()
    paths = [tmp_path / "torch_trace_rank_0.log"]
    paths[0].write_bytes(log)
    if events:
        paths.append(tmp_path / "rank-0.json")
        paths[1].write_bytes(trace(*events, distributedInfo={"rank": 0, "world_size": 1}))
    import_files(paths, run, "n")
    return Run(open_run(run))


def test_functions_are_listed_with_their_causes(tmp_path: Path) -> None:
    payload = show_compilations(open_imported(tmp_path, training_log()))
    counts = (payload.compilation_count, payload.recompilation_count, payload.graph_break_count)
    assert counts == (5, 1, 1)
    assert (payload.cache_hit_count, payload.cache_miss_count) == (2, 5)
    assert payload.total_ns == 14.5 * MS
    assert [
        (row.function, row.compilation_count, row.total_ns, row.backward_ns, row.saved_ns)
        for row in payload.frames
    ] == [("forward", 3, 8.5 * MS, 3 * MS, 7.5 * MS), ("f", 2, 6 * MS, 0, 0)]
    (guard,) = payload.failed_guards
    assert (guard.name, guard.line, guard.count, guard.compilation_ns) == ("n == 4", 7, 1, 4 * MS)
    (cause,) = payload.graph_breaks
    assert (cause.function, cause.line, cause.compilation_ns) == ("f", 8, 2 * MS)
    assert [restart.name for restart in payload.restarts] == [cause.name]
    first = payload.compilations[0]
    assert (first.function, first.start_after_ns, first.duration_ns) == ("forward", 8 * MS, 5 * MS)
    assert payload.missing is None


def test_graph_breaks_are_unknown_where_the_log_has_no_record_of_them(tmp_path: Path) -> None:
    def count_breaks(name: str, log: bytes) -> tuple[int | None, ...]:
        (tmp_path / name).mkdir()
        payload = show_compilations(open_imported(tmp_path / name, log))
        (row,) = payload.compilations
        return payload.graph_break_count, payload.frames[0].graph_break_count, row.graph_break_count

    assert count_breaks("none", start() + end()) == (0, 0, 0)
    of_older_torch = end().replace(b'"num_graph_breaks": null, ', b"")
    assert count_breaks("unknown", start() + of_older_torch) == (None, None, None)
    assert count_breaks("one", start() + graph_break() + of_older_torch) == (1, 1, 1)


def test_kernels_of_one_name_belong_to_the_graph_that_launched_them(tmp_path: Path) -> None:
    """The kernel of both compilations of f is told apart by the calls of their graphs."""
    events = [
        *call("f1", 1_000, ("triton_poi_fused_add_0", 10)),
        *call("f2", 2_000, ("triton_poi_fused_add_0", 20), ("foreign", 5)),
        *call("f2", 3_000, ("triton_poi_fused_add_0", 30)),
        *call("f3", 4_000, ("triton_red_fused_sum_0", 40)),
    ]
    payload = show_compilations(open_imported(tmp_path, training_log(), *events))
    assert [
        (row.name, row.compile_ids, row.function, row.count, row.total_ns)
        for row in payload.kernels
    ] == [
        ("triton_poi_fused_add_0", "0/1", "f", 2, 50_000),
        ("triton_red_fused_sum_0", "1/0", "forward", 1, 40_000),
        ("triton_poi_fused_add_0", "0/0", "f", 1, 10_000),
    ]
    works = {
        (row.compile_id, row.direction, row.function): (row.call_count, row.call_ns, row.kernel_ns)
        for row in payload.compilations
    }
    assert works == {
        ("0/0", "forward", "f"): (1, 50_000, 10_000),
        ("0/1", "forward", "f"): (2, 100_000, 50_000),
        ("1/0", "forward", "forward"): (1, 50_000, 40_000),
        ("1/0", "backward", "forward"): (None, None, None),
        ("0/0", "forward", "forward"): (None, None, None),  # the cache had its graph
    }


def test_a_kernel_that_may_be_of_several_compilations_counts_for_none(tmp_path: Path) -> None:
    events = [launch(1_000, 1_000, 1), kernel(5_000, 10_000, 1, name="triton_poi_fused_add_0")]
    payload = show_compilations(open_imported(tmp_path, training_log(), *events))
    (row,) = payload.kernels
    assert (row.compile_ids, row.total_ns) == ("0/0, 0/1", 10_000)
    assert {row.kernel_ns for row in payload.compilations} == {None}


def test_kernels_of_the_host_have_regions(tmp_path: Path) -> None:
    log = start() + graph("f1", "cpp_fused_add_0") + end()
    region = "graph_12_cpp_fused_add_0"
    events = [
        *call("f1", 1_000),
        op(region, 1_010_000, 7_000, external=5),
        op("graph_12_cpp_fused_add_01", 1_020_000, 7_000, external=6),
    ]
    payload = show_compilations(open_imported(tmp_path, log, *events))
    (row,) = payload.kernels
    assert (row.name, row.compile_ids, row.total_ns) == ("cpp_fused_add_0", "0/0", 7_000)
    assert [(row.call_count, row.kernel_ns) for row in payload.compilations] == [(1, 7_000)]


@pytest.mark.parametrize("rank", [0, 1])
def test_recorded_compilations_are_summed_by_cause(tmp_path: Path, rank: int) -> None:
    drawn = RunBuilder(tmp_path / "run")
    for number in (0, 1):
        drawn.rank(number).draw("compile:shape 30 | forward 5", number + 1)
    payload = show_compilations(drawn.open(), ViewOptions(rank=rank))
    (row,) = payload.recorded
    assert (row.rank, row.name, row.count) == (rank, "shape", rank + 1)
    assert row.total_ns == row.count * 30 * MS
    assert (payload.missing, payload.compilations) == (None, [])
    assert (payload.compilation_count, payload.total_ns) == (row.count, row.total_ns)
    assert (row.process, payload.cache_hit_count) == (f"rank {rank}", None)


def test_a_run_without_compilations_says_how_to_get_them(tmp_path: Path) -> None:
    assert show_compilations(RunBuilder(tmp_path / "run").open()).missing == NO_COMPILATIONS
