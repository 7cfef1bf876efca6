"""Calls that were reached the same way: paths through a forest of calls.

A path is a key and the path of the caller, so two calls have the same path when their keys agree
and those of all their callers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.columns import Columns, Strings
from stepscope.analysis.grouping import group_rows
from stepscope.analysis.operator_tree import rows_of
from stepscope.intervals import Int, depths, subtree_sums


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """The paths of some calls; a path comes after that of its caller."""

    of_call: Int
    parent: Int
    """Of each path the caller's, -1 for none."""
    first: Int
    """Of each path one call that has it, the first."""
    depth: Int

    def __len__(self) -> int:
        return len(self.parent)

    def totals(self, values: Int) -> Int:
        """Values of each path with all paths below it."""
        return subtree_sums(values, self.parent, self.depth)


def find_paths(parent: Int, *keys: NDArray[Any]) -> Paths:
    """The paths of calls.

    Args:
        parent: row of the caller of each call, -1 for none.
        keys: integers that tell calls of one caller apart.
    """
    depth = depths(parent)
    by_depth = np.argsort(depth, kind="stable")
    levels = np.split(by_depth, np.flatnonzero(np.diff(depth[by_depth])) + 1)
    of_call = np.append(np.empty(len(parent), dtype=np.int64), -1)  # the last serves parent -1
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
    return Paths(
        of_call=of_call[:-1],
        parent=np.concatenate(parents) if parents else empty,
        first=first,
        depth=depth[first],
    )


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """A property of rows: a code each, -1 for none, and what a code means."""

    codes: NDArray[Any]
    text: Callable[[int], str | None]


def string_labels(strings: Strings) -> Labels:
    """The strings of a column."""
    return Labels(strings.codes, lambda code: strings.values[code] if code >= 0 else None)


STACK_COLUMNS = ("id", "name", "parent")
"""What `stack_labels` needs of the table `python_functions`."""


def stack_labels(functions: Columns, called_from: Int) -> Labels:
    """Python stacks, innermost first, joined by ';'.

    Args:
        functions: `STACK_COLUMNS` of the table.
        called_from: of each row that wants a stack, the id of its innermost Python function.
    """
    names: Strings = functions["name"]
    paths = find_paths(rows_of(functions["id"], functions["parent"]), names.codes)
    of_function = np.append(paths.of_call, -1)  # row -1 is the one appended

    def text(path: int) -> str | None:
        frames = []
        while path >= 0:
            frames.append(names.values[names.codes[paths.first[path]]] or "")
            path = int(paths.parent[path])
        return ";".join(frames) or None

    return Labels(of_function[rows_of(functions["id"], called_from)], text)
