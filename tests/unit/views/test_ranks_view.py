"""Late ranks of drawn jobs: who, when, by how much and why. Times are milliseconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from stepscope.cli import root
from stepscope.errors import UsageError
from stepscope.rule_feed import check_rules
from stepscope.rules.profiler.rank_straggler import RankStraggler
from stepscope.testing import RunBuilder
from stepscope.testing.traces import TraceJob
from stepscope.views import ViewOptions
from stepscope.views.steps.ranks import show_nodes, show_ranks
from stepscope.views.steps.step_series import show_step_series
from tests.support.drawn_verdicts import compute
from tests.support.imported_runs import import_into

RunMaker = Callable[..., RunBuilder]
EVEN = "wait 10 | forward 30 | communication 30 | optimizer 10"
SLOW_LOADING = "wait 21 | forward 30 | communication 19 | optimizer 10"
SLOW_FORWARD = "wait 10 | forward 41 | communication 19 | optimizer 10"
SLOW_UPDATE = "wait 10 | forward 30 | communication 19 | optimizer 21"
SLOW_IN_PARTS = "wait 14 | forward 34 | communication 19 | optimizer 13"
COLLECTION = "wait 10 | forward 30 | garbage_collection 11 | communication 19 | optimizer 10"


def draw(new_run: RunMaker, *lines: str, count: int = 100, nodes: int = 1) -> RunBuilder:
    builder = new_run()
    for number, line in enumerate(lines):
        node = f"n{number * nodes // len(lines)}"
        builder.rank(number, node=node, world_size=len(lines)).draw(line, count)
    return builder


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (SLOW_LOADING, "slow data loading"),
        (SLOW_FORWARD, "slow forward passes"),
        (SLOW_UPDATE, "slow optimizer steps"),
        (COLLECTION, "garbage collection"),
    ],
)
def test_the_sentence_names_the_rank_and_the_cause(
    new_run: RunMaker, line: str, cause: str
) -> None:
    run = draw(new_run, EVEN, EVEN, line, EVEN).open()
    payload, series = show_ranks(run), show_step_series(run)
    assert series.rank is not None
    assert series.rank.name == "rank 2"
    assert payload.sentence == f"Rank 2 is late in 100% of steps by 11 ms: {cause}."
    rank = payload.ranks[0]
    assert (rank.rank, rank.persistence, rank.cause) == ("rank 2", "persistent", cause)
    assert (rank.late_ratio, rank.last_ratio) == (1, 1)
    assert rank.lateness_ns == pytest.approx(11e6)
    assert rank.mean_waiting_ns == 0
    assert {peer.mean_waiting_ns for peer in payload.ranks[1:]} == {11e6}
    assert all(peer.persistence is None for peer in payload.ranks[1:])
    assert payload.mean_transfer_ns == pytest.approx(19e6)
    for one in payload.ranks:
        work = one.mean_compute_ns + one.mean_other_ns + one.mean_waiting_ns
        assert work + payload.mean_transfer_ns == pytest.approx(one.mean_step_ns)
        for activity in one.activities:
            late_ns = activity.mean_ns - activity.others_ns if one is rank else 0
            assert late_ns == pytest.approx(late_ns and 11e6)
    assert rank.mean_step_ns == pytest.approx(80e6)
    assert rank.mean_overlap_ns is None
    assert rank.lines == []


def test_lines_of_the_script_say_what_a_late_rank_does(tmp_path: Path) -> None:
    """Rank 1 runs `augment` for 12 ms between phases, and `main` for 8 of 30 ms in passes."""
    code = {"augment": "main > augment", "main": "main"}
    builder = RunBuilder(tmp_path / "run", code=code)
    for number, late_ms in enumerate((1, 12)):
        rank = builder.rank(number)
        rank.draw(
            f"wait 10 | do:augment {late_ms} | forward 30 ( do:main 8 )"
            f" | communication {30 - late_ms}",
            100,
        )
        rank.fact("stack_sampler", period_ns=1_000_000)
    first, _ = show_ranks(builder.open()).ranks
    assert first.lines is not None
    assert [(line.frame, line.activity, line.mean_ns) for line in first.lines] == [
        ("/job/train.py(1): augment", "other work", pytest.approx(12e6)),
        ("/job/train.py(2): main", "forward", pytest.approx(8e6)),
    ]
    assert first.mean_other_ns == pytest.approx(22e6)


@pytest.mark.parametrize("count", [2, 4])
def test_the_rule_names_the_same_rank(new_run: RunMaker, count: int) -> None:
    lines = [SLOW_LOADING, *[EVEN] * (count - 1)]
    run = draw(new_run, *lines, count=150).open()
    (finding,) = check_rules(run.reader, [RankStraggler()]).findings
    assert finding.ranks == [rank.rank for rank in show_ranks(run).ranks if rank.persistence]
    assert finding.ranks == ["rank 0"]


@pytest.mark.parametrize(
    ("delay_ms", "cause"), [(4, "slow forward passes"), (8, "no free core for 8 ms of a step")]
)
def test_time_without_a_core_counts_per_step(new_run: RunMaker, delay_ms: int, cause: str) -> None:
    builder = new_run()
    for number, (line, count) in enumerate(((EVEN, 100), (SLOW_FORWARD, 200))):
        rank = builder.rank(number).draw(line, count)
        rank.thread().draw(f"run_queue={number * delay_ms * 1_000_000} 80", count)
        rank.fact("stack_sampler", period_ns=80_000_000, counts_delays=True)
    payload = show_ranks(builder.open())
    assert (payload.ranks[0].rank, payload.ranks[0].cause) == ("rank 1", cause)


def test_a_rank_with_more_to_do_waits_longer_for_a_core_too(new_run: RunMaker) -> None:
    """Half of the time of both ranks is without a core: the machine is full, no rank is robbed."""
    builder = new_run()
    for number, line in enumerate((EVEN, SLOW_FORWARD)):
        rank = builder.rank(number).draw(line, 100)
        work_ms = 50 + 11 * number
        rank.thread().draw(f"run_queue={work_ms * 500_000} 80", 100)
        rank.fact("stack_sampler", period_ns=80_000_000, counts_delays=True)
    payload = show_ranks(builder.open())
    assert (payload.ranks[0].rank, payload.ranks[0].cause) == ("rank 1", "slow forward passes")


def test_time_without_a_core_in_the_exchange_of_gradients_is_no_work(new_run: RunMaker) -> None:
    """Rank 0 waits 90 ms for rank 1 and lacks a core for 50 of 130 ms, rank 1 for 100.

    Of its own work, 10 ms in each phase, rank 0 has no core for 3 x 10 x 50/130 + 10 = 21.5 ms and
    one for 18.5. Rank 1 has none for 110 x 100/130 + 10 = 94.6 ms of its 120, and one for 25.4.
    """
    builder = new_run()
    for number, (forward_ms, exchange_ms, delay_ms) in enumerate(((10, 90, 50), (90, 10, 100))):
        rank = builder.rank(number, world_size=2)
        for _ in range(100):
            rank.draw(
                f"wait 10 | forward {forward_ms} | backward {10 + exchange_ms} | optimizer 10"
            )
            rank.collective(10 + exchange_ms)
        rank.thread().draw(f"run_queue={delay_ms * 1_000_000} 130", 100)
        rank.fact("stack_sampler", period_ns=130_000_000, counts_delays=True)
    payload = show_ranks(builder.open())
    cause = "no free core for 65 ms of a step"  # 94.6 - 25.4 x 21.5 / 18.5
    assert (payload.ranks[0].rank, payload.ranks[0].cause) == ("rank 1", cause)


@pytest.mark.parametrize("work", ["forward", "device_wait"])
def test_larger_inputs_are_told_from_a_slow_rank(new_run: RunMaker, work: str) -> None:
    builder = new_run()
    for number, line in enumerate((EVEN, SLOW_FORWARD)):
        rank = builder.rank(number)
        rank.draw(line.replace("forward", work), 100)
        shape = [32 * (1 + number), 8]
        rank.fact(
            "model_inputs", model=1, inputs=[{"name": "x", "shape": shape, "dtype": "float32"}]
        )
    payload = show_ranks(builder.open())
    assert payload.ranks[0].cause == "larger inputs, 2x those of the other ranks"


def test_a_rank_that_becomes_late(new_run: RunMaker) -> None:
    builder = new_run()
    for number in range(3):
        rank = builder.rank(number)
        rank.draw(EVEN, 60)
        rank.draw(SLOW_LOADING if number == 1 else EVEN, 60)
    payload = show_ranks(builder.open())
    assert payload.sentence == (
        "Rank 1 is late since step 60, in 100% of steps by 11 ms: slow data loading."
    )
    (episode,) = payload.ranks[0].episodes
    assert (episode.first_step, episode.last_step, episode.late_ratio) == (60, 119, 1)


def test_a_rank_that_was_late(new_run: RunMaker) -> None:
    builder = new_run()
    for number in range(3):
        rank = builder.rank(number)
        rank.draw(EVEN, 50)
        rank.draw(SLOW_FORWARD if number == 0 else EVEN, 40)
        rank.draw(EVEN, 110)
    payload = show_ranks(builder.open())
    assert payload.sentence == (
        "Rank 0 was late from step 50 to 89, in 100% of these steps by 11 ms: slow forward passes."
    )
    assert payload.ranks[0].persistence == "transient"


def test_an_even_job_names_no_rank(new_run: RunMaker) -> None:
    builder = new_run()
    for number in range(4):
        builder.rank(number).draw(EVEN, 100, jitter=0.1)
    payload = show_ranks(builder.open())
    assert payload.sentence.startswith("No rank is late: at the median of the steps each is within")
    assert all(rank.persistence is None and rank.cause is None for rank in payload.ranks)


@pytest.mark.parametrize(
    ("late", "cause"),
    [
        ([SLOW_FORWARD] * 4, "slow forward passes"),
        ([SLOW_FORWARD, SLOW_FORWARD, SLOW_LOADING, SLOW_FORWARD], "slow forward passes"),
        ([SLOW_FORWARD, SLOW_FORWARD, SLOW_LOADING, SLOW_LOADING], "cause not found"),
        ([SLOW_FORWARD, SLOW_FORWARD, SLOW_IN_PARTS, SLOW_IN_PARTS], "cause not found"),
    ],
)
def test_a_pipeline_stage_that_is_late_is_named_with_the_cause_of_most_of_its_ranks(
    new_run: RunMaker, late: list[str], cause: str
) -> None:
    lines = [late[number // 4] if number % 4 == 3 else EVEN for number in range(16)]
    builder = draw(new_run, *lines)
    payload = show_ranks(builder.open(), ViewOptions(mesh="dp=4,pp=4"))
    assert payload.sentence == (
        f"All ranks of pipeline coordinate 3 (pp) are late by 11 ms: {cause}."
    )
    assert payload.ranks[0].coordinates in {f"dp={n} pp=3" for n in range(4)}


def test_one_late_rank_of_a_mesh_is_named(new_run: RunMaker) -> None:
    builder = draw(new_run, EVEN, EVEN, EVEN, SLOW_LOADING)
    payload = show_ranks(builder.open(), ViewOptions(mesh="dp=2,tp=2"))
    assert payload.sentence.startswith("Rank 3 is late in 100% of steps")
    assert payload.ranks[0].coordinates == "dp=1 tp=1"


def test_a_mesh_of_another_size_is_refused(new_run: RunMaker) -> None:
    run = draw(new_run, EVEN, EVEN).open()
    with pytest.raises(UsageError, match="--mesh: 2 x 2 is 4, but the job has 2 ranks"):
        show_ranks(run, ViewOptions(mesh="dp=2,tp=2"))


def test_the_map_has_the_lateness_of_every_step(new_run: RunMaker) -> None:
    payload = show_ranks(draw(new_run, EVEN, SLOW_LOADING).open())
    assert payload.map is not None
    assert payload.map.ranks == ["rank 0", "rank 1"]
    assert len(payload.map.steps) == payload.step_count
    assert set(payload.map.lateness_ns[1]) == {11e6}
    assert set(payload.map.lateness_ns[0]) == {-11e6}


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([EVEN], "steps of fewer than two ranks were recorded"),
        (["forward 30 | backward 20 | optimizer 5"] * 2, "no communication between the ranks"),
    ],
)
def test_without_lateness_the_view_says_why(
    new_run: RunMaker, lines: list[str], reason: str
) -> None:
    run = draw(new_run, *lines).open()
    payload = show_ranks(run)
    assert payload.missing is not None
    assert reason in payload.missing
    assert reason in payload.sentence
    assert reason in show_nodes(run).sentence


def test_nodes_with_late_ranks_are_named(new_run: RunMaker) -> None:
    run = draw(new_run, EVEN, EVEN, EVEN, EVEN, SLOW_LOADING, SLOW_LOADING, nodes=3).open()
    payload = show_nodes(run)
    assert payload.sentence.startswith(
        "Late ranks are on n2, 1 of 3 nodes. All ranks of n2 are late. Rank "
    )
    late = payload.nodes[2]
    assert sorted(late.late_ranks) == late.ranks == ["rank 4", "rank 5"]
    assert late.late_ratio == 1
    assert late.mean_lateness_ns == pytest.approx(11e6)
    assert payload.nodes[0].late_ranks == []


def test_the_terminal_begins_with_the_sentence(new_run: RunMaker) -> None:
    path = draw(new_run, EVEN, EVEN, SLOW_LOADING).write()
    sentence = "Rank 2 is late in 100% of steps by 11 ms: slow data loading."
    text = CliRunner().invoke(root, ["show", str(path), "ranks"])
    assert text.exit_code == 0, text.output
    assert text.output.strip().startswith(sentence)
    data = CliRunner().invoke(root, ["show", str(path), "ranks", "--json"])
    assert json.loads(data.output)["sentence"] == sentence
    nodes = CliRunner().invoke(root, ["show", str(path), "nodes"])
    assert " ".join(nodes.output.split()).startswith(f"1 node. {sentence}")


def test_a_bad_mesh_ends_the_command(new_run: RunMaker, tmp_path: Path) -> None:
    path = draw(new_run, EVEN, EVEN).write()
    result = CliRunner().invoke(root, ["show", str(path), "ranks", "--mesh", "dp=3"])
    assert result.exit_code != 0


def test_the_map_says_what_it_leaves_out(
    new_run: RunMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepscope.views.steps.ranks.MAX_RANKS", 2)
    payload = show_ranks(draw(new_run, EVEN, EVEN, EVEN, SLOW_LOADING).open())
    assert payload.map is not None
    assert payload.map.ranks == ["rank 0", "rank 3"]
    assert max(payload.map.lateness_ns[1]) == pytest.approx(11e6)
    assert len(payload.ranks) == 4
    assert payload.notes == ["the map draws 2 of 4 ranks, the latest; the table lists all"]


def draw_exchange(
    new_run: RunMaker, count: int = 150, *, recorded_count: int = 1000, **exchange_ms: float
) -> RunBuilder:
    """Draw two ranks whose gradient exchange DDP timed in its first steps alone, when rank 1 was
    late; its recorded collectives, in the first steps, begin the given time before the end of each
    backward pass."""
    builder = new_run()
    for number in range(2):
        rank = builder.rank(number, world_size=2)
        rank.ddp(exchange_ms=20 - 10 * number, hidden_ms=0, compute_ms=20 + 10 * number)
        for step in range(count):
            rank.draw("wait 10 | forward 20 | backward 40 | optimizer 10")
            if step < recorded_count:
                rank.collective(10 + exchange_ms.get(f"rank_{number}", 20))
    return builder


def test_the_first_steps_make_no_rank_late(new_run: RunMaker) -> None:
    """DDP's account alone would name rank 1."""
    run = draw_exchange(new_run).open()
    payload = show_ranks(run)
    assert payload.sentence.startswith("No rank is late:")
    assert payload.step_count == 139, "ten steps of warm-up, and the last without a later call"
    assert payload.mean_transfer_ns == 20e6
    (finding,) = check_rules(run.reader, [RankStraggler()]).findings
    assert finding.ranks == []


