"""Options that several commands share.

Belongs here: declarations, parsing and checks of values. Does not: what a command does with them.
"""
