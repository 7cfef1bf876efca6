"""Kernels of collectives in the traces of a run, by two definitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from stepscope.analysis import (
    CommunicationDefinition,
    is_collective_operator,
    is_communication,
    is_narrow_communication,
    may_communicate,
)
from stepscope.store import RunReader


@dataclass(frozen=True)
class CollectiveKernels:
    """Names of the kernels of collectives in a run."""

    reader: RunReader
    launched_names: frozenset[str] | None = None
    """`launched_by_collectives`, where another process has read them."""

    def predicate(self, definition: CommunicationDefinition) -> Callable[[str], bool]:
        """Return the function that is true for the name of a kernel of a collective."""
        if definition == "narrow":
            return is_narrow_communication
        launched = self.launched_by_collectives
        return lambda name: name in launched or is_communication(name)

    @cached_property
    def launched_by_collectives(self) -> frozenset[str]:
        """Names of kernels that operators of collectives launched themselves."""
        if self.launched_names is not None:
            return self.launched_names
        operators = self.reader.sql("SELECT DISTINCT name FROM operators WHERE name IS NOT NULL")
        names = sorted(filter(is_collective_operator, operators["name"].tolist()))
        if not names:
            return frozenset()
        kernels = self.reader.sql(
            "SELECT DISTINCT kernels.name FROM kernels JOIN operators ON "
            "kernels.trace = operators.trace AND kernels.operator = operators.id "
            "WHERE operators.name IN (SELECT unnest(?))",
            [names],
        )
        return frozenset(filter(may_communicate, kernels["name"].tolist()))
