"""Errors that users see.

    StepscopeError                exit code 2 unless stated
    ├── UsageError                an unusable option, argument or value
    ├── NotARunError              a path that is not a run
    ├── RunExistsError            a path that already holds a run
    ├── NewerSchemaError          a run written by a later version of stepscope
    ├── DamagedRunError           a run with invalid files
    ├── UnreadableTraceError      a file that is not a trace, or has no readable event
    ├── TrialError                a trial of a change without a result
    ├── JobEndedError             a wait for data of a job that has ended without it
    ├── WaitTimeoutError          a wait that took too long
    └── IncompleteExportError     an export that lacks events of its trace

A message has one or two sentences: what happened, where, what to do next. Errors are raised where
the context is known; only `stepscope.cli` turns them into an exit code.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` would slow down the start of a script
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "DamagedRunError",
    "IncompleteExportError",
    "JobEndedError",
    "NewerSchemaError",
    "NotARunError",
    "RunExistsError",
    "StepscopeError",
    "TrialError",
    "UnreadableTraceError",
    "UsageError",
    "WaitTimeoutError",
    "explain_os_error",
    "name_similar",
]


def explain_os_error(error: Exception) -> str:
    """Return the file, if any, and the reason, as in a message of the shell; the text of another
    error.

    >>> explain_os_error(FileNotFoundError(2, "No such file or directory", "train.py"))
    'train.py: No such file or directory'
    """
    if not isinstance(error, OSError):
        return str(error)
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def name_similar(word: str, names: Iterable[str]) -> str:
    """Return a sentence with the name that was probably meant, with a leading space; '' if
    none is similar.

    >>> name_similar("steps-", ["steps", "system"])
    ' Did you mean steps?'
    """
    from difflib import get_close_matches

    by_folded = {name.casefold(): name for name in names}
    similar = get_close_matches(word.casefold(), by_folded, n=1)
    return f" Did you mean {by_folded[similar[0]]}?" if similar else ""


class StepscopeError(Exception):
    """Base class of errors that are shown to the user; carries the exit code of the command."""

    exit_code = 2


class UsageError(StepscopeError):
    """Unusable option, argument or value."""


class NotARunError(StepscopeError):
    """Path that is not a run, existing or not."""


class RunExistsError(StepscopeError):
    """Attempt to create a run where one exists."""


class NewerSchemaError(StepscopeError):
    """Run written with a schema that this version cannot read."""


class DamagedRunError(StepscopeError):
    """Run with an invalid file."""


class UnreadableTraceError(StepscopeError):
    """File that is not a readable trace."""


class IncompleteExportError(StepscopeError):
    """Export that does not hold every event of a trace exactly once."""


class TrialError(StepscopeError):
    """Trial of a change without a result."""


class JobEndedError(StepscopeError):
    """Wait for data of a job that has ended without it."""


class WaitTimeoutError(StepscopeError):
    """Wait for a job that took too long."""
