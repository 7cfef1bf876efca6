"""The runs that a worker keeps open, so that the next question about one is quick."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from stepscope.run import Run
from stepscope.store import RunReader, open_run
from stepscope.views.jobs import JobRow

MOST_OPEN = 3


@dataclass(slots=True)
class _Open:
    revision: int
    reader: RunReader
    run: Run


class OpenRuns:
    """The runs used last."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, _Open] = OrderedDict()
        self.rows: dict[str, tuple[object, JobRow]] = {}
        """Rows of the list of jobs by run, each with what it was made of."""

    def open(self, location: str, revision: int) -> Run:
        """A run as it was at a revision or is since. What was read stays as it was read, so that
        a run that has changed is read anew; its reader keeps what it knows of old segments.

        Raises:
            StepscopeError: as `open_run`.
        """
        held = self._held.pop(location, None)
        if held is None:
            reader = open_run(location)
            held = _Open(revision, reader, Run(reader))
        elif held.revision != revision:
            held.reader.look_again()
            held = _Open(revision, held.reader, Run(held.reader))
        self._held[location] = held
        while len(self._held) > MOST_OPEN:
            self._held.popitem(last=False)
        return held.run
