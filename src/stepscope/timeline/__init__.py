"""Timeline of a run: windows of tracks at the detail that a picture can show.

window    slices, curves and sums of tracks within a range of time
tracks    tracks and their ids; steps to jump to
blocks    blocks of trace events, and levels of detail
content   events of a track
trace, spans, counters
          kinds of tracks
event     details of one event
search    events by part of their name
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