def test_a_rank_with_a_slow_backward_pass_is_named_by_its_collectives(new_run: RunMaker) -> None:
    run = draw_exchange(new_run, rank_0=9).open()
    payload = show_ranks(run)
    assert payload.sentence == "Rank 0 is late in 100% of steps by 11 ms: slow backward passes."
    (finding,) = check_rules(run.reader, [RankStraggler()]).findings
    assert finding.ranks == ["rank 0"]
    assert finding.details["ranks"]["rank 0"]["mean_own_work_s"] == pytest.approx(0.071)


@pytest.mark.parametrize(("recorded_count", "own_work_s"), [(200, 0.071), (100, 0.040)])
def test_own_work_is_reported_as_measured_for_more_of_the_steps(
    new_run: RunMaker, recorded_count: int, own_work_s: float
) -> None:
    """Of 200 compared steps, the exchange in backward passes is known of the first 149 or 49."""
    builder = draw_exchange(new_run, 250, recorded_count=recorded_count, rank_0=9)
    (finding,) = check_rules(builder.open().reader, [RankStraggler()]).findings
    assert finding.ranks == ["rank 0"]
    assert finding.details["ranks"]["rank 0"]["mean_own_work_s"] == pytest.approx(own_work_s)


def draw_trace(rank: int, step_count: int, *, excess: int = 0) -> bytes:
    """Draw a trace of 8 ranks that leave each exchange together, in microseconds."""
    job = TraceJob(rank=rank, world_size=8)
    for _ in range(step_count):
        with job.step():
            compute(job, 20_000 + excess)
            job.join()
            job.collective("all_reduce", 15_000 - excess)
            job.join()
            job.wait()
    return job.encode()


