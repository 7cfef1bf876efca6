"""Runs in directories and object stores: the only package that reads or writes one.

Belongs here: file names, atomic and durable writes, merging of segments, reads of a growing run,
damage, older schema versions, local copies of remote objects. Does not: the meaning of columns
(`schema`), conclusions from them (`analysis`), the source of the numbers (`monitor`, `importers`).

Layers: `objectstore` (protocol) < `local`, `remote` (implementations) < `location` (factory) <
`engine`, `queries` < `reader`, `writer`. `documents` and `launchers` are the small JSON files of a
run, `mirror` and its journal the upload of a growing one; `parquet_files` reads those of others.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
