"""Numbers of the optimizers and loaders of a process, which may train several times.

Spans tell optimizers apart by their address, which Python uses again for later ones.
"""

from __future__ import annotations

import time
import weakref

from stepscope.capture.guard import Probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_OBJECTS = 64
"""Limit on the facts about objects of one kind: a script may create one in each step."""


class Objects:
    """Objects of one kind.

    Args:
        kind: the kind, in the facts.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._probe = Probe(f"the {kind}s of the process")
        self._numbers: dict[int, tuple[weakref.ref[Any], int]] = {}
        """By identity."""
        self._count = 0
        self._add = self._probe.protect(self._record)

    def find_number(self, owner: object) -> int:
        """Return the number of an object, from 1; 0 for one without."""
        entry = self._numbers.get(id(owner))
        return entry[1] if entry is not None and entry[0]() is owner else 0

    def note(self, owner: object, name: str, identity: int | None = None) -> None:
        """Record an object at its first use. Never raises.

        Args:
            owner: the object.
            name: its name in spans.
            identity: value of its spans.
        """
        entry = self._numbers.get(id(owner))
        if entry is None or entry[0]() is not owner:
            self._add(owner, name, identity)

    def _record(self, owner: object, name: str, identity: int | None) -> None:
        self._count += 1
        if len(self._numbers) >= MAX_OBJECTS:
            self._numbers.clear()
        self._numbers[id(owner)] = weakref.ref(owner), self._count
        if self._count <= MAX_OBJECTS:
            self._probe.fact(
                "object",
                object=self._kind,
                number=self._count,
                name=name,
                identity=identity,
                t_ns=time.monotonic_ns(),
            )


optimizers = Objects("optimizer")
loaders = Objects("loader")
