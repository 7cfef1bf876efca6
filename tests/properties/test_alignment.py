"""Alignment of call trees, compared with brute force; no call and no time is lost."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from stepscope.comparison.contributions import apportion
from stepscope.comparison.mean_step import MeanTree, StepCalls, build_mean_tree
from stepscope.comparison.tree_alignment import (
    NodePair,
    align_rows,
    align_trees,
    find_common_subsequence,
)

Forest = list[tuple[str, "Forest"]]
elements = st.lists(st.integers(0, 3), max_size=9)
trees = st.recursive(
    st.just([]),
    lambda inner: st.lists(st.tuples(st.sampled_from("abc"), inner), max_size=4),
    max_leaves=12,
)


def compute_lcs_length(base: tuple[int | str, ...], candidate: tuple[int | str, ...]) -> int:
    """Compute the length of a longest common subsequence by recursion."""

    @cache
    def compute(i: int, j: int) -> int:
        if i == len(base) or j == len(candidate):
            return 0
        matched = 1 + compute(i + 1, j + 1) if base[i] == candidate[j] else 0
        return max(matched, compute(i + 1, j), compute(i, j + 1))

    return compute(0, 0)


@given(elements, elements)
def test_a_longest_common_subsequence(base: list[int], candidate: list[int]) -> None:
    pairs = find_common_subsequence(base, candidate)
    assert all(base[i] == candidate[j] for i, j in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(pairs))
    assert len(pairs) == compute_lcs_length(tuple(base), tuple(candidate))


def test_large_tables_are_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepscope.comparison.tree_alignment.MAX_CELLS", 100)
    base = [*range(60)]
    candidate = [60, *range(30), *range(31, 60), 61]
    pairs = find_common_subsequence(base, candidate)
    assert all(base[i] == candidate[j] for i, j in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(pairs))
    assert len(pairs) > 30


def build_tree(forest: Forest, seed: int = 0) -> MeanTree:
    """Build a tree of one step with random times."""
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
    return build_mean_tree([calls], 1)


@given(trees, trees)
def test_alignment_agrees_with_brute_force(base_forest: Forest, other_forest: Forest) -> None:
    base, candidate = build_tree(base_forest), build_tree(other_forest)
    pairs = list(align_trees(base, candidate))
    assert sorted(p.base_node for p in pairs if p.base_node >= 0) == list(range(len(base)))
    assert sorted(p.other_node for p in pairs if p.other_node >= 0) == list(range(len(candidate)))
    counterparts = {p.base_node: p.other_node for p in pairs if p.is_two_sided} | {-1: -1}
    for pair in pairs:
        if pair.is_two_sided:
            assert base.name[pair.base_node] == candidate.name[pair.other_node]
            parent = counterparts[base.parent[pair.base_node]]
            assert parent == candidate.parent[pair.other_node]
        else:
            assert min(pair.base_node, pair.other_node) == -1
    for caller, counterpart in counterparts.items():
        check_siblings(pairs, base, candidate, caller, counterpart)


def check_siblings(
    pairs: list[NodePair], base: MeanTree, candidate: MeanTree, caller: int, counterpart: int
) -> None:
    base_nodes, other_nodes = base.children[caller], candidate.children[counterpart]
    matched = [p for p in pairs if p.match == "matched" and p.base_node in base_nodes]
    order = sorted(
        (base_nodes.index(p.base_node), other_nodes.index(p.other_node)) for p in matched
    )
    assert [j for _, j in order] == sorted(j for _, j in order)
    base_names = tuple(base.name[node] for node in base_nodes)
    other_names = tuple(candidate.name[node] for node in other_nodes)
    assert len(matched) == compute_lcs_length(base_names, other_names)
    reordered = [p for p in pairs if p.match == "reordered" and p.base_node in base_nodes]
    matched_names = Counter(base.name[p.base_node] for p in matched)
    unmatched = [Counter(names) - matched_names for names in (base_names, other_names)]
    assert len(reordered) == (unmatched[0] & unmatched[1]).total()


@given(trees, trees)
def test_rows_sum_to_the_step(base_forest: Forest, other_forest: Forest) -> None:
    base, candidate = build_tree(base_forest, 1), build_tree(other_forest, 2)
    rows = align_rows(base, candidate)
    for part in ("x", "y"):
        part_rows = [row for row in rows if row.part == part]
        assert sum(row.base_ns for row in part_rows) == pytest.approx(base.exposed[part].sum())
        other_ns = candidate.exposed[part].sum()
        assert sum(row.other_ns for row in part_rows) == pytest.approx(other_ns)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=40), st.floats(0.5, 2))
@settings(max_examples=200)
def test_apportioned_parts_sum_to_the_total(parts: list[float], scale: float) -> None:
    total = round(scale * sum(parts))
    scaled = [part * total / sum(parts) if sum(parts) else 0.0 for part in parts]
    integers = apportion(scaled, total)
    assert sum(integers) == total
    if sum(parts):
        pairs = zip(integers, scaled, strict=True)
        assert all(abs(integer - part) <= 1 + 1e-6 * part for integer, part in pairs)
