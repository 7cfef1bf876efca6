"""Check of recorded facts against their structs in the schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from stepscope.schema import FACT_TYPES


def check_facts(facts: Iterable[Mapping[str, Any]]) -> None:
    """Assert that each fact of a known kind has exactly the fields of its struct."""
    for fact in facts:
        kind = FACT_TYPES.get(fact["fact"])
        if kind is not None:
            assert msgspec.to_builtins(msgspec.convert(fact, kind)) == fact
