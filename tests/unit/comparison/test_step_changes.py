"""Changes of steps: sums, noise, and detection of changes."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from stepscope.comparison.names import compare_names
from stepscope.comparison.step_changes import (
    StepChange,
    StepDifference,
    StepTimes,
    compare_steps,
    pair_runs,
)

MS = 1_000_000
Parts = dict[str, np.ndarray]


def compare(base: Parts, candidate: Parts) -> StepDifference:
    """Compare one run of one rank with another."""
    return compare_steps([StepTimes(parts=base)], [StepTimes(parts=candidate)])


def merge_ranks(*ranks: Parts) -> StepTimes:
    """Merge ranks that start each step at the same time."""
    return StepTimes.merge([(np.arange(len(next(iter(r.values())))), r) for r in ranks])


def draw_steps(seed: int, *, wait: float = 20, count: int = 200) -> dict[str, np.ndarray]:
    """Draw parts of steps with slow steps in groups."""
    generator = np.random.default_rng(seed)
    slow = np.repeat(generator.random(-(-count // 5)) < 0.2, 5)[:count]
    return {
        "wait": ((wait + generator.normal(0, 2, count) + 10 * slow) * MS).astype(np.int64),
        "compute": ((60 + generator.normal(0, 1, count)) * MS).astype(np.int64),
    }


def test_parts_sum_to_the_whole() -> None:
    base = draw_steps(1)
    candidate = draw_steps(2, wait=5) | {"save": np.full(200, 3 * MS)}
    result = compare(base, candidate)
    assert sum(part.change_ns for part in result.parts.values()) == pytest.approx(
        result.mean.change_ns
    )
    wall = sum(base.values())
    assert result.mean.base_ns == pytest.approx(wall.mean())
    assert result.p50.base_ns == pytest.approx(np.median(wall))
    assert result.p95.base_ns == pytest.approx(np.percentile(wall, 95))
    assert result.mean.estimate_ns == result.mean.change_ns
    assert result.parts["save"].base_ns == 0
    assert result.parts["wait"].beyond_noise
    assert result.mean.low_ns is not None
    assert result.mean.high_ns is not None
    assert result.mean.low_ns <= result.mean.change_ns <= result.mean.high_ns


def test_the_same_program_again_is_noise() -> None:
    """At 95%, some of the pairs may differ beyond noise by chance."""
    changes = [compare(draw_steps(2 * i), draw_steps(2 * i + 1)).mean for i in range(40)]
    assert sum(change.beyond_noise for change in changes) <= 6


def test_ten_percent_are_detected() -> None:
    changes = [compare(draw_steps(2 * i), draw_steps(2 * i + 1, wait=28)).mean for i in range(20)]
    assert count_slower(changes) >= 19


def count_slower(changes: list[StepChange]) -> int:
    return sum(change.beyond_noise and change.change_ns > 0 for change in changes)


def test_long_runs_are_thinned() -> None:
    result = compare(draw_steps(1, count=50_000), draw_steps(2, wait=21, count=50_000))
    assert result.mean.beyond_noise
    assert result.mean.change_ns == pytest.approx(MS, rel=0.2)


def test_names() -> None:
    base = {"gone": (5.0, 1.0), "slow": (10.0, 2.0), "same": (100.0, 1.0), "fast": (9.0, 1.0)}
    candidate = {"slow": (17.0, 2.0), "same": (100.5, 1.0), "fast": (3.0, 1.0), "new": (4.0, 1.0)}
    result = compare_names(base, candidate, time_of="kernels", top=3)
    assert [(row.name, row.status, row.change_ns) for row in result.rows] == [
        ("slow", "slower", 7),
        ("fast", "faster", -6),
        ("gone", "removed", -5),
    ]
    assert result.rest_count == 2
    assert result.rest_ns == pytest.approx(4.5)
    assert sum(row.change_ns for row in result.rows) + result.rest_ns == pytest.approx(
        result.change_ns
    )
    statuses = {
        row.name: row.status
        for row in compare_names(base, candidate, time_of="kernels", top=9).rows
    }
    assert (statuses["new"], statuses["same"]) == ("added", "unchanged")


def draw_drift(seed: int, *, slower: float = 1.0, count: int = 200) -> dict[str, np.ndarray]:
    """Draw correlated steps of about 50 ms on a machine that drifts: an autoregressive process of
    order 1 (coefficient 0.6, 5% of the step) on a slow wave of 2%."""
    generator = np.random.default_rng(seed)
    shocks = generator.normal(0, 1, count)
    noise = np.zeros(count)
    for index in range(count):
        noise[index] = 0.6 * noise[index - 1] + 0.8 * shocks[index]
    turns = generator.uniform(0.5, 2) * np.arange(count) / count + generator.uniform()
    relative = 1 + 0.05 * noise + 0.02 * np.sin(2 * np.pi * turns)
    step = 50 * MS * slower * np.maximum(relative, 0.1)
    return {"wait": (0.3 * step).astype(np.int64), "compute": (0.7 * step).astype(np.int64)}


SEEDS = pytest.mark.parametrize(
    "count", [20, pytest.param(100, marks=pytest.mark.extended("five times as many seeds"))]
)


@SEEDS
def test_drift_is_noise(count: int) -> None:
    """Resamples alone would exclude 0 for more pairs than their level allows."""
    differences = [compare(draw_drift(2 * i), draw_drift(2 * i + 1)) for i in range(count)]
    for figure in ("mean", "p50", "p95"):
        assert sum(getattr(entry, figure).beyond_noise for entry in differences) <= count / 20


@SEEDS
def test_ten_percent_are_detected_on_a_machine_that_drifts(count: int) -> None:
    pairs = ((2 * i, 2 * i + 1) for i in range(count))
    differences = [compare(draw_drift(a), draw_drift(b, slower=1.1)) for a, b in pairs]
    # The 95th percentile depends on a twentieth of the steps.
    for figure, share in (("mean", 0.95), ("p50", 0.95), ("p95", 0.85)):
        assert count_slower([getattr(entry, figure) for entry in differences]) >= share * count


def measure_floor(wall: np.ndarray) -> float:
    """Measure the noise floor of the mean step of a run compared with itself."""
    floor = compare({"compute": wall}, {"compute": wall}).mean.noise_ns
    assert floor is not None
    return floor


def test_the_noise_floor_is_the_difference_between_halves() -> None:
    """A run that jumps in its middle differs from itself by the jump."""
    assert measure_floor(np.repeat([40, 50], 50) * MS) == pytest.approx(2**0.5 * 10 * MS)
    assert measure_floor(np.full(9, 5)) == 0


def test_a_change_within_the_noise_floor_is_noise() -> None:
    """Each half is steady, so resamples hardly differ, but the run itself changed by as much."""
    base = {"compute": np.repeat([40, 50], 100) * MS}
    result = compare(base, {"compute": np.repeat([50, 52], 100) * MS})
    assert result.mean.noise_ns == pytest.approx(2**0.5 * 10 * MS)
    assert result.mean.low_ns == pytest.approx((6 - 2**0.5 * 10) * MS)
    assert not result.mean.beyond_noise


@pytest.mark.parametrize("count", [5, 6, 12])
def test_a_change_is_beyond_noise_if_and_only_if_its_interval_excludes_0(count: int) -> None:
    for seed in range(20):
        result = compare(draw_drift(2 * seed, count=count), draw_drift(2 * seed + 1, count=count))
        for change in (result.mean, result.p50, *result.parts.values()):
            assert change.low_ns is not None
            assert change.high_ns is not None
            assert change.low_ns <= change.change_ns <= change.high_ns
            assert change.beyond_noise == (not change.low_ns <= 0 <= change.high_ns)


def test_few_correlated_steps_seldom_seem_to_change() -> None:
    """Resamples alone would call a third of identical pairs of six steps different."""
    pairs = [compare(draw_drift(2 * i, count=6), draw_drift(2 * i + 1, count=6)) for i in range(50)]
    assert sum(pair.mean.beyond_noise for pair in pairs) <= 5


def test_permanent_differences_between_ranks_are_not_noise() -> None:
    """One rank waits for the other in every step; the steps themselves are steady."""
    base = merge_ranks(
        *({"wait": np.full(60, w * MS), "work": np.full(60, 9 * MS)} for w in (80, 1))
    )
    same = compare_steps([base], [base])
    assert same.parts["wait"].base_ns == 40.5 * MS
    assert same.parts["wait"].noise_ns == 0
    faster = merge_ranks(
        *({"wait": np.full(60, MS), "work": np.full(60, 9 * MS)} for _ in range(2))
    )
    assert compare_steps([base], [faster]).parts["wait"].beyond_noise


def test_drift_of_all_ranks_is_noise() -> None:
    """Steps of two ranks alternate; halves of the list differ like halves of the time."""
    drift = np.repeat([40, 50], 50) * MS
    result = compare_steps(
        [merge_ranks({"work": drift}, {"work": drift})], [merge_ranks({"work": drift})]
    )
    assert result.mean.noise_ns == pytest.approx(2**0.5 * 10 * MS)


@pytest.mark.parametrize("offset", range(0, 10, 3))
def test_recurring_work_in_a_long_run_is_sampled_evenly(offset: int) -> None:
    """Every tenth of 200,000 steps logs for 5 ms, half a millisecond of the mean step."""
    plain = np.full(200_000, 100 * MS)
    logging = plain + 5 * MS * (np.arange(200_000) % 10 == offset)
    result = compare({"step": plain}, {"step": logging}).mean
    assert result.change_ns == pytest.approx(0.5 * MS)
    assert (result.low_ns, result.high_ns) == pytest.approx((0.5 * MS, 0.5 * MS), rel=0.01)
    assert result.beyond_noise


@pytest.mark.parametrize(
    ("count", "figures"), [(4, []), (5, ["mean", "p50"]), (39, ["mean", "p50"])]
)
def test_too_few_steps_are_never_beyond_noise(count: int, figures: list[str]) -> None:
    base = {"compute": np.full(count, 10 * MS)}
    result = compare(base, {"compute": np.full(count, 20 * MS)})
    for name in ("mean", "p50", "p95"):
        change = getattr(result, name)
        assert change.beyond_noise == (name in figures)
        for bound in (change.noise_ns, change.low_ns, change.high_ns):
            assert (bound is not None) == (name in figures)


def test_many_ranks_do_not_replace_steps() -> None:
    ranks = [{"work": np.full(3, 10 * MS)} for _ in range(64)]
    assert compare_steps([merge_ranks(*ranks)], [merge_ranks(*ranks)]).mean.noise_ns is None


# --- several runs of each program ------------------------------------------------------------


def draw_programs(seed: int, *, slower: float = 1.0, count: int = 5) -> list[list[StepTimes]]:
    """Draw runs of two programs on a machine that is sometimes faster for a complete run."""
    generator = np.random.default_rng(seed)

    def draw_run(length: float) -> StepTimes:
        state = generator.choice([0.9, 1.0], p=[0.1, 0.9]) * generator.normal(1, 0.03)
        work = generator.normal(40 * length * state, 1, 60)
        return StepTimes(parts={"work": (work * MS).astype(np.int64), "wait": np.full(60, 10 * MS)})

    return [[draw_run(length) for _ in range(count)] for length in (1.0, slower)]


def test_the_median_run_represents_its_program() -> None:
    base, candidates = draw_programs(1)
    means = [float(run.wall_ns.mean()) for run in base]
    result = compare_steps(base, candidates)
    assert result.noise_of == "runs"
    assert means[result.representatives[0]] == np.median(means)
    assert result.mean.base_ns == pytest.approx(np.median(means))
    assert compare_steps(base[:2], candidates).representatives[0] == int(np.argmin(means[:2]))
    assert sum(part.change_ns for part in result.parts.values()) == pytest.approx(
        result.mean.change_ns
    )
    assert result.parts["wait"].change_ns == 0
    changes = [float(b.wall_ns.mean() - a.wall_ns.mean()) for a in base for b in candidates]
    assert result.mean.estimate_ns == pytest.approx(np.median(changes))


@SEEDS
def test_differences_between_runs_of_one_program_are_noise(count: int) -> None:
    """With one run each, one in five pairs differs by the state of the machine alone."""
    single = repeated = 0
    for seed in range(count):
        base, candidates = draw_programs(seed)
        single += is_large(compare_steps(base[:1], candidates[:1]).mean)
        repeated += is_large(compare_steps(base, candidates).mean)
    assert single >= count / 10
    assert repeated <= count / 50


def test_a_slower_program_is_detected_among_different_runs() -> None:
    programs = (draw_programs(seed, slower=1.125, count=6) for seed in range(100))
    assert count_slower([compare_steps(*runs).mean for runs in programs]) >= 95


def is_large(change: StepChange) -> bool:
    return abs(change.change_ns) > 0.05 * change.base_ns and change.beyond_noise


# --- runs recorded alternately----------------------------------------------------------------


def draw_alternately(seed: int, *, slower: float = 1.0, count: int = 12) -> list[list[StepTimes]]:
    """Draw alternating runs of two programs on a machine that is slow half of the time."""
    generator = np.random.default_rng(seed)
    programs: list[list[StepTimes]] = [[], []]
    for number in range(2 * count):
        state = 0.25 * np.sin(2 * np.pi * (number / (2 * count) + seed / 7))
        length = (1.0, slower)[number % 2] * np.exp(state + generator.normal(0, 0.03))
        work = (generator.normal(40 * length, 1, 60) * MS).astype(np.int64)
        programs[number % 2].append(StepTimes(parts={"work": work}, start_ns=1 + number))
    return programs


def draw_runs(*starts: int) -> list[StepTimes]:
    return [StepTimes(parts={"work": np.full(9, MS)}, start_ns=start) for start in starts]


def test_runs_are_paired_in_the_order_of_recording() -> None:
    base, candidates = draw_runs(50, 10, 30, 20, 40), draw_runs(21, 51, 41, 11, 31)
    assert pair_runs(base, candidates) == [(1, 3), (3, 0), (2, 4), (4, 2), (0, 1)]
    either_first = draw_runs(*range(1, 11, 4), 16, 12), draw_runs(*range(2, 12, 4), 15, 11)
    assert pair_runs(*either_first) == [(0, 0), (1, 1), (2, 2), (4, 4), (3, 3)]


@pytest.mark.parametrize(
    ("base", "candidates"),
    [
        ((1, 2, 3, 4, 5), (6, 7, 8, 9, 10)),  # one program, then the other
        ((1, 3, 5, 7, 9), (2, 4, 6, 8)),  # a run is missing
        ((1, 3, 5, 7), (2, 4, 6, 8)),  # too few
        ((0, 0, 0, 0, 0), (0, 0, 0, 0, 0)),  # starts not known
    ],
)
def test_runs_that_were_not_recorded_alternately_are_not_paired(
    base: tuple[int, ...], candidates: tuple[int, ...]
) -> None:
    assert pair_runs(draw_runs(*base), draw_runs(*candidates)) is None


def test_a_run_starts_with_its_first_rank() -> None:
    step = {"work": np.full(2, MS)}
    late, early = (np.array([at, at + 10]) for at in (9, 7))
    assert StepTimes.merge([(late, step), (early, step)]).start_ns == 7


def test_the_pair_nearest_to_the_median_represents_the_programs() -> None:
    """Brute force: the median over the means of every two changes, each with itself as well."""
    base, candidates = draw_alternately(3, slower=1.1)
    result = compare_steps(base, candidates)
    assert result.noise_of == "pairs"
    changes = [
        float(b.wall_ns.mean() - a.wall_ns.mean()) for a, b in zip(base, candidates, strict=True)
    ]
    averages = [(a + b) / 2 for index, a in enumerate(changes) for b in changes[index:]]
    nearest = min(changes, key=lambda change: abs(change - np.median(averages)))
    assert result.mean.change_ns == pytest.approx(nearest)
    assert result.representatives == (changes.index(nearest),) * 2
    assert result.mean.estimate_ns == pytest.approx(np.median(averages))
    low, high = result.mean.low_ns or 0, result.mean.high_ns or 0
    assert low <= np.median(averages) <= high
    assert result.mean.noise_ns == pytest.approx((high - low) / 2)


def test_pairs_detect_a_slower_program_on_a_machine_that_drifts() -> None:
    paired = unpaired = 0
    for seed in range(100):
        programs = draw_alternately(seed, slower=1.1)
        result = compare_steps(*programs)
        without = compare_steps(*[[replace(run, start_ns=0) for run in runs] for runs in programs])
        assert (result.noise_of, without.noise_of) == ("pairs", "runs")
        paired += result.mean.beyond_noise and result.mean.estimate_ns > 0.05 * result.mean.base_ns
        unpaired += without.mean.beyond_noise
    assert paired >= 95
    assert unpaired <= 50


def test_the_same_program_recorded_alternately_is_noise() -> None:
    """At 90%, at most one in twenty pairs of identical programs is slower beyond noise."""
    changes = [compare_steps(*draw_alternately(seed)).mean for seed in range(200)]
    assert count_slower(changes) <= 18
