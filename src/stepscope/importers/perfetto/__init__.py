"""Traces of Perfetto: tracks, slices, counters and flows of track events.

    packets       file -> events as numbers, texts, tracks and clocks
    chrome_form   events in the form of Chrome, with begins and ends of slices paired
    importer      tables, by the importer of that form

Format: https://perfetto.dev/docs/reference/trace-packet-proto. Packets of other kinds, such as
those of the kernel's scheduler, are skipped.
"""

from __future__ import annotations

from stepscope.importers.perfetto.importer import PerfettoImporter

__all__ = ["PerfettoImporter"]
