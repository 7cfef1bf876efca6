"""Page of the benchmark of simulated fixes."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.what_if.page import describe_pairs, describe_peer
from benchmarks.what_if.results import PairResult, PeerPath, RecordingResult, Results

PAIR = PairResult(
    fix="no-input",
    true_fix="num_workers 0 → 4",
    is_off_path=False,
    before_ms=[10.0, 20.0, 10.0],
    fixed_ms=[6.0, 10.0, 5.0],
    recorded_ms=[11.0, 11.0, 11.0],
    graph_ratios=[0.5, None, 0.54],
    share_ratios=[None, None, None],
    error_ratios=[0.0, 0.2, 0.0],
)


def test_errors_are_differences_of_medians_in_points_of_the_step() -> None:
    assert PAIR.achieved_ratios == pytest.approx([0.4, 0.5, 0.5])
    assert PAIR.error_of(PAIR.graph_ratios) == pytest.approx(0.52 - 0.5)
    assert PAIR.error_of(PAIR.share_ratios) is None


def test_fixes_off_the_path_have_a_table_of_their_own() -> None:
    off_path = msgspec.structs.replace(PAIR, is_off_path=True, graph_ratios=[0.0] * 3)
    page = describe_pairs(Results(pairs={"first_loop": PAIR, "second_loop": off_path}))
    on_path, beside = page.split("### Not on the path")
    assert "| first loop | `no-input` |" in on_path
    assert "median error 2.0 points" in on_path
    assert "| second loop |" in beside
    assert "+2, none" in on_path
    assert "-50, none" in beside


def test_a_path_that_the_other_tool_does_not_find_has_its_error() -> None:
    recording = RecordingResult(
        step_count=2,
        is_whole=False,
        step_ms=4.0,
        error_ratio=0.0,
        step_errors=(0.0, 0.0),
        path_ms={"python": 3.0, "compute": 1.0},
        point_count=1,
        edge_count=1,
        event_count=1,
        import_s=1.0,
        graph_s=1.0,
    )
    paths = {"a": PeerPath(path_ms={"cpu_bound": 4.0}), "b": PeerPath(path_ms={}, error="why")}
    page = describe_peer(Results(recordings={"a": recording, "b": recording}, peer_paths=paths))
    assert "| a | 4 | 3, 2 | 1, 0 | 0, 0 | 0, 0 | 4, 2 |" in page
    assert "4, why |" in page
