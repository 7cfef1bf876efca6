"""Marks of bottlenecks in an exported timeline: GPUs that are hardly used, and findings of rules. A
mark of a GPU covers consecutive samples below a limit. A sample covers the time since the sample
before, so the mark starts there.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from stepscope import analysis, quantities, rule_feed
from stepscope.exporters.chrome_header import naming_event
from stepscope.run import NodeMetrics, Run

_GPU_METRIC = "gpu_busy_ratio"
_CONTEXT_METRICS = ("cpu_busy_ratio", "cpu_iowait_ratio", "memory_used_ratio")
"""Metrics of the node whose means during a mark are stated with it."""


def gpu_marks(
    metrics: NodeMetrics, pid: int, *, below_ratio: float, base_ns: int
) -> Iterator[list[str]]:
    """Yield the marks of the GPUs of a node, and the names of their tracks: a list per GPU.

    Args:
        metrics: samples of the node, in the range of the export.
        pid: process of the node in the file.
        below_ratio: limit of the share of time in which a GPU is busy.
        base_ns: base of the times in the file.
    """
    loaded = metrics.load(_GPU_METRIC, *_CONTEXT_METRICS)
    context = {name: loaded[name][""] for name in _CONTEXT_METRICS if "" in loaded[name]}
    for number, (device, series) in enumerate(loaded[_GPU_METRIC].items(), 1):
        gpu = f"GPU {device}" if device else "GPUs"
        limit = quantities.percent(below_ratio)
        position = f'"pid":{pid},"tid":{number}'
        events = [*naming_event("thread_name", position, "name", f"bottlenecks: {gpu} < {limit}")]
        for mark in analysis.find_low_use(series, below_ratio):
            arguments = {f"mean {_GPU_METRIC}": mark.mean, f"min {_GPU_METRIC}": mark.minimum}
            for name, samples in context.items():
                # The end of a sample is its time, and belongs to the mark.
                mean = samples.mean_between(mark.start_ns, mark.end_ns + 1)
                if mean is not None:
                    arguments[f"mean {name}"] = mean
            name = f"{gpu} busy {quantities.percent(mark.mean)}"
            events.append(_mark(position, name, (mark.start_ns, mark.end_ns), base_ns, arguments))
        yield events


def finding_marks(run: Run, pid: int, extent: tuple[int, int], *, base_ns: int) -> list[str]:
    """Write the findings of the rules that fired on the running job, one track each.

    Args:
        run: the run.
        pid: process of the findings in the file.
        extent: start and end of the export; only findings that overlap it are written.
        base_ns: base of the times in the file.
    """
    record = rule_feed.recorded_rules(run.reader)
    events: list[str] = []
    for number, finding in enumerate(record.fired if record else [], 1):
        start, end = finding.first_ns, finding.last_ns
        if start is None or end is None or start >= extent[1] or end < extent[0]:
            continue
        position = f'"pid":{pid},"tid":{number}'
        arguments = {"text": " ".join(finding.sentences), "recommendation": finding.recommendation}
        events += naming_event("thread_name", position, "name", f"bottlenecks: {finding.rule}")
        events.append(_mark(position, finding.rule, (start, end), base_ns, arguments))
    return events


def _mark(
    position: str, name: str, extent: tuple[int, int], base_ns: int, arguments: object
) -> str:
    start_ns, duration_ns = extent[0] - base_ns, extent[1] - extent[0]
    return (
        f'{{"ph":"X","cat":"bottleneck","name":{_json(name)},{position},'
        f'"ts":{start_ns // 1000}.{start_ns % 1000:03},'
        f'"dur":{duration_ns // 1000}.{duration_ns % 1000:03},"args":{_json(arguments)}}}'
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
