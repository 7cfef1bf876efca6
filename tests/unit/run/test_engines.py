"""Engines: payloads that are alike bit for bit, and one sentence for each of their failures."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from stepscope.cli import root
from stepscope.errors import StepscopeError, UsageError
from stepscope.rule_feed import make_verdict
from stepscope.run import (
    RANK_FIGURES,
    Engine,
    LocalEngine,
    Run,
    choose_engine,
    engines,
    measure_ranks,
)
from stepscope.run.engines import MIN_POOL_PARTS, ProcessEngine
from stepscope.run.ranks import trace_parts
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.views import VIEWS, ViewOptions
from tests.support.buckets import TestBucket
from tests.support.dask_cluster import dask_cluster, threaded_cluster
from tests.support.drawn_trace import distributed, training
from tests.support.engine_tasks import die, die_once, get_process
from tests.support.waiting import wait_until

LINES = (
    "wait 10 | forward 30 | communication 30 | optimizer 10",
    "wait 21 | forward 30 | communication 19 | optimizer 10",
)
VIEWS_OF_RANKS = ("ranks", "nodes", "steps", "distributed")
RANGE = ViewOptions(from_ns=1_000_000_000, to_ns=4_000_000_000)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run of 16 ranks on 8 nodes, one of which loads its data slowly, with windows of two."""
    builder = RunBuilder(tmp_path_factory.mktemp("runs") / "job")
    for number in range(16):
        rank = builder.rank(number, node=f"n{number // 2}", world_size=16, local_rank=number % 2)
        rank.draw(LINES[number == 5], 60, jitter=0.02)
        if number in {1, 6}:
            rank.draw("window ( forward ( op:linear 5 | kernel:nccl_AllReduce 3 ) | optimizer 1 )")
        rank.thread().draw(f"run_queue={1000 * number} 80", 60)
        rank.fact("stack_sampler", period_ns=80_000_000, counts_delays=True)
    return builder.write()


