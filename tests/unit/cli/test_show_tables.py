"""`stepscope show` with `--csv` and `--xlsx`."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from unittest import mock

import openpyxl
import pytest

from tests.support.command import run_command
from tests.support.imported_runs import import_into
from tests.support.kineto_files import trace, training


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("traces")
    (base / "trace.json").write_bytes(trace(*training()))
    import_into(base / "run", base / "trace.json")
    return base / "run"


def show(cwd: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run_command(cwd, "show", *map(str, arguments))


@pytest.mark.seed("PTP-16")
def test_csv_has_the_values_of_the_json(run: Path, tmp_path: Path) -> None:
    payload = json.loads(show(tmp_path, run, "kernels", "--json").stdout)
    expected = payload["traces"][0]["kernels"]
    done = show(tmp_path, run, "kernels", "--csv", "-")
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["name"] for row in rows] == [kernel["name"] for kernel in expected]
    assert [int(row["total_ns"]) for row in rows] == [kernel["total_ns"] for kernel in expected]
    assert not done.stderr

    written = show(tmp_path, run, "kernels", "--csv", "kernels.csv", "--table", "traces")
    assert not written.stdout
    assert "kernels.csv: traces (1 row); tables of this view: summary (1 row), " in written.stderr
    with (tmp_path / "kernels.csv").open(newline="") as file:
        assert [row["trace"] for row in csv.DictReader(file)] == ["trace.json"]


@pytest.mark.seed("PTP-16")
def test_workbook_has_a_sheet_per_table(run: Path, tmp_path: Path) -> None:
    done = show(tmp_path, run, "kernels", "--xlsx", "kernels.xlsx")
    assert done.returncode == 0, done.stderr
    names = openpyxl.load_workbook(tmp_path / "kernels.xlsx").sheetnames
    assert {"summary", "traces", "kernels", "columns"} <= set(names)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["kernels", "--csv", "-", "--json"], "Use one of --json, --csv."),
        (["kernels", "--table", "kernels"], "--table requires --csv"),
        (["kernels", "--csv", "-", "--table", "none"], "no table 'none'; its tables: summary"),
        (["kernels", "--csv", "."], ". is a directory; pass a file"),
        (["kernels", "--csv", "nowhere/x.csv"], "nowhere"),
        (["kernels", "--xlsx", "."], "is a directory"),
        (["kernels", "--xlsx", "nowhere/x.xlsx"], "nowhere"),
        (["system", "--csv", "-"], "The view system of this run has no rows: "),
    ],
)
def test_one_sentence(run: Path, tmp_path: Path, arguments: list[str], says: str) -> None:
    done = show(tmp_path, run, *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
    assert not list(tmp_path.iterdir())


def test_without_xlsxwriter(run: Path, tmp_path: Path) -> None:
    with mock.patch.dict(sys.modules, {"xlsxwriter": None}):
        done = show(tmp_path, run, "kernels", "--xlsx", "x.xlsx")
    assert done.returncode == 2
    assert "xlsxwriter is not installed: pip install 'stepscope[xlsx]', or use `" in done.stderr
    assert "--csv FILE`" in done.stderr
    assert not list(tmp_path.iterdir())
