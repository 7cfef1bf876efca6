"""Causal graphs of watched runs: drawn loaders against a twin that simulates them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings, strategies as st

from stepscope import analysis
from stepscope.run import Run, RunGraph, build_span_graph, get_span_graph
from stepscope.run.ranks import span_graph
from stepscope.testing import RunBuilder
from tests.support.simulated_loaders import HANDLING_MS, MS, Loader, draw_loader, simulate_training

RunMaker = Callable[..., RunBuilder]


def graph_of(run: Run) -> RunGraph:
    graph = get_span_graph(run)
    assert not isinstance(graph, str), graph
    return graph


def simulate(graph: RunGraph, text: str) -> float:
    """Return the milliseconds of a step with a fix."""
    name, _, factor = text.partition("=")
    fix = analysis.find_fix(name)
    assert fix is not None
    return graph.simulate((fix, float(factor) if factor else None)).step_ns / MS


LOADERS = st.builds(
    Loader,
    fetch=st.integers(2, 60),
    compute=st.integers(3, 40),
    workers=st.integers(1, 4),
    save=st.sampled_from([0, 80]),
    boot=st.sampled_from([0, 15]),
    per_iteration=st.sampled_from([17, 1000]),
    steps=st.just(42),
)
FIXES: dict[str, Callable[[Loader], Loader]] = {
    "faster-loading=4": lambda one: one._replace(fetch=one.fetch / 4),
    "workers=2": lambda one: one._replace(fetch=one.fetch / 2),
    "async-checkpoint": lambda one: one._replace(save=0),
    "persistent-workers": lambda one: one._replace(boot=0),
    "faster:forward=1000000000": lambda one: one._replace(compute=1),
}
"""Change of the training by each fix."""


@pytest.mark.slow("40 runs")
def test_fixes_against_simulated_trainings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The replay gives back the steps, and each fix the steps of the training that has it."""

    @settings(max_examples=40)
    @given(LOADERS)
    def check(loader: Loader) -> None:
        path = tmp_path_factory.mktemp("drawn") / "run"
        graph = graph_of(draw_loader(RunBuilder(path), loader).open())
        step_ms = simulate_training(loader).step_ms
        assert graph.error_ratio == 0
        assert graph.measured_ns / graph.step_count / MS == pytest.approx(step_ms)
        assert sum(ns for _, ns in graph.sum_categories()) == graph.measured_ns
        for name, change in FIXES.items():
            expected_ms = simulate_training(change(loader)).step_ms
            assert simulate(graph, name) == pytest.approx(expected_ms, abs=1e-4), name

    check()


@pytest.mark.parametrize(
    ("fetch", "compute", "workers", "factor"),
    [(60, 10, 1, 2), (60, 10, 2, 2), (60, 10, 2, 8), (5, 40, 2, 4), (200, 10, 4, 2)],
)
def test_the_slower_of_loader_and_steps_has_the_pace(
    new_run: RunMaker, *, fetch: int, compute: int, workers: int, factor: int
) -> None:
    """Workers make a batch in fetch / workers."""
    loader = Loader(fetch, compute, workers, steps=400)
    graph = graph_of(draw_loader(new_run(), loader).open())
    expected_ms = max(compute + HANDLING_MS, fetch / factor / workers)
    assert simulate(graph, f"faster-loading={factor}") == pytest.approx(expected_ms, rel=0.01)


def test_a_range_of_a_run(new_run: RunMaker) -> None:
    """Batches count from the start of the iteration, which is before the range."""
    run = draw_loader(new_run(), Loader(60, 10, 3, steps=200)).open()
    part = run.within(1000 * MS, 3000 * MS)
    graph = graph_of(part)
    assert (graph.error_ratio, graph.step_count) == (0, len(part.ranks[0].steps))
    assert (graph.fixed_edges.edges.kind == analysis.EdgeKind.WORK).any()
    assert simulate(graph, "faster-loading=1.5") == pytest.approx(60 / 1.5 / 3, rel=0.02)


@pytest.mark.parametrize("factor", [2, 8])
def test_workers_instead_of_the_training_thread(new_run: RunMaker, factor: int) -> None:
    run = new_run()
    run.rank(workers=0).draw("wait ( fetch 30 ) | forward 9 | optimizer 1", 60)
    graph = graph_of(run.open())
    assert simulate(graph, f"workers={factor}") == pytest.approx(max(10, 30 / factor), rel=0.01)
    assert simulate(graph, f"faster-loading={factor}") == pytest.approx(10 + 30 / factor)
    assert simulate(graph, f"faster:fetch={factor}") == pytest.approx(10 + 30 / factor)


