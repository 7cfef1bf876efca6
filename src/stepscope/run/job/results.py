"""Results of a run that has ended: computed once, then read from its directory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from stepscope import errors, schema, store
from stepscope._version import __version__
from stepscope.entry_points import entry_points

if TYPE_CHECKING:  # what is stored is read without NumPy
    from stepscope.run.model.run import Run

T = TypeVar("T", bound=msgspec.Struct)
SWITCH = "STEPSCOPE_STORED_RESULTS"
"""Environment variable that, set to 0, keeps results from being read and stored."""
MIN_STORED_BYTES = 2_000_000
"""Results of smaller runs are computed in less time than requests to a bucket take."""
RULES_GROUP = "stepscope.rules"
FILE_CLOCK_NS = 20_000_000
"""Time by which the clock of files may be late: it ticks."""
_PACKAGE = Path(__file__).parents[2]


def recall(
    run: Run,
    name: str,
    as_type: type[T],
    make: Callable[[], T],
    *,
    uses_findings: bool = True,
    min_remote_bytes: int = MIN_STORED_BYTES,
) -> T:
    """Return a result of a run as it is stored with it, or make and store it.

    Results are stored of whole runs that have ended and have no damage; in a bucket, of those that
    are large enough. A result that was stored is what was made, encoded and decoded.

    Args:
        run: the run; of a range the result is made.
        name: name of the result.
        as_type: its type.
        make: makes it, of the run alone.
        uses_findings: see `store.Results`.
        min_remote_bytes: minimum size of such a run.
    """
    results = results_of(run, uses_findings=uses_findings)
    if results is None:
        return make()
    stored = results.get(name, as_type)
    if stored is not None:
        return stored
    result = make()
    is_small = results.contents.size_bytes < min_remote_bytes
    if run.reader.damage or (is_small and not run.reader.is_local):
        return result
    encoded = msgspec.json.encode(result)
    try:
        decoded = msgspec.json.decode(encoded, type=as_type)
    except schema.MALFORMED_JSON:  # a payload of another package that cannot be read back
        return result
    results.put(name, encoded)
    return decoded


def results_of(run: Run, *, uses_findings: bool = True) -> store.Results | None:
    """Return the stored results of a whole run; None where it may still change, or by the user's
    choice."""
    open_results = _open_results if uses_findings else _open_results_of_records
    return run.derive(open_results) if run.is_whole else None


def stores_results(run: Run) -> bool:
    """Return True if `recall` stores results of a run, whose computation takes long."""
    results = results_of(run)
    is_large = results is not None and results.contents.size_bytes >= MIN_STORED_BYTES
    is_writable = os.access(run.reader.location, os.W_OK)  # not in a bucket, either
    return is_large and is_writable and not run.reader.damage


def _open_results_of_records(run: Run) -> store.Results | None:
    return _open_results(run, uses_findings=False)


def _open_results(run: Run, *, uses_findings: bool = True) -> store.Results | None:
    statuses = run.reader.statuses().values()
    # Of a node that is lost, each look says for how long it has been silent.
    is_over = all(s.state.is_final for s in statuses) if statuses else bool(run.reader.info.sources)
    results = find_results(run.reader.location, uses_findings=uses_findings) if is_over else None
    if results is None:
        return None
    # The model of a run that was opened while the job went on has ranks and extents of that time.
    return results if results.contents.changed_ns < run.opened_ns - FILE_CLOCK_NS else None


def find_results(location: str, *, uses_findings: bool = True) -> store.Results | None:
    """Open the results at the location of a run without reading the run; None by the user's choice.

    There are none of a run that may still change: its end changes its files.
    """
    if os.environ.get(SWITCH) == "0":
        return None
    if uses_findings and entry_points(RULES_GROUP):  # of others, who may change them
        return None
    try:
        return store.Results(location, RESULTS_MAKER, uses_findings=uses_findings)
    except (OSError, errors.StepscopeError):  # what reads the files reports it
        return None


def _name_maker() -> str:
    """Name the software that makes results: the version, and the digest of an installed package's
    record; of sources that are worked on the time of their last change."""
    record = _PACKAGE.parent / f"stepscope-{__version__}.dist-info" / "RECORD"
    if record.is_file():
        return f"{__version__} of {hashlib.blake2b(record.read_bytes(), digest_size=8).hexdigest()}"
    folders = (os.scandir(directory) for directory, _, _ in os.walk(_PACKAGE))
    files = (file for folder in folders for file in folder if file.is_file())
    times = [f.stat().st_mtime_ns for f in files if f.name.endswith((".py", ".json", ".toml"))]
    return f"{__version__} of {max(times)}"


RESULTS_MAKER = _name_maker()
"""Of the code that runs: sources may change under a server."""
