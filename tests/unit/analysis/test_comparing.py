"""Two runs side by side: sums are kept, noise is called noise, changes are found."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.analysis.comparing import compare_names, compare_steps

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
