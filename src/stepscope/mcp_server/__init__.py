"""Runs for agents: read-only tools of the Model Context Protocol over standard input and output.

Belongs here: tools, limits of their answers. Does not: figures, which come from `queries` and
`views`. Each row of an answer has an id, which the tool `explain` resolves.

    answers    the tools, as functions that return JSON
    sdk        the tools by the official SDK (extra `mcp`), which is imported there alone
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
