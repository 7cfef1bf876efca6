"""Figures of runs in the text format of Prometheus, by its client library.

The file is for the textfile collector of node_exporter; the page serves the same at `/metrics`.
Names are those of `measurements` with underscores and the base unit at the end
(https://prometheus.io/docs/practices/naming), each with the label `run`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from stepscope import errors, output_files
from stepscope.comparison import RunSummary, get_summary
from stepscope.exporters.measurements import list_measurements
from stepscope.exporters.registry import ExportOptions, Written, check_library, require_output
from stepscope.quantities import count_of
from stepscope.run import Run

_ENDINGS = {"s": "seconds", "1": "ratio", "By": "bytes", "{USD}": "dollars", "1/s": "per_second",
            "h": "hours"}  # fmt: skip
_INFO = ("suspect", "cause", "headline", "fix")


class PrometheusExporter:
    """Exporter of metrics; see `registry.Exporter`."""

    options = frozenset[str]()

    def choose_output(self, output: str | None) -> str:
        """Return the file; see `registry.LiveExporter`."""
        check_library("prometheus_client", extra="prometheus")
        return require_output("prometheus", output, "file")

    def export(self, run: Run, output: str, _options: ExportOptions) -> list[Written]:
        """Write a file, at once: the collector reads it at any time."""
        text = render_metrics([get_summary(run)])
        with output_files.atomic_write(Path(output)) as file:
            file.write(text)
        count = sum(not line.startswith(b"#") for line in text.splitlines())
        return [Written(path=output, content=count_of(count, "sample"))]


def render_metrics(summaries: Iterable[RunSummary]) -> bytes:
    """Render the numbers of runs.

    Raises:
        UsageError: the client library is not installed.
    """
    client = errors.require("prometheus_client", extra="prometheus")
    core = errors.require("prometheus_client.core", extra="prometheus")
    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(_Collector(list(summaries), core))
    text: bytes = client.generate_latest(registry)
    return text


class _Collector:
    """Collector of Prometheus's client."""

    def __init__(self, summaries: list[RunSummary], core: Any) -> None:
        self._summaries = summaries
        self._core = core

    def collect(self) -> Iterator[Any]:
        """Yield the families of metrics."""
        families: dict[str, Any] = {}
        gauge = self._core.GaugeMetricFamily
        for summary in self._summaries:
            run_id = summary.texts["run_id"]
            texts = [summary.texts.get(f"verdict/{name}", "") for name in _INFO]
            family = families.setdefault(
                "stepscope_verdict_info",
                gauge("stepscope_verdict_info", "Verdict of the run.", labels=["run", *_INFO]),
            )
            family.add_metric([run_id, *texts], 1.0)
            for item in list_measurements(summary):
                name = item.name.replace(".", "_")
                ending = _ENDINGS[item.unit]
                if item.unit == "1" and name.endswith(("_count", "_steps", "_machines")):
                    ending = ""
                if ending and not name.endswith(ending):
                    name = f"{name}_{ending}"
                labels = ["run", *item.attributes]
                family = families.setdefault(
                    name, gauge(name, f"{item.description}.", labels=labels)
                )
                family.add_metric([run_id, *item.attributes.values()], item.value)
        yield from families.values()
