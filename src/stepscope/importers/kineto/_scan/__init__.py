"""Compiled scanner of trace events: the fast way from text to columns, where it could be built.

    scan.c     text of a block → rows of numbers, one per event that the scanner understands
    binding    rows → columns, by `schema.EVENT_KINDS`; the library and its absence

Everything else, from single events to whole blocks, is left to `decode`, which defines the result.
"""

from __future__ import annotations

from stepscope.importers.kineto._scan.binding import (
    LIBRARY,
    SCANNER_VARIABLE,
    ScannedBlock,
    Scanner,
    load_scanner,
    scanner_state,
)

__all__ = [
    "LIBRARY",
    "SCANNER_VARIABLE",
    "ScannedBlock",
    "Scanner",
    "load_scanner",
    "scanner_state",
]
