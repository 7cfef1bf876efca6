"""Every error a user can meet.

    StepscopeError                exit code 2 unless stated
    ├── UsageError                an option, argument or value that cannot be used
    ├── NotARunError              a path that holds no run
    ├── RunExistsError            a path that holds one already
    ├── NewerSchemaError          a run written by a later stepscope
    ├── DamagedRunError           a run whose files contradict their schema
    └── UnreadableTraceError      a file that is no trace, or holds no readable event

A message is one sentence or two: what happened, where, what to do next. Errors are raised
where the context is known and turned into an exit code by `stepscope.cli` alone.
"""

from __future__ import annotations

__all__ = [
    "DamagedRunError",
    "NewerSchemaError",
    "NotARunError",
    "RunExistsError",
    "StepscopeError",
    "UnreadableTraceError",
    "UsageError",
]


class StepscopeError(Exception):
    """Base of all errors that are the user's to read; carries the exit code of the command."""

    exit_code = 2


class UsageError(StepscopeError):
    """An option, argument or value cannot be used."""


class NotARunError(StepscopeError):
    """The path exists or not, but it holds no run."""


class RunExistsError(StepscopeError):
    """A new run was asked for where one already lives."""


class NewerSchemaError(StepscopeError):
    """The run was written with a schema this version does not know."""


class DamagedRunError(StepscopeError):
    """A file of the run cannot be what its name says."""


class UnreadableTraceError(StepscopeError):
    """The file is no trace that can be read."""
