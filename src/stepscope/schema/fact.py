"""Base class of the facts that a process records."""

from __future__ import annotations

import msgspec


class Fact(msgspec.Struct, frozen=True, kw_only=True, tag_field="fact"):
    """Base class of facts; the value of `fact` is the tag of the subclass."""
