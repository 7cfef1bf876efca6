"""Call paths: calls grouped by their own key and the keys of all their callers.

A path is a key and the path of the caller, so two calls share a path if their keys agree and
those of all their callers do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.columns import Columns, Strings
from stepscope.analysis.grouping import group_rows
from stepscope.analysis.operator_tree import find_rows
from stepscope.intervals import Int, depths, subtree_sums


@dataclass(frozen=True, slots=True, eq=False)
class CallPaths:
    """Paths of a forest of calls; a path follows the path of its caller."""

    of_call: Int
    """Path of each call."""
    parent: Int
    """Path of the caller of each path, -1 for none."""
    first: Int
    """First call of each path."""
    depth: Int
    """Number of callers of each path."""

    def __len__(self) -> int:
        return len(self.parent)

    def totals(self, values: Int) -> Int:
        """Sum of values over each path and all paths below it."""
        return subtree_sums(values, self.parent, self.depth)


def find_paths(parent: Int, *keys: NDArray[Any]) -> CallPaths:
    """Group calls by path.

    Args:
        parent: row of the caller of each call, -1 for none.
        keys: integers that distinguish calls of one caller.
    """
    depth = depths(parent)
    by_depth = np.argsort(depth, kind="stable")
    levels = np.split(by_depth, np.flatnonzero(np.diff(depth[by_depth])) + 1)
    of_call = np.append(np.empty(len(parent), dtype=np.int64), -1)  # last entry: for parent -1
    parents, firsts, count = [], [], 0
    for rows in levels if len(parent) else []:
        groups = group_rows(of_call[parent[rows]], *(key[rows] for key in keys))
        of_call[rows] = groups.group + count
        first = rows[groups.first]
        parents.append(of_call[parent[first]])
        firsts.append(first)
        count += len(groups)
    empty = np.empty(0, dtype=np.int64)
    first = np.concatenate(firsts) if firsts else empty
    return CallPaths(
        of_call=of_call[:-1],
        parent=np.concatenate(parents) if parents else empty,
        first=first,
        depth=depth[first],
    )


@dataclass(frozen=True, slots=True, eq=False)
class RowLabels:
    """Text labels of rows: a code per row (-1 for none) and the text of a code."""

    codes: NDArray[Any]
    text: Callable[[int], str | None]


def make_string_labels(strings: Strings) -> RowLabels:
    """Make labels from a column of strings."""
    return RowLabels(strings.codes, lambda code: strings.values[code] if code >= 0 else None)


STACK_COLUMNS = ("id", "name", "parent")
"""Columns of `python_functions` that `make_stack_labels` reads."""


def make_stack_labels(functions: Columns, called_from: Int) -> RowLabels:
    """Make labels from Python stacks: frames joined by ';', innermost first.

    Args:
        functions: `STACK_COLUMNS` of the table.
        called_from: id of the innermost Python function of each row to label.
    """
    names: Strings = functions["name"]
    paths = find_paths(find_rows(functions["id"], functions["parent"]), names.codes)
    of_function = np.append(paths.of_call, -1)  # row -1 is the appended one

    def text(path: int) -> str | None:
        frames = []
        while path >= 0:
            frames.append(names.values[names.codes[paths.first[path]]] or "")
            path = int(paths.parent[path])
        return ";".join(frames) or None

    return RowLabels(of_function[find_rows(functions["id"], called_from)], text)