@pytest.mark.parametrize(
    ("step_count", "sentence"),
    [
        (
            4,
            "Rank 5 is late in 4 of 4 steps by 10 ms: more computation. These are too few steps to "
            "exclude chance.",
        ),
        (30, "Rank 5 is late in 100% of steps by 10 ms: more computation."),
    ],
)
def test_ranks_of_imported_traces(tmp_path: Path, step_count: int, sentence: str) -> None:
    files = [tmp_path / f"{rank}.json" for rank in range(8)]
    for rank, file in enumerate(files):
        file.write_bytes(draw_trace(rank, step_count, excess=10_000 if rank == 5 else 0))
    run = import_into(tmp_path / "run", *files)
    payload = show_ranks(run)
    assert payload.sentence == sentence
    assert (payload.step_count, payload.missing) == (step_count, None)
    first, *peers = payload.ranks
    assert (first.rank, first.late_ratio, first.cause) == ("rank 5", 1, "more computation")
    assert first.lateness_ns == pytest.approx(10e6, rel=0.01)
    assert {peer.late_ratio for peer in peers} == {0}
    assert payload.mean_transfer_ns is not None
    for rank in payload.ranks:
        assert rank.mean_overlap_ns == 0
        communication_ns = payload.mean_transfer_ns + rank.mean_waiting_ns
        parts_ns = rank.mean_compute_ns + rank.mean_other_ns + communication_ns
        assert parts_ns == pytest.approx(rank.mean_step_ns)
    assert show_nodes(run).missing == "the traces do not name the nodes of their ranks"


def test_traces_of_one_rank_are_not_compared(tmp_path: Path) -> None:
    file = tmp_path / "0.json"
    file.write_bytes(draw_trace(0, 4))
    assert show_ranks(import_into(tmp_path / "run", file)).missing == (
        "lateness is a comparison of ranks, and the run has traces of one rank"
    )
