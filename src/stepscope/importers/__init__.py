"""Importers of other tools' files: traces and samples become the tables of `schema`.

Belongs here: one package per format, and the registry that selects the importer of a file. Does
not belong here: the command line (`cli`), analysis of the imported data (`analysis`).
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
