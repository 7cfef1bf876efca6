"""Algebra of intervals: nesting, self time, unions, overlaps.

Intervals are two int64 arrays of equal length, half-open, in nanoseconds.

    sets       unions, gaps, overlaps
    nesting    which interval contains which, in compiled code (`_nesting`) where it was built;
               rows of a picture
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
