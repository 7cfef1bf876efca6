"""Generated parts of the documents.

A document marks them with `<!-- generated: NAME -->` and `<!-- end -->`; `blocks` maps names to the
functions that write them. `make generate` calls `python -m tools.docs`.
"""
