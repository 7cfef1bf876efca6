"""Figures of a run, and samples of its GPUs, as metrics of OpenTelemetry by OTLP over HTTP.

The exporter of OpenTelemetry's SDK sends them, with its variables: `OTEL_EXPORTER_OTLP_HEADERS`,
`OTEL_EXPORTER_OTLP_CERTIFICATE` and others (https://opentelemetry.io/docs/specs/otel/protocol/exporter).
"""

from __future__ import annotations

import logging
import os
import re
import time
import urllib.parse
from collections import defaultdict
from typing import Any

from stepscope import errors
from stepscope.comparison import get_summary
from stepscope.exporters.measurements import Measurement, list_gpu_samples, list_measurements
from stepscope.exporters.registry import ExportOptions, Written, check_library
from stepscope.masking import mask_text
from stepscope.quantities import count_of
from stepscope.run import Run

TIMEOUT_S = 10.0
DEFAULT_URL = "http://localhost:4318"
_PATH = "/v1/metrics"
_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"


class OtlpExporter:
    """Exporter to a collector; see `registry.Exporter`."""

    options = frozenset[str]()

    def choose_output(self, output: str | None) -> str:
        """Return the URL of the collector; see `registry.LiveExporter`."""
        check_library("opentelemetry", extra="otlp")
        if output is None and (base := os.environ.get(_VARIABLE)):
            output = base.rstrip("/") + _PATH  # to whatever path it has, by OpenTelemetry's rules
        return _check_url(output or DEFAULT_URL)

    def export(self, run: Run, output: str, _options: ExportOptions) -> list[Written]:
        """Send the figures to the URL of a collector, such as http://localhost:4318.

        Raises:
            UsageError: it is no URL, or the collector does not take them.
        """
        url = _check_url(output)
        summary = get_summary(run)
        measurements = [*list_measurements(summary), *list_gpu_samples(run)]
        resource = {
            "service.name": "stepscope",
            **{f"stepscope.{name.replace('/', '.')}": text for name, text in summary.texts.items()},
        }
        _send(url, measurements, resource)
        return [Written(path=mask_text(url), content=count_of(len(measurements), "data point"))]


def _check_url(text: str) -> str:
    """Return the URL to which metrics are posted; one without a path gets that of metrics."""
    address = urllib.parse.urlsplit(text)
    if address.scheme not in {"http", "https"} or not address.netloc:
        raise errors.UsageError(
            f"{mask_text(text)} is not the URL of a collector; pass one such as {DEFAULT_URL}."
        )
    return text if address.path.strip("/") else text.rstrip("/") + _PATH


def _send(url: str, measurements: list[Measurement], resource: dict[str, str]) -> None:
    exporter_module = errors.require(
        "opentelemetry.exporter.otlp.proto.http.metric_exporter", extra="otlp"
    )
    sdk = errors.require("opentelemetry.sdk.metrics.export", extra="otlp")
    resources = errors.require("opentelemetry.sdk.resources", extra="otlp")
    scopes = errors.require("opentelemetry.sdk.util.instrumentation", extra="otlp")
    data = sdk.MetricsData(
        resource_metrics=[
            sdk.ResourceMetrics(
                resource=resources.Resource.create(resource),
                scope_metrics=[
                    sdk.ScopeMetrics(
                        scope=scopes.InstrumentationScope("stepscope"),
                        metrics=_make_metrics(sdk, measurements),
                        schema_url="",
                    )
                ],
                schema_url="",
            )
        ]
    )
    reasons = _Reasons()
    logger = logging.getLogger("opentelemetry")
    logger.addHandler(reasons)
    propagated, logger.propagate = logger.propagate, False
    exporter = exporter_module.OTLPMetricExporter(endpoint=url, timeout=TIMEOUT_S)
    try:
        result = exporter.export(data, timeout_millis=1000 * TIMEOUT_S)
    finally:
        exporter.shutdown()
        logger.removeHandler(reasons)
        logger.propagate = propagated
    if result is not sdk.MetricExportResult.SUCCESS:
        reason = reasons.text or "it did not answer in time"
        raise errors.UsageError(f"{mask_text(url)} did not take the metrics: {mask_text(reason)}.")


def _make_metrics(sdk: Any, measurements: list[Measurement]) -> list[Any]:
    """Make gauges, each with the points of one name."""
    by_name: defaultdict[str, list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        by_name[measurement.name].append(measurement)
    now_ns = time.time_ns()
    return [
        sdk.Metric(
            name=name,
            description=items[0].description,
            unit=items[0].unit,
            data=sdk.Gauge(
                data_points=[
                    sdk.NumberDataPoint(
                        attributes=item.attributes,
                        start_time_unix_nano=0,
                        time_unix_nano=now_ns if item.t_ns is None else item.t_ns,
                        value=item.value,
                    )
                    for item in items
                ]
            ),
        )
        for name, items in by_name.items()
    ]


_CAUSE = re.compile(r"Caused by \w+\((?:.*: )?([^:]+?)[\"')]*\) encountered")
"""Reason in the SDK's message about a connection that failed."""


class _Reasons(logging.Handler):
    """The first message of the SDK, which returns no reason of a failure."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        message = " ".join(record.getMessage().split()).rstrip(".")
        cause = _CAUSE.search(message)
        self.text = self.text or (cause[1] if cause else message)
