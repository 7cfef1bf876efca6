"""Contract of the built-in exporters of files; those that send figures are in test_receivers.py."""

from __future__ import annotations

from pathlib import Path

from stepscope.exporters import ExportOptions
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing.exporter_contract import ExporterContract
from tests.unit.exporters.test_tensorboard_export import draw


class TestChrome(ExporterContract):
    format = "chrome"
    file_name = "traces.json"
    options = ExportOptions(merge=True)


class TestTimeline(ExporterContract):
    format = "timeline"
    file_name = "run.json.gz"


class TestTensorBoard(ExporterContract):
    format = "tensorboard"
    file_name = "events"

    @classmethod
    def draw(cls, directory: Path) -> Run:
        return Run(open_run(draw(directory, 2)))


class TestPerfetto(ExporterContract):
    format = "perfetto"
    file_name = "run.pftrace"


class TestSummary(ExporterContract):
    format = "summary"
    file_name = "run.json"


class TestPrometheus(ExporterContract):
    format = "prometheus"
    file_name = "run.prom"


class TestParquet(ExporterContract):
    format = "parquet"
    file_name = "steps.parquet"
    options = ExportOptions(view="steps")


class TestArrow(ExporterContract):
    format = "arrow"
    file_name = "steps.arrow"
    options = ExportOptions(view="steps")


class TestPprof(ExporterContract):
    format = "pprof"
    file_name = "run.pb.gz"


class TestSpeedscope(ExporterContract):
    format = "speedscope"
    file_name = "run.json"
