"""Two runs side by side: sums are kept, noise is called noise, changes are found."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.analysis.comparing import compare_names, compare_steps, noise_floor

MS = 1_000_000


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
    found = compare_steps(base, other)
    assert sum(part.change_ns for part in found.parts.values()) == pytest.approx(
        found.mean.change_ns
    )
    wall = sum(base.values())
    assert found.mean.base_ns == pytest.approx(wall.mean())
    assert found.p50.base_ns == pytest.approx(np.median(wall))
    assert found.p95.base_ns == pytest.approx(np.percentile(wall, 95))
    assert found.parts["save"].base_ns == 0
    assert found.parts["wait"].beyond_noise
    assert found.mean.low_ns <= found.mean.change_ns <= found.mean.high_ns


def test_the_same_program_again_is_noise() -> None:
    """At 95 %, some of the pairs may be called different by chance."""
    wrong = sum(compare_steps(drawn(2 * i), drawn(2 * i + 1)).mean.beyond_noise for i in range(40))
    assert wrong <= 6


def test_ten_per_cent_are_found() -> None:
    found = [compare_steps(drawn(2 * i), drawn(2 * i + 1, wait=28)).mean for i in range(20)]
    assert sum(each.beyond_noise and each.change_ns > 0 for each in found) >= 19


def test_long_runs_are_thinned() -> None:
    found = compare_steps(drawn(1, count=50_000), drawn(2, wait=21, count=50_000))
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
    found = [compare_steps(wandering(2 * i), wandering(2 * i + 1)) for i in range(100)]
    for figure in ("mean", "p50", "p95"):
        assert sum(getattr(each, figure).beyond_noise for each in found) <= 5
    without_floor = sum(not each.mean.low_ns <= 0 <= each.mean.high_ns for each in found)
    assert without_floor > 5


def test_ten_per_cent_are_found_on_a_machine_that_drifts() -> None:
    pairs = ((2 * i, 2 * i + 1) for i in range(60))
    found = [compare_steps(wandering(a), wandering(b, slower=1.1)) for a, b in pairs]
    # The 95th percentile rests on a twentieth of the steps.
    for figure, least in (("mean", 57), ("p50", 57), ("p95", 51)):
        changes = [getattr(each, figure) for each in found]
        assert sum(each.beyond_noise and each.change_ns > 0 for each in changes) >= least


def test_the_noise_floor_is_what_halves_differ_by() -> None:
    """A run that jumps in its middle differs from itself by the jump."""
    jumps = np.repeat([40.0, 50.0], 50)[:, None] * MS
    assert noise_floor(jumps)[:2] == pytest.approx([2**0.5 * 10 * MS] * 2)
    assert noise_floor(np.full((9, 2), 5.0)).tolist() == [0.0] * 5
    assert noise_floor(np.full((1, 2), 5.0)).tolist() == [0.0] * 5


def test_a_change_within_the_noise_floor_is_none() -> None:
    """Each half is steady, so that the interval is narrow; but the run moved by as much itself."""
    base = {"compute": np.repeat([40, 50], 100) * MS}
    found = compare_steps(base, {"compute": np.repeat([50, 52], 100) * MS})
    assert found.mean.low_ns > 0
    assert found.mean.noise_ns == pytest.approx(2**0.5 * 10 * MS)
    assert not found.mean.beyond_noise


@pytest.mark.parametrize(("count", "known"), [(4, []), (5, ["mean", "p50"]), (39, ["mean", "p50"])])
def test_too_few_steps_are_never_beyond_noise(count: int, known: list[str]) -> None:
    base = {"compute": np.full(count, 10 * MS)}
    found = compare_steps(base, {"compute": np.full(count, 20 * MS)})
    for name in ("mean", "p50", "p95"):
        assert getattr(found, name).beyond_noise == (name in known)
        assert (getattr(found, name).noise_ns is not None) == (name in known)
