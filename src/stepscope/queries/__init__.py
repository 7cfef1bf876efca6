"""Questions to a run in the words of a program: SQL, and the origin of a number.

Belongs here: what the command line, the page and the server for agents answer alike, within limits
of rows, time and memory. Does not: figures (`views`, `diagnosis`), talking (`cli`).

    sql        SELECT over the tables and views of a run
    ids        ids of the rows in payloads
    sources    payloads that ids begin with
    evidence   the number that an id names, and what reproduces it
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