@pytest.fixture(scope="module")
def processes() -> Iterator[Engine]:
    """Processes of this machine."""
    with closing(ProcessEngine()) as engine:
        yield engine


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Address of a Dask scheduler in this process, with one worker."""
    pytest.importorskip("distributed")
    with threaded_cluster() as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def expected(job: Path) -> dict[tuple[str, ViewOptions], bytes]:
    """Payloads of views of the job that this process computes alone."""
    requests = [(view, ViewOptions()) for view in VIEWS_OF_RANKS]
    requests += [("ranks", RANGE), ("distributed", RANGE)]
    return {(view, options): show(job, None, view, options) for view, options in requests}


@pytest.fixture(params=["processes", "dask"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param == "processes":
        yield request.getfixturevalue("processes")
        return
    with closing(choose_engine(request.getfixturevalue("address"))) as dask:
        yield dask


def show(run: Path | str, engine: Engine | None, view: str, options: ViewOptions) -> bytes:
    return msgspec.json.encode(VIEWS[view](Run(open_run(run), engine=engine), options))


@pytest.mark.slow("reads 16 ranks in other processes")
def test_a_job_is_the_same_by_every_engine(
    job: Path, engine: Engine, expected: dict[tuple[str, ViewOptions], bytes]
) -> None:
    for (view, options), payload in expected.items():
        assert show(job, engine, view, options) == payload
    assert b"Rank 5 is late in 100% of steps" in expected["ranks", ViewOptions()]
    windows = json.loads(expected["distributed", ViewOptions()])["windows"]
    assert [rank["steps"]["step"] for window in windows for rank in window["ranks"]] == [["60"]] * 2


def test_traces_are_the_same_by_every_engine(
    imported: Callable[..., Run], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = imported(**{f"rank{n}": distributed(training(), n, 3) for n in range(3)})
    expected = msgspec.json.encode(VIEWS["distributed"](run))
    monkeypatch.setattr(trace_parts, "PART_EVENTS", 1)
    for one in (Engine(), engine):
        again = Run(open_run(run.reader.location), engine=one)
        assert msgspec.json.encode(VIEWS["distributed"](again)) == expected
    assert b'"transfer_ns":60000' in expected


def test_a_verdict_is_the_same_by_every_engine(job: Path, engine: Engine) -> None:
    expected = msgspec.json.encode(make_verdict(Run(open_run(job))))
    assert msgspec.json.encode(make_verdict(Run(open_run(job), engine=engine))) == expected


def test_figures_of_ranks_are_measured_by_the_engine(job: Path, processes: Engine) -> None:
    run, here = Run(open_run(job), engine=processes), Run(open_run(job))
    measure_ranks(run, RANK_FIGURES)
    for rank, rank_here in zip(run.ranks, here.ranks, strict=True):
        for name in RANK_FIGURES:
            assert name in vars(rank)
            assert getattr(rank, name) == getattr(rank_here, name)
    assert run.ranks[3].core_delays


@pytest.mark.extended("damage is noted where the parts are read")
def test_damage_in_a_part_is_noted(job: Path, engine: Engine, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(job, copy)
    segment = next((copy / "tables" / "spans" / "n3").iterdir())
    segment.write_bytes(segment.read_bytes()[:-20])
    shown = show(copy, engine, "ranks", ViewOptions())
    assert shown == show(copy, None, "ranks", ViewOptions())
    assert b"spans/n3/" in shown


@pytest.mark.extended("readers of buckets are tested in tests/unit/store")
def test_a_run_in_a_bucket_is_the_same(
    job: Path, bucket: TestBucket, expected: dict[tuple[str, ViewOptions], bytes]
) -> None:
    """Processes that start now have the credentials."""
    url = bucket.put_run(job, "job")
    with closing(ProcessEngine()) as engine:
        for view in ("ranks", "distributed"):
            payload = show(url, engine, view, ViewOptions())
            assert payload == expected[view, ViewOptions()]


def test_few_parts_start_no_process(job: Path) -> None:
    run, parts = Run(open_run(job)), list(range(MIN_POOL_PARTS))
    with closing(choose_engine(None)) as engine:
        assert isinstance(engine, LocalEngine)
        assert set(engine.map(run, get_process, parts[1:])) == {os.getpid()}
        workers = set(engine.map(run, get_process, parts))
        assert os.getpid() not in workers
        assert workers >= set(engine.map(run, get_process, parts)), "they stay until it is closed"
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


def test_a_process_that_is_killed(job: Path) -> None:
    advice = "with `stepscope show RUN VIEW --scheduler ADDRESS`"
    message = f"A process that read a part of the run was killed.*{advice}"
    run, engine = Run(open_run(job)), ProcessEngine()
    with pytest.raises(StepscopeError, match=message):
        engine.map(run, die, [0])
    with closing(engine):
        assert engine.map(run, get_process, [0]) != [os.getpid()]


# --- schedulers -----------------------------------------------------------------------------------


@pytest.mark.extended("starts a scheduler, two workers, and three more in place of lost ones")
def test_workers_in_processes(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    # Workers that a test has ended may take long to be replaced on a busy machine.
    monkeypatch.setattr("stepscope.run.engines.CONNECT_TIMEOUT_S", 60)
    monkeypatch.setattr("stepscope.run.engines.REPLACEMENT_TIMEOUT_S", 60)
    run = Run(open_run(job))
    with dask_cluster(2) as scheduler, closing(choose_engine(scheduler)) as engine:
        assert show(job, engine, "ranks", RANGE) == show(job, None, "ranks", RANGE)
        function = partial(die_once, mark=tmp_path / "mark")
        assert engine.map(run, function, list(range(4))) == [0, 1, 2, 3]
        assert (tmp_path / "mark").exists()
        with pytest.raises(StepscopeError, match="were lost while they read the run"):
            engine.map(run, die, [0])


def test_a_worker_that_does_not_see_the_run(job: Path, address: str, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(job, copy)
    run = Run(open_run(copy))
    shutil.rmtree(copy)
    with (
        closing(choose_engine(address)) as engine,
        pytest.raises(UsageError, match="cannot open the run: use a directory that all machines"),
    ):
        engine.map(run, get_process, [0])


@pytest.mark.parametrize("absent", ["tcp://127.0.0.1:9", "nowhere://x"])
def test_a_scheduler_that_is_absent(absent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("stepscope.run.engines.CONNECT_TIMEOUT_S", 2)
    with pytest.raises(UsageError, match=f"No Dask scheduler answers at {absent}"):
        choose_engine(absent)


@pytest.mark.extended("waits for workers that do not come")
def test_a_scheduler_whose_workers_left(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("stepscope.run.engines.REPLACEMENT_TIMEOUT_S", 0)
    with threaded_cluster() as cluster:
        with closing(choose_engine(cluster.scheduler_address)) as engine:
            cluster.scale(0)
            wait_until(lambda: not cluster.scheduler.workers)
            with pytest.raises(StepscopeError, match="were lost while they read the run"):
                engine.map(Run(open_run(job)), get_process, [0])
        monkeypatch.setattr("stepscope.run.engines.CONNECT_TIMEOUT_S", 2)
        with pytest.raises(UsageError, match=r"has no workers\. Start at least one"):
            choose_engine(cluster.scheduler_address)


def test_a_scheduler_of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    packages = distributed.versions.get_versions(packages=["stepscope", "numpy"])["packages"]
    changed = {"host": {}, "packages": {**packages, "distributed": "1.2.3"}}
    monkeypatch.setattr(distributed.Scheduler, "versions", lambda *_, **__: changed)
    message = r"The Dask scheduler has distributed 1\.2\.3, but this machine has \d"
    with threaded_cluster() as cluster, pytest.raises(UsageError, match=message):
        choose_engine(cluster.scheduler_address)


def test_the_library_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"pip install 'stepscope\[dask\]'"):
        choose_engine("tcp://127.0.0.1:9")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("show RUN ranks", "sentence"),
        ("diagnose RUN", "headline"),
        pytest.param("report RUN", "rules", marks=pytest.mark.extended("two reports on 16 ranks")),
    ],
)
def test_commands_read_ranks_on_a_scheduler(
    job: Path, address: str, words: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "MIN_POOL_PARTS", 99)  # alone, it starts no process
    command = [*words.replace("RUN", str(job)).split(), "--json"]
    alone = CliRunner().invoke(root, command)
    shown = CliRunner().invoke(root, [*command, "--scheduler", address])
    assert shown.exit_code == 0
    payloads = [json.loads(result.stdout) for result in (alone, shown)]
    assert payloads[0][name]
    for payload in payloads:
        payload.pop("made_ns", None)  # the time of the report
    assert payloads[0] == payloads[1]
