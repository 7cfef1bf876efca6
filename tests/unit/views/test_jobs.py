"""Rows of the list of jobs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.diagnosis import diagnose
from stepscope.run import Run
from stepscope.schema import JobState
from stepscope.store import open_run, size_of
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from stepscope.views.jobs import (
    JobRow,
    job_row,
    jobs_of,
    summarize,
    unopened_row,
)

S = 10**9


def drawn(place: Path, *, ranks: int = 1) -> RunBuilder:
    run = RunBuilder(place, sampling_ms=1000)
    for rank in range(ranks):
        run.rank(rank, node=f"n{rank}").draw("wait 60 | forward 12 | backward 20 | optimizer 8", 40)
    return run


def row(place: Path, **options: Any) -> JobRow:
    """The row of a run that was started with some options, without a summary."""
    manifest = place / "run.json"
    info = msgspec.json.decode(manifest.read_bytes())
    manifest.write_bytes(msgspec.json.encode(info | {"options": options}))
    return job_row(open_run(place), "a/b")


def test_what_a_run_says_of_itself(tmp_path: Path) -> None:
    run = drawn(tmp_path / "run", ranks=2)
    run.status(JobState.COMPLETED, node="n0", ended_ns=EPOCH_NS + 60 * S)
    run.status(JobState.COMPLETED, node="n1", ended_ns=EPOCH_NS + 90 * S)
    found = row(run.write())
    assert (found.id, found.name, found.status) == ("a/b", "drawn", "Completed")
    assert found.created_ms == EPOCH_NS / 1e6
    assert found.duration_ns == 90 * S
    assert (found.rank_count, found.node_count, found.gpu_count) == (2, 2, 0)
    assert found.command == "python train.py"
    assert found.verdict is None
    assert found.size_bytes is None


@pytest.mark.parametrize(
    ("states", "status"),
    [
        (["Completed", "Completed"], "Completed"),
        (["Completed", "Failed"], "Failed"),
        (["Stopped", "Failed"], "Failed"),
        (["Stopped", "Completed"], "Stopped"),
        (["Failed", "InProgress"], "InProgress"),
        (["Stopping", "Completed"], "Stopping"),
    ],
)
def test_a_job_on_several_nodes(tmp_path: Path, states: list[str], status: str) -> None:
    run = drawn(tmp_path / "run", ranks=2)
    for number, state in enumerate(states):
        run.status(JobState(state), node=f"n{number}", heartbeat_ns=time.time_ns())
    found = row(run.write())
    assert found.status == status
    assert not found.monitor_lost


def test_a_monitor_that_is_not_heard(tmp_path: Path) -> None:
    run = drawn(tmp_path / "run")
    run.status(JobState.IN_PROGRESS, heartbeat_ns=time.time_ns() - 31 * S)
    found = row(run.write())
    assert (found.status, found.monitor_lost) == ("InProgress", True)


def test_what_a_job_cost(tmp_path: Path) -> None:
    run = drawn(tmp_path / "run", ranks=2)
    for node in ("n0", "n1"):
        run.status(JobState.COMPLETED, node=node, ended_ns=EPOCH_NS + 1800 * S)
    place = run.write()
    # Two machines for half an hour at 3.06 dollars.
    assert row(place, usd_per_hour="3.06").cost_usd == 3.06
    assert row(place, usd_per_hour="3.06").why_no_cost is None
    for unknown in (None, "a lot", -1, [], "nan"):
        found = row(place, usd_per_hour=unknown)
        assert found.cost_usd is None
        assert "--usd-per-hour" in (found.why_no_cost or "")


def test_the_summary_is_that_of_the_verdict(tmp_path: Path) -> None:
    place = drawn(tmp_path / "run").write()
    reader = open_run(place)
    verdict = diagnose(Run(reader))
    found = job_row(reader, "x", summarize(Run(reader), size_of(place)))
    assert found.verdict is not None
    assert found.verdict.words == "waits for data"
    assert found.verdict.headline == verdict.headline
    assert found.verdict.share_ratio == verdict.share_ratio
    assert found.size_bytes == sum(p.stat().st_size for p in place.rglob("*") if p.is_file())
    assert summarize(Run(reader), 0).finished


def test_a_run_that_grows_is_not_finished(tmp_path: Path) -> None:
    run = drawn(tmp_path / "run").status(JobState.IN_PROGRESS)
    assert not summarize(run.open(), 0).finished


def test_a_recording_without_a_job(tmp_path: Path) -> None:
    from tests.support.drawn_trace import training
    from tests.support.imported_runs import import_into

    file = tmp_path / "trace.json"
    file.write_bytes(msgspec.json.encode({"traceEvents": training()}))
    signals = import_into(tmp_path / "run", file)
    bare = job_row(signals.reader, "x")
    assert (bare.status, bare.duration_ns, bare.node_count) == ("Imported", None, None)
    found = job_row(signals.reader, "x", summarize(signals, 0))
    assert (found.rank_count, found.gpu_count) == (1, 1)
    assert found.duration_ns == 200_000  # two steps of 100 us
    assert found.verdict is not None
    assert found.verdict.suspect == "insufficient_evidence"


def test_the_newest_is_first_and_what_is_pending_is_counted(tmp_path: Path) -> None:
    known = row(drawn(tmp_path / "run").write())
    older = msgspec.structs.replace(known, id="older", created_ms=1.0)
    listed = jobs_of("/runs", [older, unopened_row("broken", "no"), known], ["a note"])
    assert [each.id for each in listed.jobs] == ["a/b", "older", "broken"]
    assert listed.pending_count == 2
    assert listed.notes == ["a note"]
