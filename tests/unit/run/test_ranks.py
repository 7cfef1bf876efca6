"""Selection of ranks by number, and their coordinates in a mesh."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.analysis.ranks.exchange import RecordedCalls
from stepscope.errors import UsageError
from stepscope.intervals import Intervals
from stepscope.run import number_ranks, open_run, parse_mesh
from stepscope.run.ranks.collectives import measure_step_exchange
from stepscope.testing import RunBuilder
from stepscope.views import ViewOptions
from stepscope.views.devices.kernels import show_kernels
from stepscope.views.steps.steps import show_steps
from tests.support.command import run_command
from tests.support.served import serving

STEP = "wait 50 | forward 12 | backward 20 | optimizer 18"
WINDOW = "window ( forward ( op:linear 5 | kernel:gemm 3 ) | optimizer 1 )"


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of one process with a DataLoader worker, as `python train.py` starts it."""
    run = RunBuilder(tmp_path_factory.mktemp("single") / "run")
    process = run.rank(workers=1)
    process.draw(STEP, 30)
    process.workers[0].draw("fetch 80", 30)
    return run.write()


def test_views_of_rank_0_show_the_only_process(location: Path) -> None:
    run = open_run(location)
    (rank,) = show_steps(run, ViewOptions(rank=0)).ranks
    assert rank.step_count == 30
    done = run_command(location.parent, "show", "run", "steps", "--rank", "0")
    assert done.returncode == 0
    assert "30 steps" in done.stdout


def test_the_python_api_selects_rank_0(location: Path) -> None:
    run = stepscope.open(location)
    assert run.ranks == [0]
    spans = run.framework(rank=0).rows()
    assert spans == run.framework().rows()
    assert {span["role"] for span in spans} == {"main", "dataloader_worker"}
    assert {span["rank"] for span in spans} == {0}
    assert run.phase_statistics(rank=0).rows() == run.phase_statistics().rows()
    assert len(run.step_timeline(rank=0).ranks) == 1
    assert [worker.rank for worker in run.dataloader(rank=0).workers] == [0]


def test_the_server_selects_rank_0(location: Path) -> None:
    with serving(location.parent) as server:
        assert server.view("steps", "run", rank="0").json["ranks"][0]["step_count"] == 30
        response = server.view("steps", "run", rank="3")
        assert (response.status, response.error) == (400, "There is no rank 3; the run has rank 0.")


def test_a_rank_that_does_not_exist(location: Path) -> None:
    sentence = "There is no rank 3; the run has rank 0."
    for view in ("steps", "kernels", "annotations"):
        done = run_command(location.parent, "show", "run", view, "--rank", "3")
        assert (done.returncode, done.stderr) == (2, f"stepscope: {sentence}\n")
    run = stepscope.open(location)
    for select in (run.framework, run.trace_events, run.step_timeline, run.dataloader):
        with pytest.raises(UsageError, match=sentence):
            select(rank=3)


def test_ranks_of_processes(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "ranges")
    for number in (0, 1, 2, 3, 6, 8, 9):
        run.rank(number).draw(STEP, 3)
    with pytest.raises(UsageError, match="no rank 7; the run has ranks 0 to 3, 6, 8, 9"):
        number_ranks(run.open()).require(7)
    run = RunBuilder(tmp_path / "single")
    run.rank()  # prepares the data
    run.rank().draw(STEP, 12)  # the one command that trains
    (rank,) = show_steps(run.open(), ViewOptions(rank=0)).ranks
    assert rank.step_count == 12
    run = RunBuilder(tmp_path / "several")
    for _ in range(2):
        run.rank().draw(STEP, 12)
    with pytest.raises(UsageError, match="There is no rank 0: the run does not record ranks"):
        show_steps(run.open(), ViewOptions(rank=0))


def test_a_rank_without_a_trace(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank(0).draw(STEP, 12).draw(WINDOW)
    run.rank(1).draw(STEP, 12)
    opened = run.open()
    (rank,) = show_steps(opened, ViewOptions(rank=1)).ranks
    assert rank.step_count == 12
    missing = show_kernels(opened, ViewOptions(rank=1)).missing
    assert missing == "no trace of this rank was recorded; available: 0"


def test_a_window_of_the_only_process(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank().draw(STEP, 12).draw(WINDOW)
    opened = run.open()
    assert len(show_kernels(opened, ViewOptions(rank=0)).traces) == 1
    events = stepscope.open(tmp_path / "run").trace_events(rank=0).rows()
    assert {event["rank"] for event in events} == {0}


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("dp=4,pp=2,tp=2", (4, 2, 2)),
        ("pp=3", (3,)),
        (" ep=2 , dp=5 ", (2, 5)),
        ("tp=1,cp=7", (1, 7)),
    ],
)
def test_ranks_are_in_row_major_order(text: str, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    mesh = parse_mesh(text, count)
    for rank in range(count):
        assert tuple(mesh.locate(rank).values()) == np.unravel_index(rank, shape)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dp=4,pp=3", "4 x 3 is 12, but the job has 8 ranks; give sizes that multiply to that"),
        ("xp=8", "--mesh: 'xp' is no dimension; use dp, pp, tp, ep, cp"),
        ("", "--mesh: '' is no dimension"),
        ("dp=2,dp=4", "--mesh: the dimension dp is given twice."),
        ("dp=0,pp=8", "--mesh: 'dp=0' needs a size of 1 or more, such as dp=2."),
        ("dp=-8", "--mesh: 'dp=-8' needs a size of 1 or more"),
        ("dp", "--mesh: 'dp' needs a size of 1 or more"),
        ("dp=٣", "needs a size of 1 or more"),
        ("dp=99999999999999999999", "needs a size of 1 or more"),
    ],
)
def test_a_bad_mesh_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_mesh(text, 8)
    assert message in str(caught.value)


@pytest.mark.parametrize(("word", "expected_ms"), [("async", 60 - 5), ("communication", 0)])
def test_a_pass_waits_for_the_asynchronous_collectives_of_a_hook(
    tmp_path: Path, word: str, expected_ms: int
) -> None:
    """A blocking one has ended when it returns, and its time is communication anyway."""
    builder = RunBuilder(tmp_path / "run")
    builder.rank().draw(f"forward 10 | backward 60 ( do 5 | {word} 1 ) | optimizer 10", 3)
    (rank,) = builder.open().ranks
    called_ns = rank.spans.of("communication").start
    calls = RecordedCalls(t_ns=called_ns, seq=np.arange(3))
    steps = Intervals(rank.steps.start, rank.steps.end)
    exchange_ns = measure_step_exchange(rank.spans, steps, calls)
    assert exchange_ns[:-1].tolist() == [expected_ms * 1e6] * 2