def test_work_beside_a_slow_loader_is_not_on_the_path(new_run: RunMaker) -> None:
    """The thread saves nothing of its work while it waits for workers, which are on the path."""
    graph = graph_of(draw_loader(new_run(), Loader(60, 10, 2)).open())
    assert simulate(graph, "faster:forward=2") == pytest.approx(30)
    assert graph.sum_categories()[0][0] is analysis.PathCategory.INPUT


def draw_ranks(run: RunBuilder, steps: Sequence[str]) -> Run:
    """Draw ranks, each by what one step of it is."""
    for rank, text in enumerate(steps):
        run.rank(rank).draw(text, 80)
    return run.open()


def test_ranks_meet_at_collectives(new_run: RunMaker) -> None:
    """Three ranks, of which one works 30 ms longer: the transfer takes the 2 ms of that one."""
    steps = [f"forward {c} | communication {42 - c} | optimizer 1" for c in (10, 10, 40)]
    graph = graph_of(draw_ranks(new_run(), steps))
    assert (graph.error_ratio, graph.joined.matched_count) == (0, graph.step_count)
    assert simulate(graph, "no-straggler") == pytest.approx(10 + 2 + 1)
    assert simulate(graph, "bandwidth=2") == pytest.approx(40 + 1 + 1)
    assert graph.sum_ranks()[2] / graph.measured_ns > 0.9


def test_the_exchange_of_gradients_ends_with_the_backward_pass(new_run: RunMaker) -> None:
    """Ranks that wait in their backward pass for the one that computes 20 ms longer."""
    run = new_run()
    for rank, compute in enumerate((10, 30)):
        process = run.rank(rank)
        for _ in range(40):
            process.draw(f"forward {compute} | backward {42 - compute}")
            process.collective(32 - compute).draw("optimizer 3")
        process.collective()
    graph = graph_of(run.open())
    assert graph.joined.matched_count > 0.9 * graph.step_count
    assert simulate(graph, "no-straggler") == pytest.approx(10 + 12 + 3, rel=0.05)


def test_ranks_with_different_numbers_of_collectives(new_run: RunMaker) -> None:
    """Collectives that no other rank has tie none, and the rest is replayed."""
    steps = [
        "forward 10 | communication 5 | communication 5 | optimizer 1",
        "forward 15 | communication 5 | optimizer 1",
    ]
    graph = graph_of(draw_ranks(new_run(), steps))
    assert graph.joined.matched_count == 0
    assert graph.error_ratio == 0


def test_evaluation_is_one_piece(new_run: RunMaker) -> None:
    run = new_run()
    rank = run.rank()
    for _ in range(5):
        rank.draw("forward 10 | backward 10 | optimizer 5", 20).evaluation(4)
    graph = graph_of(run.open())
    assert {"evaluation", "forward", "optimizer"} < set(graph.fixed_edges.names)
    assert dict(graph.sum_categories())[analysis.PathCategory.EVALUATION] > 0


def test_a_sample_of_a_long_run(new_run: RunMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The middle of the measured steps, with notes of what is left out."""
    monkeypatch.setattr(span_graph, "MAX_STEPS", 50)
    monkeypatch.setattr(span_graph, "MAX_RANKS", 3)
    steps = ["forward 9 | optimizer 1"] * 4
    graph = graph_of(draw_ranks(new_run(), steps))
    assert [len(graph.parts), graph.step_count] == [2, 50]
    assert graph.notes[0] == "of 72 measured steps, 20 to 69 are replayed"
    assert "of 4 ranks, 2" in graph.notes[1]


def test_fetches_that_contradict_the_waits(new_run: RunMaker) -> None:
    """Batches received before their fetch has ended: the pace of the batches counts instead."""
    run = new_run()
    rank = run.rank(workers=1)
    rank.draw("start=1 1").draw("wait=0 20 | forward 9 | optimizer 1", 40)
    rank.workers[0].pause(600).draw("fetch 29", 40)
    graph = graph_of(run.open())
    assert graph.error_ratio == 0
    assert not (graph.fixed_edges.edges.kind == analysis.EdgeKind.WORK).any()
    assert simulate(graph, "faster-loading=2") < 20


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("optimizer ?", span_graph.NO_STEPS),
        ("forward 1 | device:forward 5 | optimizer 1", span_graph.ON_DEVICE),
    ],
)
def test_runs_without_a_graph(new_run: RunMaker, text: str, reason: str) -> None:
    run = new_run()
    run.rank().draw(text, 30)
    assert get_span_graph(run.open()) == reason


def test_ranks_without_a_step_in_common(new_run: RunMaker) -> None:
    run = new_run()
    run.rank(0).draw("forward 1 | optimizer 1", 3)
    run.rank(1).draw("window ( forward 1 | optimizer 1 )", 3)
    assert build_span_graph(run.open().ranks) == span_graph.NO_SHARED_STEP
