"""Content of a run: every table, column, unit and manifest, declared once.

Belongs here: names, types, units, one-sentence meanings, labels of payload fields, display hints,
JSON schemas, the schema version. Does not: reading, writing, computation, formatting.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
