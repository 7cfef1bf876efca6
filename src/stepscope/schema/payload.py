"""Base of the payloads of views."""

from __future__ import annotations

import msgspec


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of a view."""

    damage: list[str] = msgspec.field(default_factory=list)
    """Consequences of files that cannot be read, and these files; empty if the payload depends on
    none of them."""
    recording_end: str | None = None
    """Which data of the payload were not recorded to the end of the job, or still have to be
    recovered from the spool; null if the payload has all of them."""
    rounding: str | None = None
    """Which records behind the payload were rounded to limit the size of the run; null for none."""
