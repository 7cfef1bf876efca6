"""Cache of open runs in a worker, which makes the next request for one of them fast."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from stepscope.run import Run, open_run, reopen_run
from stepscope.schema import SourceFile
from stepscope.views import JobRow

MAX_OPEN_RUNS = 3


@dataclass(slots=True)
class _CachedRun:
    revision: int
    run: Run


class OpenRuns:
    """Least-recently-used cache of open runs."""

    def __init__(self) -> None:
        self._cache: OrderedDict[str, _CachedRun] = OrderedDict()
        self.rows: dict[str, tuple[object, JobRow]] = {}
        """Rows of the list of jobs by run, each with the key of its inputs."""
        self.sources: dict[str, list[SourceFile]] = {}
        """Imported files by run, of the runs in `rows`."""

    def open(self, location: str, revision: int) -> Run:
        """Open a run at this or a later revision. A run of another revision is read again, except
        for its old segments, which its reader keeps.

        Raises:
            StepscopeError: see `stepscope.run.open_run`.
        """
        cached = self._cache.pop(location, None)
        if cached is None:
            cached = _CachedRun(revision, open_run(location))
        elif cached.revision != revision:
            cached = _CachedRun(revision, reopen_run(cached.run))
        self._cache[location] = cached
        while len(self._cache) > MAX_OPEN_RUNS:
            self._cache.popitem(last=False)
        return cached.run
