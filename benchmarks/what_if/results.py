"""Results of the benchmark of simulated fixes, and their file."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.measuring import Quartiles, quartiles

RESULTS = Path(__file__).resolve().parents[1] / "results" / "what_if.json"
Shares = dict[str, float]
"""Milliseconds on a critical path, by kind of time."""


class RecordingResult(msgspec.Struct, frozen=True, kw_only=True):
    """Causal graph of one real trace, or of traces that were recorded together."""

    step_count: int
    is_whole: bool
    """The trace marks no steps: all of it is one."""
    step_ms: float
    error_ratio: float
    """Of the replay of all steps; negative if too short."""
    step_errors: tuple[float, float]
    """Median and 95th percentile of the absolute errors of single steps."""
    path_ms: Shares
    """Per step."""
    point_count: int
    edge_count: int
    event_count: int
    import_s: float
    """CPU time of `stepscope import`, start-up included."""
    graph_s: float
    """CPU time of graph, replay and path; without that of reading the tables."""


class PeerPath(msgspec.Struct, frozen=True, kw_only=True):
    """Critical path of another tool, or why there is none."""

    path_ms: Shares
    """Of all steps."""
    error: str = ""


class PairResult(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted and achieved savings of one fix; lists have one entry per round."""

    fix: str
    true_fix: str
    is_off_path: bool
    """The fix should save nothing."""
    before_ms: list[float]
    fixed_ms: list[float]
    recorded_ms: list[float]
    """Mean steps of the recorded loop."""
    graph_ratios: list[float | None]
    """Savings predicted on the graph, as shares of the step."""
    share_ratios: list[float | None]
    """Those predicted from shares; None where there is no such prediction."""
    error_ratios: list[float]
    """Errors of the replay."""

    @property
    def achieved_ratios(self) -> list[float]:
        """Achieved saving of each round."""
        return [
            1 - fixed / before for before, fixed in zip(self.before_ms, self.fixed_ms, strict=True)
        ]

    def error_of(self, predicted: Sequence[float | None]) -> float | None:
        """Compute the difference of the median prediction to the median achieved saving."""
        summary = summarize(predicted)
        return summary and summary.median - statistics.median(self.achieved_ratios)


class Results(msgspec.Struct, kw_only=True):
    """All parts, each by name."""

    machine: str = ""
    revision: str = ""
    date: str = ""
    rounds: int = 0
    peer: str = ""
    """Name and version of the other tool."""
    recordings: dict[str, RecordingResult] = {}
    peer_paths: dict[str, PeerPath] = {}
    pairs: dict[str, PairResult] = {}


def load_results() -> Results:
    """Load the results, empty if nothing was measured."""
    if not RESULTS.exists():
        return Results()
    return msgspec.json.decode(RESULTS.read_bytes(), type=Results)


def store_results(results: Results) -> None:
    """Store the results."""
    staged = RESULTS.with_suffix(".json.tmp")
    staged.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    staged.replace(RESULTS)


def summarize(values: Sequence[float | None]) -> Quartiles | None:
    """Compute the quartiles of the values that are known; None without any."""
    numbers = [value for value in values if value is not None]
    return quartiles(numbers) if numbers else None
