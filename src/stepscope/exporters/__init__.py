"""Recordings of a run, written in the formats of other tools.

Belongs here: one file per format, from the tables of `schema` to a file, in pieces of bounded
size. Does not belong here: computing (`analysis`), choosing recordings or talking (`cli`).
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
