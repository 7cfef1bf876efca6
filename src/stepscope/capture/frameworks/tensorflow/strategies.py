"""Strategies of `tf.distribute`: their number of replicas, and waits for their batches.

What replicas wait for each other is not recorded: they exchange data inside compiled functions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from stepscope.capture.frameworks.tensorflow import functions, iterators
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch

_probe = Probe("replicas of TensorFlow")


def install() -> None:
    """Patch strategies, and the iterators that give each replica its batch."""
    modules = sys.modules
    distribute = "tensorflow.python.distribute"
    patch(modules[f"{distribute}.distribute_lib"].StrategyBase, "run", _noting_replicas)
    patch(modules[f"{distribute}.input_lib"].DistributedIteratorBase, "get_next", _timed_next)


def _noting_replicas(original: Callable[..., Any]) -> Callable[..., Any]:
    counts: set[int] = set()

    @_probe.protect
    def note_replicas(strategy: Any) -> None:
        count = int(strategy.num_replicas_in_sync)
        if count > 1 and count not in counts:
            counts.add(count)
            _probe.fact("replicas", count=count)

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        note_replicas(self)
        return original(self, *args, **kwargs)

    return run


def _timed_next(original: Callable[..., Any]) -> Callable[..., Any]:
    def get_next(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not functions.is_eager():
            return original(self, *args, **kwargs)
        return iterators.take_whole_batch(lambda: original(self, *args, **kwargs))

    return get_next
