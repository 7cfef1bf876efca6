"""Alignment of call trees, compared with brute force; sums are preserved."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from stepscope.comparison.mean_tree import MeanTree, StepCalls, mean_tree
from stepscope.comparison.sequences import common_subsequence
from stepscope.comparison.tree_alignment import Pair, align, aligned_rows
from stepscope.comparison.whole_parts import whole_parts

Forest = list[tuple[str, "Forest"]]
elements = st.lists(st.integers(0, 3), max_size=9)
trees = st.recursive(
    st.just([]),
    lambda inner: st.lists(st.tuples(st.sampled_from("abc"), inner), max_size=4),
    max_leaves=12,
)


def longest(first: tuple[int | str, ...], second: tuple[int | str, ...]) -> int:
    """Find the length of a longest common subsequence by brute force."""

    @cache
    def at(i: int, j: int) -> int:
        if i == len(first) or j == len(second):
            return 0
        matched = 1 + at(i + 1, j + 1) if first[i] == second[j] else 0
        return max(matched, at(i + 1, j), at(i, j + 1))

    return at(0, 0)


@given(elements, elements)
def test_common_subsequence_is_longest(first: list[int], second: list[int]) -> None:
    pairs = common_subsequence(first, second)
    assert all(first[i] == second[j] for i, j in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(pairs))
    assert len(pairs) == longest(tuple(first), tuple(second))


def test_large_tables_are_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepscope.comparison.sequences.MOST_CELLS", 100)
    first = [*range(60)]
    second = [60, *range(30), *range(31, 60), 61]
    pairs = common_subsequence(first, second)
    assert all(first[i] == second[j] for i, j in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(pairs))
    assert len(pairs) > 30


def tree_of(forest: Forest, seed: int = 0) -> MeanTree:
    """Make a tree of one step with random times."""
    names: list[str] = []
    parents: list[int] = []

    def grow(forest: Forest, parent: int) -> None:
        for name, inner in forest:
            names.append(name)
            parents.append(parent)
            grow(inner, len(names) - 1)

    grow(forest, -1)
    generator = np.random.default_rng(seed)
    times = {part: generator.integers(0, 1000, len(names)).astype(float) for part in ("x", "y")}
    calls = StepCalls(
        name=np.array(["abc".index(name) for name in names], dtype=np.int64),
        names=["a", "b", "c"],
        parent=np.array(parents, dtype=np.int64),
        step=np.zeros(len(names), dtype=np.int64),
        after_ns=np.arange(len(names), dtype=np.int64),
        on_device=np.zeros(len(names), dtype=np.bool_),
        exposed=times,
        busy=times,
    )
    return mean_tree([calls], 1)


@given(trees, trees)
def test_alignment_equals_brute_force(base_forest: Forest, other_forest: Forest) -> None:
    base, changed = tree_of(base_forest), tree_of(other_forest)
    pairs = list(align(base, changed))
    assert sorted(p.base for p in pairs if p.base >= 0) == list(range(len(base)))
    assert sorted(p.other for p in pairs if p.other >= 0) == list(range(len(changed)))
    counterpart = {p.base: p.other for p in pairs if p.base >= 0 and p.other >= 0} | {-1: -1}
    for pair in pairs:
        if pair.fate in {"matched", "reordered"}:
            assert base.name[pair.base] == changed.name[pair.other]
            assert counterpart[base.parent[pair.base]] == changed.parent[pair.other]
        else:
            assert min(pair.base, pair.other) == -1
    for caller, twin in counterpart.items():
        _check_siblings(pairs, base, changed, caller, twin)


def _check_siblings(
    pairs: list[Pair], base: MeanTree, changed: MeanTree, caller: int, twin: int
) -> None:
    base_children, changed_children = base.children[caller], changed.children[twin]
    matched = [p for p in pairs if p.fate == "matched" and p.base in base_children]
    order = sorted((base_children.index(p.base), changed_children.index(p.other)) for p in matched)
    assert [j for _, j in order] == sorted(j for _, j in order)
    names = (
        tuple(base.name[n] for n in base_children),
        tuple(changed.name[n] for n in changed_children),
    )
    assert len(matched) == longest(*names)
    moved = [p for p in pairs if p.fate == "reordered" and p.base in base_children]
    unmatched = [
        Counter(counter_names) - Counter(base.name[p.base] for p in matched)
        for counter_names in names
    ]
    assert len(moved) == (unmatched[0] & unmatched[1]).total()


@given(trees, trees)
def test_rows_sum_to_the_step(base_forest: Forest, other_forest: Forest) -> None:
    base, changed = tree_of(base_forest, 1), tree_of(other_forest, 2)
    rows = aligned_rows(base, changed)
    for part in ("x", "y"):
        part_rows = [row for row in rows if row.part == part]
        assert sum(row.base_ns for row in part_rows) == pytest.approx(base.exposed[part].sum())
        assert sum(row.other_ns for row in part_rows) == pytest.approx(changed.exposed[part].sum())


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=40), st.floats(0.5, 2))
@settings(max_examples=200)
def test_whole_parts_sum_to_the_total(parts: list[float], scale: float) -> None:
    total = round(scale * sum(parts))
    scaled = [part * total / sum(parts) if sum(parts) else 0.0 for part in parts]
    integers = whole_parts(scaled, total)
    assert sum(integers) == total
    assert all(
        abs(w - p) <= 1 + 1e-6 * p for w, p in zip(integers, scaled, strict=True)
    ) or not sum(parts)
