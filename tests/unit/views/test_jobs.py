"""Rows of the list of jobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.comparison import compare_runs
from stepscope.cost import report_cost
from stepscope.diagnosis import diagnose
from stepscope.run import Run
from stepscope.schema import JobState
from stepscope.store import open_run, size_of
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from stepscope.views.job.jobs import JobRow, make_job_row, summarize_job
from stepscope.views.job.overview import show_overview
from tests.support.drawn_trace import training

S = 10**9


def drawn(path: Path, *, ranks: int = 1) -> RunBuilder:
    builder = RunBuilder(path, sampling_ms=1000)
    for rank in range(ranks):
        builder.rank(rank, node=f"n{rank}").draw(
            "wait 60 | forward 12 | backward 20 | optimizer 8", 40
        )
    return builder


def row(path: Path, **options: Any) -> JobRow:
    """Return the row of a run that was started with some options, without a summary."""
    manifest = path / "run.json"
    info = msgspec.json.decode(manifest.read_bytes())
    manifest.write_bytes(msgspec.json.encode(info | {"options": options}))
    return make_job_row(open_run(path), "a/b")


def test_what_a_run_says_of_itself(tmp_path: Path) -> None:
    builder = drawn(tmp_path / "run", ranks=2)
    builder.status(JobState.COMPLETED, node="n0", ended_ns=EPOCH_NS + 60 * S)
    builder.status(JobState.COMPLETED, node="n1", ended_ns=EPOCH_NS + 90 * S)
    payload = row(builder.write())
    assert (payload.id, payload.name, payload.status) == ("a/b", "run", "Completed")
    assert payload.created_ms == EPOCH_NS / 1e6
    assert payload.duration_ns == 90 * S
    assert (payload.rank_count, payload.node_count, payload.gpu_count) == (2, 2, 0)
    assert payload.command == "python train.py"
    assert payload.verdict is None
    assert payload.size_bytes is None


@pytest.mark.parametrize(
    ("states", "status"),
    [
        (["Completed", "Completed"], "Completed"),
        (["Completed", "Failed"], "Failed"),
        (["Stopped", "Failed"], "Failed"),
        (["Stopped", "Completed"], "Stopped"),
        (["Unknown", "Completed"], "Unknown"),
        (["Failed", "InProgress"], "InProgress"),
        (["Stopping", "Completed"], "Stopping"),
    ],
)
def test_a_job_on_several_nodes(tmp_path: Path, states: list[str], status: str) -> None:
    builder = drawn(tmp_path / "run", ranks=2)
    for number, state in enumerate(states):
        builder.status(JobState(state), node=f"n{number}", heartbeat_ns=time.time_ns())
    payload = row(builder.write())
    assert payload.status == status
    assert not payload.monitor_lost


def test_a_monitor_that_is_not_heard(tmp_path: Path) -> None:
    builder = drawn(tmp_path / "run")
    builder.status(JobState.IN_PROGRESS, heartbeat_ns=time.time_ns() - 31 * S)
    payload = row(builder.write())
    assert (payload.status, payload.monitor_lost) == ("InProgress", True)


def test_what_a_job_cost(tmp_path: Path) -> None:
    builder = drawn(tmp_path / "run", ranks=2)
    for node in ("n0", "n1"):
        builder.status(JobState.COMPLETED, node=node, ended_ns=EPOCH_NS + 1800 * S)
    path = builder.write()
    # Two machines for half an hour at 3.06 dollars.
    assert row(path, usd_per_hour="3.06").cost_usd == 3.06
    assert row(path, usd_per_hour="3.06").why_no_cost is None
    for unknown in (None, "a lot", -1, [], "nan"):
        payload = row(path, usd_per_hour=unknown)
        assert payload.cost_usd is None
        assert "--usd-per-hour" in (payload.why_no_cost or "")


def test_the_summary_is_that_of_the_verdict(tmp_path: Path) -> None:
    path = drawn(tmp_path / "run").write()
    reader = open_run(path)
    verdict = diagnose(Run(reader))
    payload = make_job_row(reader, "x", summarize_job(Run(reader), size_of(path)))
    assert payload.verdict is not None
    assert payload.verdict.words == "waits for data"
    assert payload.verdict.headline == verdict.headline
    assert payload.verdict.share_ratio == verdict.share_ratio
    assert verdict.job is not None
    assert payload.goodput_ratio == verdict.job.goodput_ratio > 0
    assert payload.first_step_ns == verdict.job.first_step_ns
    records = [p for p in path.rglob("*") if p.is_file() and p.parent.name != "results"]
    assert payload.size_bytes == sum(p.stat().st_size for p in records)
    assert summarize_job(Run(reader), 0).finished


def test_a_run_that_grows_is_not_finished(tmp_path: Path) -> None:
    builder = drawn(tmp_path / "run").status(JobState.IN_PROGRESS)
    assert not summarize_job(builder.open(), 0).finished


def test_a_recording_without_a_job(imported: Callable[..., Run]) -> None:
    run = imported(a=training())
    bare = make_job_row(run.reader, "x")
    assert (bare.status, bare.duration_ns, bare.node_count) == ("Imported", None, None)
    payload = make_job_row(run.reader, "x", summarize_job(run, 0))
    assert (payload.rank_count, payload.gpu_count) == (1, 1)
    assert (payload.goodput_ratio, payload.first_step_ns) == (None, None)
    assert payload.duration_ns == 200_000  # two steps of 100 us
    assert payload.verdict is not None
    # Of 200 us, the device computes for 40 us and waits for batches for 36.
    assert payload.verdict.suspect == "framework_overhead"


def test_nodes_of_an_import_are_the_machines_on_every_surface(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run", sampling_ms=1000)
    for node in ("n0", "n1"):
        builder.rank(node=node, ended_ns=EPOCH_NS + 3600 * S).draw("forward 10", 5)
    path = builder.write()
    for status in path.glob("nodes/*/status.json"):
        status.unlink()
    listed = row(path, usd_per_hour="3.06")
    assert (listed.status, listed.node_count) == ("Imported", 2)
    run = Run(open_run(path))
    cost = report_cost(run)
    money = show_overview(run).money
    figures = {figure.name: figure.base_value for figure in compare_runs([run], [run]).figures}
    assert money is not None
    assert cost.instance_count == money.instance_count == figures["machines"] == 2
    assert cost.job_usd == money.job_usd == figures["cost"] == 2 * 3.06
