"""Import of operations of jobs with pipeline stages, from Parquet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pytest
from click.testing import CliRunner

from stepscope.cli import root
from stepscope.importers import Recorded, Refused, Result, import_files
from stepscope.importers.stage_operations import StageOperationsImporter
from stepscope.run import Run, read_stage_operations
from stepscope.schema import SCHEMA_VERSION, RunInfo
from stepscope.store import create_run, open_run
from stepscope.testing.importer_contract import ImporterContract
from tests.support.stage_jobs import StageJob, play, write_parquet

JOB = StageJob(stages=2, data_ranks=2, microbatches=3, steps=2)
ImportInto = Callable[..., list[Result]]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    info = RunInfo(
        schema_version=SCHEMA_VERSION, run_id="r", created_ns=0, command=[],
        working_directory="/", stepscope_version="0",
    )  # fmt: skip
    create_run(tmp_path / "run", info)
    return tmp_path / "run"


def write_rows(path: Path, select: str) -> Path:
    duckdb.sql(f"COPY ({select}) TO '{path}' (FORMAT parquet)")
    return path


def test_operations_are_those_of_the_file(tmp_path: Path, run: Path) -> None:
    operations = play(JOB, JOB.draw_times(1), delays_us=5).operations
    write_parquet(operations, tmp_path / "job.parquet")
    (result,) = import_files([tmp_path / "job.parquet"], run, "n")
    assert result == Recorded(
        name="job.parquet", form="operations of pipeline stages", event_count=len(operations)
    )
    stored = read_stage_operations(Run(open_run(run)))
    for name in ("data_rank", "stage", "rank", "step", "sequence", "chunk", "model_chunk",
                 "microbatch", "start_ns", "end_ns"):  # fmt: skip
        assert getattr(stored, name).tolist() == getattr(operations, name).tolist(), name
    kinds = [operations.kinds[code] for code in operations.kind]
    assert [stored.kinds[code] for code in stored.kind] == kinds


@pytest.mark.parametrize("column", ["rank", "seq_id", "mc", "mb_id", "gmc"])
def test_optional_columns_may_be_missing(tmp_path: Path, run: Path, column: str) -> None:
    operations = play(JOB, JOB.draw_times(1)).operations
    write_parquet(operations, tmp_path / "job.parquet", leave_out=[column])
    import_files([tmp_path / "job.parquet"], run, "n")
    stored = read_stage_operations(Run(open_run(run)))
    if column == "seq_id":
        assert stored.sequence.tolist() == operations.sequence.tolist()
    else:
        names = {"rank": "rank", "mc": "chunk", "mb_id": "microbatch", "gmc": "model_chunk"}
        assert set(getattr(stored, names[column]).tolist()) == {-1}


@pytest.mark.parametrize("column", ["dp_rank", "stage", "step", "optype", "start_ts", "duration"])
def test_another_parquet_file_is_refused(tmp_path: Path, run: Path, column: str) -> None:
    operations = play(JOB, JOB.draw_times(1)).operations
    write_parquet(operations, tmp_path / "job.parquet", leave_out=[column])
    (result,) = import_files([tmp_path / "job.parquet"], run, "n")
    assert isinstance(result, Refused)
    assert f"no trace of a job with pipeline stages: it has no column {column}." in result.reason


def test_a_cut_file_is_refused(tmp_path: Path, run: Path) -> None:
    path = tmp_path / "job.parquet"
    write_parquet(play(JOB, JOB.draw_times(1)).operations, path)
    path.write_bytes(path.read_bytes()[:-100])
    (result,) = import_files([path], run, "n")
    assert isinstance(result, Refused)
    assert "job.parquet cannot be read: it is cut short or no Parquet file." in result.reason


def test_a_file_with_a_name_that_is_no_text_is_refused(tmp_path: Path, run: Path) -> None:
    path = tmp_path / "job.parquet"
    write_parquet(play(JOB, JOB.draw_times(1)).operations, path)
    path.write_bytes(path.read_bytes().replace(b"optype", b"opt\x96pe"))
    (result,) = import_files([path], run, "n")
    assert isinstance(result, Refused)
    assert "job.parquet cannot be read: the name of a column is not UTF-8." in result.reason


def test_a_second_job_is_refused(tmp_path: Path, run: Path) -> None:
    paths = [tmp_path / name for name in ("a.parquet", "b.parquet")]
    for path in paths:
        write_parquet(play(JOB, JOB.draw_times(1)).operations, path)
    first, second = import_files(paths, run, "n")
    assert isinstance(first, Recorded)
    assert isinstance(second, Refused)
    assert "is another job than a.parquet; import each into a run of its own." in second.reason


def test_operations_without_a_time_are_counted(tmp_path: Path, run: Path) -> None:
    columns = "0 AS dp_rank, 0 AS stage, 1 AS step, 'gc' AS optype"
    times = "(1.0, 0.5), (2.0, NULL), (NULL, 1), (3.0, 'NaN'::DOUBLE), (4.0, -1), (1e300, 1)"
    query = f"SELECT {columns}, * FROM (VALUES {times}) AS t(start_ts, duration)"  # noqa: S608
    path = write_rows(tmp_path / "job.parquet", query)
    (result,) = import_files([path], run, "n")
    assert isinstance(result, Recorded)
    assert result.event_count == 1
    assert result.lost == "5 operations without a worker, a step or a time"


def test_a_file_without_any_usable_operation_is_refused(tmp_path: Path, run: Path) -> None:
    query = (
        "SELECT 0 AS dp_rank, 0 AS stage, 1 AS step, 'x' AS optype, 'y' AS start_ts, 1 AS duration"
    )
    (result,) = import_files([write_rows(tmp_path / "job.parquet", query)], run, "n")
    assert isinstance(result, Refused)
    assert "has no operation with a worker, a step and a time." in result.reason


def test_the_command_suggests_the_verdict(tmp_path: Path) -> None:
    write_parquet(play(JOB, JOB.draw_times(1)).operations, tmp_path / "job.parquet")
    arguments = ["import", str(tmp_path / "job.parquet"), "-o", str(tmp_path / "run")]
    result = CliRunner().invoke(root, arguments)
    assert result.exit_code == 0, result.output
    assert "operations of pipeline stages in" in result.output
    assert f"diagnose {tmp_path / 'run'}" in result.output


def test_times_are_kept_to_the_nanosecond(tmp_path: Path, run: Path) -> None:
    query = (
        "SELECT 0 AS dp_rank, 0 AS stage, 1 AS step, 'gc' AS optype, 12.345678901 AS start_ts, "
        "0.000000001 AS duration"
    )
    import_files([write_rows(tmp_path / "job.parquet", query)], run, "n")
    stored = read_stage_operations(Run(open_run(run)))
    assert (stored.start_ns.tolist(), stored.end_ns.tolist()) == ([12345678901], [12345678902])
    assert np.all(stored.sequence == 0)


class TestStageOperations(ImporterContract):
    importer = StageOperationsImporter
    varying = frozenset({"job"})
    is_compressible = False

    def write(self, directory: Path) -> Path:
        operations = play(JOB, JOB.draw_times(1), delays_us=5).operations
        write_parquet(operations, directory / "job.parquet")
        return directory / "job.parquet"
