"""Other tools' recordings, read into the tables of `schema`.

Belongs here: one file per format, each ending in schema columns. Does not belong here: where
the columns go (`monitor`, `cli`) or what they mean (`analysis`).
"""
