"""State and smallest result of a compiled function, from the shapes and types of one call."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from jax import Array
from jax.tree_util import DictKey, GetAttrKey, SequenceKey, tree_flatten_with_path, tree_leaves


class CallShape(NamedTuple):
    """Arguments and results of a call of one function."""

    state_bytes: int
    """Bytes of the results that have the shape and type of an argument: parameters, their
    gradients, the state of an optimizer. A function that trains returns most of its arguments."""
    steps: list[Callable[[Any], Any]] | None
    """Steps from the result to its smallest array, preferably one that is no state: an array that
    the next call is given may be donated to it. None without an array that can be found again."""

    def find_result(self, result: Any) -> Array | None:
        """Find the smallest array of a result; None if there is none, or the result has another
        structure."""
        if self.steps is None:
            return None
        try:
            for step in self.steps:
                result = step(result)
        except (AttributeError, LookupError, TypeError):
            return None
        return result if isinstance(result, Array) else None


NOT_DESCRIBED = CallShape(0, None)
"""Of a function that has not returned yet."""


def describe_call(arguments: Any, result: Any) -> CallShape:
    """Describe a call.

    Args:
        arguments: the arguments, which may have been donated.
        result: what it returned.
    """
    inputs = Counter(_key(leaf) for leaf in tree_leaves(arguments) if isinstance(leaf, Array))
    state_bytes = 0
    arrays: list[tuple[bool, int, int, int, list[Callable[[Any], Any]]]] = []
    # Of more arrays of one shape and type than there are arguments, such as a loss and the scalars
    # of an optimizer, those that are nested deepest are the state. The script waits for the loss.
    leaves = sorted(tree_flatten_with_path(result)[0], key=lambda item: -len(item[0]))
    for path, leaf in leaves:
        if not isinstance(leaf, Array):
            continue
        is_state = inputs[_key(leaf)] > 0
        if is_state:
            inputs[_key(leaf)] -= 1
            state_bytes += leaf.nbytes
        steps = [step for key in path if (step := _make_step(key)) is not None]
        is_found = len(steps) == len(path) and CallShape(0, steps).find_result(result) is leaf
        if is_found and hasattr(leaf, "is_ready"):  # random keys cannot tell
            arrays.append((is_state, leaf.nbytes, len(path), len(arrays), steps))
    smallest = min(arrays, default=None)
    return CallShape(state_bytes, None if smallest is None else smallest[-1])


def _key(array: Array) -> tuple[tuple[int, ...], str]:
    return array.shape, str(array.dtype)


def _make_step(key: object) -> Callable[[Any], Any] | None:
    match key:
        case SequenceKey():
            return operator.itemgetter(key.idx)
        case DictKey():
            return operator.itemgetter(key.key)
        case GetAttrKey():
            return operator.attrgetter(key.name)
        case _:  # a container that only its own functions open
            return None
