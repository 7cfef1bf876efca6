"""A run of every published schema version opens and gives the figures of its time."""

from __future__ import annotations

import json

import pytest

from stepscope.schema import SCHEMA_VERSION, TABLES
from stepscope.store import open_run
from tests.support.golden_runs import FIGURES, RUN, golden_run, read_figures


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_golden_run(version: int) -> None:
    directory = golden_run(version)
    assert directory.is_dir(), (
        f"there is no golden run of schema version {version}: write it with "
        "`python -m tests.support.golden_runs`, and keep it"
    )
    reader = open_run(directory / RUN)
    assert json.loads((directory / RUN / "run.json").read_text())["schema_version"] == version
    for name, table in TABLES.items():
        rows = reader.table(name, [column.name for column in table.columns])
        assert len(rows[table.key[0]]), f"the golden run has no row of {name}"
    figures = json.loads((directory / FIGURES).read_text())
    assert read_figures(directory / RUN) == pytest.approx(figures, rel=1e-9)
