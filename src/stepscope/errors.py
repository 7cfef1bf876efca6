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
    from typing import Any

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
    """Base class of errors that are shown to the user; carries the exit code of the command.

    As itself, an error of a running job: its monitor does not answer or has failed. See if the job
    runs with `stepscope watch RUN`; if it was killed, `stepscope recover RUN` stores the rest.
    """

    exit_code = 2


class UsageError(StepscopeError):
    """Unusable option, argument or value.

    Change what the message names; it lists what is accepted, as does `--help` of the command.
    """


class NotARunError(StepscopeError):
    """Path that is not a run, existing or not.

    Pass the directory that `stepscope run` named at the end of the job, or the URL of its copy.
    """


class RunExistsError(StepscopeError):
    """Attempt to create a run where one exists.

    Runs are not overwritten: pass a new directory or URL, or delete the run.
    """


class NewerSchemaError(StepscopeError):
    """Run written with a schema that this version cannot read.

    Install that version of stepscope or a later one: it reads older runs as well.
    """


class DamagedRunError(StepscopeError):
    """Run with an invalid file.

    Something other than stepscope has changed the file, or its disk is faulty. Copy the run again
    from where it was recorded.
    """


class UnreadableTraceError(StepscopeError):
    """File that is not a readable trace.

    Check that its recorder has finished writing it, and that it was transferred as a whole.
    """


class IncompleteExportError(StepscopeError):
    """Export that does not hold every event of a trace exactly once.

    A defect in stepscope: no file is left, and the run is unchanged. Please report it.
    """


class TrialError(StepscopeError):
    """Trial of a change without a result.

    Only the trial has failed: the run is unchanged. Where the message has output of the job,
    correct what it complains about, and see with `stepscope run -- CMD` if the job runs here.
    """


class TrialTimeoutError(TrialError):
    """Trial that did not reach its last step in time.

    Pairs of trials that had finished are the result, if they are enough for one. Try again where
    nothing else uses the machine, or measure fewer steps with `--steps`.
    """


class JobEndedError(StepscopeError):
    """Wait for data of a job that has ended without it.

    The run is complete: read what it holds, or record the data in another run of the job.
    """


class WaitTimeoutError(StepscopeError):
    """Wait for a job that took too long.

    Pass a longer `timeout_s`, or see with `stepscope watch RUN` what the job does.
    """


def require(module: str, *, extra: str, alternative: str = "") -> Any:
    """Import a library.

    Args:
        module: its name, or that of a part of it.
        extra: extra of stepscope that installs it.
        alternative: a command or option that works without it, for the error message.

    Raises:
        UsageError: the library is not installed; the message has the install command.
    """
    import importlib  # seldom needed, and slow in every process of a job

    try:
        return importlib.import_module(module)
    except ImportError:
        library = module.partition(".")[0]
        hint = f"{library} is not installed: pip install 'stepscope[{extra}]'"
        raise UsageError(f"{hint}, or {alternative}." if alternative else f"{hint}.") from None
