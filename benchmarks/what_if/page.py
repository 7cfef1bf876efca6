"""Tables of docs/what-if.md, from the results of the benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.laboratory.page import number
from benchmarks.what_if.results import (
    PairResult,
    PeerPath,
    RecordingResult,
    Results,
    load_results,
    summarize,
)
from stepscope.analysis import CAUSAL_FIXES, NAMED_FIX, PATH_NAMES, PathCategory, find_fix

NOT_MEASURED = "Nothing was measured yet."
MIN_KIND_RATIO = 0.01
"""Kinds of time below this share of a path are left out."""
_DEVICE = ("compute", "copy")
_HOST = ("launch", "host_sync", "input", "python", "unexplained")
OWN_KINDS = {"host": _HOST, "device": _DEVICE, "communication": ("communication", "late_rank")}
PEER_KINDS = {
    "host": ("cpu_bound",),
    "device": ("gpu_compute_bound",),
    "communication": ("gpu_communication_bound",),
    "between": ("gpu_kernel_kernel_overhead", "gpu_kernel_launch_overhead"),
}


def describe_fixes() -> str:
    """Return the table of fixes with their assumptions."""
    by_name = find_fix(f"{NAMED_FIX}NAME")
    assert by_name is not None
    rows = [
        [f"`{name}{'' if fix.factor is None else f'={fix.factor:g}'}`", fix.title, fix.condition]
        for name, fix in {**CAUSAL_FIXES, f"{NAMED_FIX}NAME": by_name}.items()
    ]
    return _table(["fix", "title", "if"], rows)


def describe_recordings(results: Results | None = None) -> str:
    """Return the errors of replays, the paths and the cost by trace."""
    results = results or load_results()
    if not results.recordings:
        return NOT_MEASURED
    rows = [_describe_recording(name, one) for name, one in sorted(results.recordings.items())]
    errors = [abs(one.error_ratio) for one in results.recordings.values()]
    title = [
        "trace",
        "steps",
        "mean step, ms",
        "error of the replay",
        "of single steps: median, p95",
        "points, edges",
        "graph and path, CPU s",
        "import, CPU s",
        "on the critical path",
    ]
    return (
        f"{_table(title, rows)}\n\nMedian of the errors {_percent(statistics.median(errors), 2)}, "
        f"largest {_percent(max(errors), 2)}. {_describe_machine(results)}"
    )


def _describe_recording(name: str, one: RecordingResult) -> list[str]:
    median, high = one.step_errors
    total = sum(one.path_ms.values())
    kinds = ", ".join(
        f"{PATH_NAMES[PathCategory[kind.upper()]]} {_percent(ms / total)}"
        for kind, ms in one.path_ms.items()
        if ms >= MIN_KIND_RATIO * total
    )
    return [
        name,
        "none marked" if one.is_whole else f"{one.step_count}",
        number(one.step_ms),
        _percent(one.error_ratio, 2),
        f"{_percent(median, 2)}, {_percent(high, 2)}",
        f"{one.point_count:,}, {one.edge_count:,}",
        f"{one.graph_s:.2f}",
        f"{one.import_s:.2f}",
        kinds,
    ]


def describe_pairs(results: Results | None = None) -> str:
    """Return predicted against achieved savings."""
    results = results or load_results()
    if not results.pairs:
        return NOT_MEASURED
    parts = []
    for is_off_path in (False, True):
        pairs = {n: pair for n, pair in results.pairs.items() if pair.is_off_path == is_off_path}
        rows = [_describe_pair(name, pair) for name, pair in pairs.items()]
        title = "Not on the path" if is_off_path else "On the path"
        errors = _summarize_errors(list(pairs.values()))
        parts.append(f"### {title}\n\n{_table(_PAIR_TITLE, rows)}\n\n{errors}")
    return "\n\n".join([*parts, _describe_machine(results)])


_PAIR_TITLE = [
    "loop",
    "fix",
    "true fix",
    "step, ms: before, with the fix, recorded",
    "achieved",
    "predicted on the graph",
    "from shares",
    "error of the graph, of shares",
]


def _describe_pair(name: str, pair: PairResult) -> list[str]:
    errors = [pair.error_of(one) for one in (pair.graph_ratios, pair.share_ratios)]
    times = (pair.before_ms, pair.fixed_ms, pair.recorded_ms)
    return [
        name.replace("_", " "),
        f"`{pair.fix}`",
        pair.true_fix,
        ", ".join(f"{statistics.median(values):.3g}" for values in times),
        _spread(pair.achieved_ratios),
        _spread(pair.graph_ratios),
        _spread(pair.share_ratios),
        ", ".join("none" if error is None else f"{100 * error:+.0f}" for error in errors),
    ]


def _summarize_errors(pairs: list[PairResult]) -> str:
    sentences = []
    predictions = {
        "on the graph": [pair.graph_ratios for pair in pairs],
        "from shares": [pair.share_ratios for pair in pairs],
    }
    for name, lists in predictions.items():
        differences = [pair.error_of(one) for pair, one in zip(pairs, lists, strict=True)]
        errors = [abs(error) for error in differences if error is not None]
        if errors:
            sentences.append(
                f"Predicted {name}: {len(errors)} of {len(pairs)} loops, median error "
                f"{100 * statistics.median(errors):.1f} points of the step, largest "
                f"{100 * max(errors):.1f}."
            )
    return " ".join(sentences)


def describe_peer(results: Results | None = None) -> str:
    """Return the paths of HolisticTraceAnalysis next to these."""
    results = results or load_results()
    if not results.peer_paths:
        return NOT_MEASURED
    rows = [
        _compare(name, results.recordings[name], peer)
        for name, peer in sorted(results.peer_paths.items())
        if name in results.recordings
    ]
    title = ["trace", "step, ms"]
    title += [f"{kind}: stepscope, HTA" for kind in (*OWN_KINDS, "between")]
    title += ["sum: stepscope, HTA"]
    return f"{_table(title, rows)}\n\n{results.peer}. {_describe_machine(results)}"


def _compare(name: str, one: RecordingResult, peer: PeerPath) -> list[str]:
    cells = [name, number(one.step_ms)]
    total = number(sum(one.path_ms.values()))
    if peer.error:
        return [*cells, *["" for _ in PEER_KINDS], f"{total}, {peer.error}"]
    peer_ms = {kind: ms / one.step_count for kind, ms in peer.path_ms.items()}
    for kind, peer_names in PEER_KINDS.items():
        values = _sum(one.path_ms, OWN_KINDS.get(kind, ())), _sum(peer_ms, peer_names)
        cells.append(", ".join(map(number, values)))
    return [*cells, f"{total}, {number(sum(peer_ms.values()))}"]


def _sum(path: Mapping[str, float], names: tuple[str, ...]) -> float:
    return sum(path.get(name, 0.0) for name in names)


def _spread(values: Sequence[float | None]) -> str:
    summary = summarize(values)
    if summary is None:
        return "none"
    return f"{_percent(summary.median)} ({_percent(summary.low)} … {_percent(summary.high)})"


def _percent(ratio: float, digits: int = 0) -> str:
    return f"{round(100 * ratio, digits) + 0.0:.{digits}f}%"


def _table(title: list[str], rows: list[list[str]]) -> str:
    lines = [title, ["---"] * len(title), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def _describe_machine(results: Results) -> str:
    return f"{results.date}, {results.machine}, {results.revision}, {results.rounds} rounds."
