"""The importer fulfils the contract of importers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.register_assert_rewrite("stepscope.testing.importer_contract")
from stepscope_example.importer import JsonMetricsImporter  # noqa: E402

from stepscope.testing.importer_contract import ImporterContract  # noqa: E402


class TestJsonMetrics(ImporterContract):
    importer = JsonMetricsImporter

    def write(self, directory: Path) -> Path:
        lines = [
            json.dumps({"time": 1700000000.5 + n, "step": n, "loss": 1 / (n + 1), "accuracy": 0.5})
            for n in range(20)
        ]
        path = directory / "metrics.jsonl"
        path.write_text("\n".join(lines) + "\n")
        return path
