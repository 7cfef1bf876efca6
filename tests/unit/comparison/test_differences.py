"""Two runs side by side: sums are kept, noise is called noise, changes are found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stepscope.comparison.differences import (
    StepDifference,
    StepTimes,
    compare_names,
    compare_steps,
    recorded_in_turn,
)

MS = 1_000_000
Parts = dict[str, np.ndarray]


def compared(base: Parts, other: Parts) -> StepDifference:
    """One rank against one."""
    return compare_steps([StepTimes(parts=base)], [StepTimes(parts=other)])


def together(*ranks: Parts) -> StepTimes:
    """Ranks that begin each step at the same time."""
    return StepTimes.of([(np.arange(len(next(iter(r.values())))), r) for r in ranks])


def drawn(seed: int, *, wait: float = 20, count: int = 200) -> dict[str, np.ndarray]:
    """Parts of steps with noise that comes in groups."""
    generator = np.random.default_rng(seed)
    slow = np.repeat(generator.random(-(-count // 5)) < 0.2, 5)[:count]
    return {
        "wait": ((wait + generator.normal(0, 2, count) + 10 * slow) * MS).astype(np.int64),
        "compute": ((60 + generator.normal(0, 1, count)) * MS).astype(np.int64),
    }


def test_parts_sum_to_the_whole() -> None:
    base, other = drawn(1), drawn(2, wait=5) | {"save": np.full(200, 3 * MS)}
    found = compared(base, other)
    assert sum(part.change_ns for part in found.parts.values()) == pytest.approx(
        found.mean.change_ns
    )
    wall = sum(base.values())
    assert found.mean.base_ns == pytest.approx(wall.mean())
    assert found.p50.base_ns == pytest.approx(np.median(wall))
    assert found.p95.base_ns == pytest.approx(np.percentile(wall, 95))
    assert found.mean.estimate_ns == found.mean.change_ns
    assert found.parts["save"].base_ns == 0
    assert found.parts["wait"].beyond_noise
    low, high = found.mean.interval_ns or (0, 0)
    assert low <= found.mean.change_ns <= high


def test_the_same_program_again_is_noise() -> None:
    """At 95 %, some of the pairs may be called different by chance."""
    wrong = sum(compared(drawn(2 * i), drawn(2 * i + 1)).mean.beyond_noise for i in range(40))
    assert wrong <= 6


def test_ten_per_cent_are_found() -> None:
    found = [compared(drawn(2 * i), drawn(2 * i + 1, wait=28)).mean for i in range(20)]
    assert sum(each.beyond_noise and each.change_ns > 0 for each in found) >= 19


def test_long_runs_are_thinned() -> None:
    found = compared(drawn(1, count=50_000), drawn(2, wait=21, count=50_000))
    assert found.mean.beyond_noise
    assert found.mean.change_ns == pytest.approx(MS, rel=0.2)


def test_names() -> None:
    base = {"gone": (5.0, 1.0), "slow": (10.0, 2.0), "same": (100.0, 1.0), "fast": (9.0, 1.0)}
    other = {"slow": (17.0, 2.0), "same": (100.5, 1.0), "fast": (3.0, 1.0), "new": (4.0, 1.0)}
    found = compare_names(base, other, top=3)
    assert [(row.name, row.status, row.change_ns) for row in found.rows] == [
        ("slow", "slower", 7),
        ("fast", "faster", -6),
        ("gone", "removed", -5),
    ]
    assert found.rest_count == 2
    assert found.rest_ns == pytest.approx(4.5)
    assert sum(row.change_ns for row in found.rows) + found.rest_ns == pytest.approx(
        found.change_ns
    )
    statuses = {row.name: row.status for row in compare_names(base, other, top=9).rows}
    assert (statuses["new"], statuses["same"]) == ("added", "unchanged")


def wandering(seed: int, *, slower: float = 1.0, count: int = 200) -> dict[str, np.ndarray]:
    """Steps of about 50 ms that depend on those before them, on a machine that drifts: an
    autoregressive process of order 1 (0.6; 5 % of the step) on a slow wave of 2 % of it."""
    generator = np.random.default_rng(seed)
    shocks = generator.normal(0, 1, count)
    noise = np.zeros(count)
    for place in range(count):
        noise[place] = 0.6 * noise[place - 1] + 0.8 * shocks[place]
    turns = generator.uniform(0.5, 2) * np.arange(count) / count + generator.uniform()
    relative = 1 + 0.05 * noise + 0.02 * np.sin(2 * np.pi * turns)
    step = 50 * MS * slower * np.maximum(relative, 0.1)
    return {"wait": (0.3 * step).astype(np.int64), "compute": (0.7 * step).astype(np.int64)}


def test_drift_is_no_change() -> None:
    """The interval alone would call more of such pairs different than it promises."""
    found = [compared(wandering(2 * i), wandering(2 * i + 1)) for i in range(100)]
    for figure in ("mean", "p50", "p95"):
        assert sum(getattr(each, figure).beyond_noise for each in found) <= 5
    intervals = [each.mean.interval_ns or (0, 0) for each in found]
    without_floor = sum(not low <= 0 <= high for low, high in intervals)
    assert without_floor > 5


def test_ten_per_cent_are_found_on_a_machine_that_drifts() -> None:
    pairs = ((2 * i, 2 * i + 1) for i in range(60))
    found = [compared(wandering(a), wandering(b, slower=1.1)) for a, b in pairs]
    # The 95th percentile rests on a twentieth of the steps.
    for figure, least in (("mean", 57), ("p50", 57), ("p95", 51)):
        changes = [getattr(each, figure) for each in found]
        assert sum(each.beyond_noise and each.change_ns > 0 for each in changes) >= least


def floor_of(wall: np.ndarray) -> float:
    """Of the mean, compared with itself."""
    found = compared({"compute": wall}, {"compute": wall}).mean.noise_ns
    assert found is not None
    return found


def test_the_noise_floor_is_what_halves_differ_by() -> None:
    """A run that jumps in its middle differs from itself by the jump."""
    assert floor_of(np.repeat([40, 50], 50) * MS) == pytest.approx(2**0.5 * 10 * MS)
    assert floor_of(np.full(9, 5)) == 0


def test_a_change_within_the_noise_floor_is_none() -> None:
    """Each half is steady, so that the interval is narrow; but the run moved by as much itself."""
    base = {"compute": np.repeat([40, 50], 100) * MS}
    found = compared(base, {"compute": np.repeat([50, 52], 100) * MS})
    assert found.mean.interval_ns is not None
    assert found.mean.interval_ns[0] > 0
    assert found.mean.noise_ns == pytest.approx(2**0.5 * 10 * MS)
    assert not found.mean.beyond_noise


def test_ranks_that_differ_for_good_are_no_noise() -> None:
    """One rank waits for the other in every step: the steps themselves are steady."""
    base = together(*({"wait": np.full(60, w * MS), "work": np.full(60, 9 * MS)} for w in (80, 1)))
    same = compare_steps([base], [base])
    assert same.parts["wait"].base_ns == 40.5 * MS
    assert same.parts["wait"].noise_ns == 0
    faster = together(*({"wait": np.full(60, MS), "work": np.full(60, 9 * MS)} for _ in range(2)))
    assert compare_steps([base], [faster]).parts["wait"].beyond_noise


def test_what_ranks_go_through_together_is_noise() -> None:
    """Every second step of the list is another rank's: halves of the list differ as halves of the
    time do."""
    drift = np.repeat([40, 50], 50) * MS
    found = compare_steps([together({"work": drift}, {"work": drift})], [together({"work": drift})])
    assert found.mean.noise_ns == pytest.approx(2**0.5 * 10 * MS)


@pytest.mark.parametrize("late", range(0, 10, 3))
def test_what_recurs_in_a_long_run_is_seen_as_often_as_it_is(late: int) -> None:
    """Every tenth of 200 000 steps logs for 5 ms: half a millisecond of the mean step."""
    plain = np.full(200_000, 100 * MS)
    logging = plain + 5 * MS * (np.arange(200_000) % 10 == late)
    found = compared({"step": plain}, {"step": logging}).mean
    assert found.change_ns == pytest.approx(0.5 * MS)
    assert found.interval_ns == pytest.approx((0.5 * MS, 0.5 * MS), rel=0.01)
    assert found.beyond_noise


@pytest.mark.parametrize(("count", "known"), [(4, []), (5, ["mean", "p50"]), (39, ["mean", "p50"])])
def test_too_few_steps_are_never_beyond_noise(count: int, known: list[str]) -> None:
    base = {"compute": np.full(count, 10 * MS)}
    found = compared(base, {"compute": np.full(count, 20 * MS)})
    for name in ("mean", "p50", "p95"):
        assert getattr(found, name).beyond_noise == (name in known)
        assert (getattr(found, name).noise_ns is not None) == (name in known)
        assert (getattr(found, name).interval_ns is not None) == (name in known)


def test_many_ranks_do_not_make_up_for_few_steps() -> None:
    ranks = [{"work": np.full(3, 10 * MS)} for _ in range(64)]
    assert compare_steps([together(*ranks)], [together(*ranks)]).mean.noise_ns is None


# --- several runs of each program ------------------------------------------------------------


def programs(seed: int, *, slower: float = 1.0, count: int = 5) -> list[list[StepTimes]]:
    """Runs of two programs on a machine that now and then is in a faster state for a whole run."""
    generator = np.random.default_rng(seed)

    def run(length: float) -> StepTimes:
        state = generator.choice([0.9, 1.0], p=[0.1, 0.9]) * generator.normal(1, 0.03)
        work = generator.normal(40 * length * state, 1, 60)
        return StepTimes(parts={"work": (work * MS).astype(np.int64), "wait": np.full(60, 10 * MS)})

    return [[run(length) for _ in range(count)] for length in (1.0, slower)]


def test_the_median_run_stands_for_its_program() -> None:
    base, other = programs(1)
    means = [float(run.wall_ns.mean()) for run in base]
    found = compare_steps(base, other)
    assert found.noise_of == "runs"
    assert means[found.chosen[0]] == np.median(means)
    assert found.mean.base_ns == pytest.approx(np.median(means))
    assert compare_steps(base[:2], other).chosen[0] == int(np.argmin(means[:2]))
    assert sum(part.change_ns for part in found.parts.values()) == pytest.approx(
        found.mean.change_ns
    )
    assert found.parts["wait"].change_ns == 0
    apart = [float(b.wall_ns.mean() - a.wall_ns.mean()) for a in base for b in other]
    assert found.mean.estimate_ns == pytest.approx(np.median(apart))


def test_runs_of_one_program_that_differ_are_noise() -> None:
    """Of one run each, one in five pairs differs by the state of the machine alone."""
    single = repeated = 0
    for seed in range(100):
        base, other = programs(seed)
        found = [compare_steps(base[:1], other[:1]).mean, compare_steps(base, other).mean]
        wrong = [abs(each.change_ns) > 0.05 * each.base_ns and each.beyond_noise for each in found]
        single, repeated = single + wrong[0], repeated + wrong[1]
    assert single >= 10
    assert repeated <= 2


def test_a_slower_program_is_found_among_runs_that_differ() -> None:
    found = [compare_steps(*programs(seed, slower=1.125, count=6)).mean for seed in range(100)]
    assert sum(each.beyond_noise and each.change_ns > 0 for each in found) >= 95


# --- runs recorded in turn -------------------------------------------------------------------


def in_turn(seed: int, *, slower: float = 1.0, count: int = 12) -> list[list[StepTimes]]:
    """Runs of two programs, one after the other, on a machine that is slow half of the time."""
    generator = np.random.default_rng(seed)
    found: list[list[StepTimes]] = [[], []]
    for number in range(2 * count):
        state = 0.25 * np.sin(2 * np.pi * (number / (2 * count) + seed / 7))
        length = (1.0, slower)[number % 2] * np.exp(state + generator.normal(0, 0.03))
        work = (generator.normal(40 * length, 1, 60) * MS).astype(np.int64)
        found[number % 2].append(StepTimes(parts={"work": work}, began_ns=1 + number))
    return found


def began(*moments: int) -> list[StepTimes]:
    return [StepTimes(parts={"work": np.full(9, MS)}, began_ns=each) for each in moments]


def test_runs_are_paired_in_the_order_in_which_they_were_recorded() -> None:
    one, two = began(50, 10, 30, 20, 40), began(21, 51, 41, 11, 31)
    assert recorded_in_turn(one, two) == [(1, 3), (3, 0), (2, 4), (4, 2), (0, 1)]
    either_first = began(*range(1, 11, 4), 16, 12), began(*range(2, 12, 4), 15, 11)
    assert recorded_in_turn(*either_first) == [(0, 0), (1, 1), (2, 2), (4, 4), (3, 3)]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ((1, 2, 3, 4, 5), (6, 7, 8, 9, 10)),  # one program, then the other
        ((1, 3, 5, 7, 9), (2, 4, 6, 8)),  # a run is missing
        ((1, 3, 5, 7), (2, 4, 6, 8)),  # too few
        ((0, 0, 0, 0, 0), (0, 0, 0, 0, 0)),  # who knows when
    ],
)
def test_runs_that_were_not_recorded_in_turn_are_not_paired(
    one: tuple[int, ...], two: tuple[int, ...]
) -> None:
    assert recorded_in_turn(began(*one), began(*two)) is None


def test_when_a_run_began_is_when_its_first_rank_did() -> None:
    step = {"work": np.full(2, MS)}
    late, early = (np.array([at, at + 10]) for at in (9, 7))
    assert StepTimes.of([(late, step), (early, step)]).began_ns == 7


def test_the_pair_nearest_to_all_pairs_stands_for_the_programs() -> None:
    """By brute force: the median over the mean of every two changes, each with itself as well."""
    base, other = in_turn(3, slower=1.1)
    found = compare_steps(base, other)
    assert found.noise_of == "pairs"
    changes = [
        float(two.wall_ns.mean() - one.wall_ns.mean()) for one, two in zip(base, other, strict=True)
    ]
    halves = [(a + b) / 2 for place, a in enumerate(changes) for b in changes[place:]]
    nearest = min(changes, key=lambda change: abs(change - np.median(halves)))
    assert found.mean.change_ns == pytest.approx(nearest)
    assert found.chosen == (changes.index(nearest),) * 2
    assert found.mean.estimate_ns == pytest.approx(np.median(halves))
    low, high = found.mean.interval_ns or (0, 0)
    assert low <= np.median(halves) <= high
    assert found.mean.noise_ns == pytest.approx((high - low) / 2)


def test_a_machine_that_wanders_hides_a_slower_program_only_from_runs_that_are_not_paired() -> None:
    paired = apart = 0
    for seed in range(100):
        base, other = in_turn(seed, slower=1.1)
        found = compare_steps(base, other)
        without = compare_steps(
            *[[replace(run, began_ns=0) for run in runs] for runs in (base, other)]
        )
        assert (found.noise_of, without.noise_of) == ("pairs", "runs")
        paired += found.mean.beyond_noise and found.mean.estimate_ns > 0.05 * found.mean.base_ns
        apart += without.mean.beyond_noise
    assert paired >= 95
    assert apart <= 50


def test_the_same_program_recorded_in_turn_is_noise() -> None:
    """At 90 %, at most one in twenty pairs of identical programs is slower beyond noise."""
    found = [compare_steps(*in_turn(seed)).mean for seed in range(200)]
    assert sum(each.beyond_noise and each.change_ns > 0 for each in found) <= 18
