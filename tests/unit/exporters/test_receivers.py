"""Figures in Prometheus, OpenTelemetry, MLflow and Weights & Biases, read by their libraries."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from prometheus_client.parser import text_string_to_metric_families

from stepscope.comparison import RunSummary, summarise_run
from stepscope.errors import UsageError
from stepscope.exporters import ExportOptions, choose_live_output, export, render_metrics
from stepscope.exporters.measurements import MAX_POINTS, list_measurements
from stepscope.exporters.trackers import list_tracked
from stepscope.run import Run
from stepscope.testing import RunBuilder
from tests.support.command import run_process

BUSY = 0.625
FACTORS = {"ns": 1e-9, "ratio": 1.0, "bytes": 1.0, "count": 1.0, "usd": 1.0, "per_s": 1.0,
           "hours": 1.0}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    builder = RunBuilder(tmp_path_factory.mktemp("receivers") / "run")
    rank = builder.rank(0, versions={"torch": "2.9"})
    rank.draw("wait=0 60 | forward 12 | backward 20 | optimizer 8", 90, jitter=0.1)
    builder.metric("cpu_busy_ratio", 0.5)
    builder.metric("gpu_busy_ratio", BUSY, device="0").metric("gpu_power_watt", 300, device="1")
    return builder.open()


@pytest.fixture(scope="module")
def summary(run: Run) -> RunSummary:
    return summarise_run(run)


def test_every_number_of_the_summary_is_measured(summary: RunSummary) -> None:
    expected = [
        value * FACTORS[next(ending for ending in FACTORS if name.endswith(ending))]
        for name, value in list_tracked(summary).items()
    ]
    measurements = list_measurements(summary)
    assert [item.value for item in measurements] == pytest.approx(expected)
    keys = {(item.name, *item.attributes.items()) for item in measurements}
    assert len(keys) == len(measurements)
    units: dict[str, set[str]] = {}
    for item in measurements:
        units.setdefault(item.name, set()).add(item.unit)
    assert {len(values) for values in units.values()} == {1}


def test_prometheus_reads_the_file(run: Run, summary: RunSummary, tmp_path: Path) -> None:
    (written,) = export(run, "prometheus", str(tmp_path / "f.prom"), ExportOptions())
    text = (tmp_path / "f.prom").read_text()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = [sample for family in families.values() for sample in family.samples]
    assert written.content == f"{len(samples)} samples"
    assert len(samples) == len(list_measurements(summary)) + 1
    assert {sample.labels["run"] for sample in samples} == {"drawn"}
    times = {
        s.labels["statistic"]: s.value for s in families["stepscope_step_time_seconds"].samples
    }
    assert times["p95"] == pytest.approx(summary.metrics["step/p95_ns"] / 1e9)
    (info,) = families["stepscope_verdict_info"].samples
    assert info.labels["suspect"] == "data_pipeline"
    for name, family in families.items():
        assert family.documentation.endswith("."), name
        is_plain = name.endswith(("_count", "_info", "_steps", "_machines"))
        endings = ("_seconds", "_ratio", "_bytes", "_hours", "_dollars", "_per_second")
        assert is_plain or name.endswith(endings), name


def test_two_runs_share_the_families(summary: RunSummary) -> None:
    twin = RunSummary(texts={**summary.texts, "run_id": 'a "b"\\n'}, metrics=summary.metrics)
    text = render_metrics([summary, twin]).decode()
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    runs = {sample.labels["run"] for family in families for sample in family.samples}
    assert runs == {"drawn", 'a "b"\\n'}


@contextmanager
def collecting(status: int = 200) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Serve a collector; yields its URL, and the path and body of each request."""
    received: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            import gzip

            body = self.rfile.read(int(self.headers["content-length"]))
            is_packed = self.headers.get("content-encoding") == "gzip"
            received.append((self.path, gzip.decompress(body) if is_packed else body))
            answer = ExportMetricsServiceResponse().SerializeToString()
            self.send_response(status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_arguments: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        server.server_close()


def test_a_collector_decodes_what_it_gets(run: Run, summary: RunSummary) -> None:
    with collecting() as (url, received):
        export(run, "otlp", url, ExportOptions())
    ((path, body),) = received
    assert path == "/v1/metrics"
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    texts = {item.key: item.value.string_value for item in resource.resource.attributes}
    assert texts["stepscope.run_id"] == "drawn"
    assert texts["stepscope.verdict.suspect"] == "data_pipeline"
    (scope,) = resource.scope_metrics
    metrics = {metric.name: metric for metric in scope.metrics}
    measured = list_measurements(summary)
    for item in measured:
        assert metrics[item.name].unit == item.unit
    points = [
        point for name in {m.name for m in measured} for point in metrics[name].gauge.data_points
    ]
    assert sorted(p.as_double for p in points) == pytest.approx(sorted(m.value for m in measured))
    busy = metrics["hw.gpu.utilization"].gauge.data_points
    series = run.metrics["n0"].load("gpu_busy_ratio")["gpu_busy_ratio"]["0"]
    assert len(series.t_ns) <= MAX_POINTS
    assert [point.time_unix_nano for point in busy] == series.t_ns.tolist()
    assert {point.as_double for point in busy} == {BUSY}
    (attributes,) = {tuple((a.key, a.value.string_value) for a in p.attributes) for p in busy}
    assert dict(attributes) == {"host.name": "n0", "hw.id": "0", "hw.gpu.task": "general"}
    assert metrics["hw.power"].unit == "W"


@pytest.mark.parametrize(
    ("status", "reason"), [(400, "did not take the metrics"), (None, "refused")]
)
def test_a_collector_that_refuses_or_is_away(run: Run, status: int | None, reason: str) -> None:
    with collecting(status or 200) as (url, _):
        if status is not None:
            with pytest.raises(UsageError, match=reason):
                export(run, "otlp", url, ExportOptions())
    if status is None:
        with pytest.raises(UsageError, match=reason):
            export(run, "otlp", url, ExportOptions())


READ_MLFLOW = """
import json, sys
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
number = client.get_experiment_by_name("night").experiment_id
(run,) = client.search_runs([number])
history = client.get_metric_history(run.info.run_id, "step/mean_ns")
steps = [metric.step for metric in history]
print(json.dumps([run.data.metrics, run.data.params, run.data.tags, run.info.status, steps]))
"""


def test_mlflow_reads_the_run_back(
    run: Run, summary: RunSummary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In other processes: the library makes as many objects as a job.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = f"file:{tmp_path / 'store'}"
    arguments = ("export", run.reader.location, "--to", "mlflow", "-o")
    for _ in range(2):  # the second one is about the same run
        done = run_process(tmp_path, *arguments, f"{uri}#night")
        assert done.returncode == 0, done.stderr
    command = [sys.executable, "-c", READ_MLFLOW, uri]
    read = subprocess.run(command, check=True, capture_output=True, text=True)
    metrics, parameters, tags, status, steps = json.loads(read.stdout.splitlines()[-1])
    assert metrics == pytest.approx(list_tracked(summary))
    assert parameters["contract/software/torch"] == "2.9"
    assert tags["stepscope.verdict.suspect"] == "data_pipeline"
    assert status == "FINISHED"
    assert set(steps) == {summary.metrics["job/steps_count"]}
    refused = run_process(tmp_path, *arguments, "nothing://x")
    assert refused.returncode == 2
    assert "MLflow did not take the summary: " in refused.stderr


def test_wandb_reads_the_run_back(
    run: Run, summary: RunSummary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    # Its library leaves a service process behind in the one that uses it.
    done = run_process(tmp_path, "export", run.reader.location, "--to", "wandb", "-o", "night")
    assert done.returncode == 0, done.stderr
    (log,) = tmp_path.rglob("*.wandb")
    inspected = subprocess.run(
        [Path(sys.executable).with_name("wandb"), "leet", "inspect", "--json", log],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    records = [json.loads(line) for line in inspected.stdout.splitlines() if line.startswith("{")]
    (start,) = [record["run"] for record in records if record["type"] == "run"]
    assert (start["project"], start["run_id"]) == ("night", "drawn")
    assert start["config"]["update"]["contract/software/torch"] == "2.9"
    texts = json.dumps(records)
    for name, value in list_tracked(summary).items():
        assert name in texts
        assert repr(value) in texts or str(round(value)) in texts, name


@pytest.mark.parametrize(
    ("name", "output", "expected"),
    [
        ("otlp", "http://c:4318", "http://c:4318/v1/metrics"),
        ("otlp", None, "http://localhost:4318/v1/metrics"),
        ("otlp", "https://c/otlp/v1/metrics", "https://c/otlp/v1/metrics"),
        ("wandb", None, "stepscope"),
        ("wandb", "team/night", "team/night"),
        ("mlflow", "http://m:5000#night", "http://m:5000#night"),
        ("prometheus", "f.prom", "f.prom"),
        ("otlp", "c:4318", UsageError("is not the URL of a collector")),
        ("mlflow", None, UsageError("--to mlflow needs a URI: pass --to mlflow=URI.")),
        ("summary", None, UsageError("--to summary needs a file: pass --to summary=FILE.")),
        ("chrome", "f", UsageError("chrome is not written while a job runs; choose one of")),
        ("mlflow", "http://u:p@m", UsageError("holds a password or a token, which other users")),
        ("otlp", "http://c/?api_key=s3cr3t", UsageError("holds a password or a token")),
    ],
)  # fmt: skip
def test_places_that_are_checked_before_a_job_starts(
    name: str, output: str | None, expected: str | UsageError, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OTEL_EXPORTER_OTLP_ENDPOINT", "MLFLOW_TRACKING_URI", "WANDB_PROJECT"):
        monkeypatch.delenv(variable, raising=False)
    if isinstance(expected, str):
        assert choose_live_output(name, output) == expected
        if name == "otlp" and output is None:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c/otlp/")
            assert choose_live_output(name, output) == "https://c/otlp/v1/metrics"
        return
    with pytest.raises(UsageError) as raised:
        choose_live_output(name, output)
    assert str(expected) in str(raised.value)


def test_more_samples_than_are_sent_are_thinned_evenly() -> None:
    from stepscope.exporters.measurements import choose_rows

    rows = choose_rows(3 * MAX_POINTS)
    assert (len(rows), rows[0], rows[-1]) == (MAX_POINTS, 0, 3 * MAX_POINTS - 1)
    assert set(np.diff(rows).tolist()) <= {2, 3, 4}
    assert choose_rows(3).tolist() == [0, 1, 2]
    assert choose_rows(0).tolist() == []
