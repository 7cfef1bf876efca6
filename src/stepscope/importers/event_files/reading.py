"""Events of a file up to the first damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stepscope.event_records import DamagedRecordError, MalformedMessageError, read_records
from stepscope.importers.event_files.values import Event, read_event
from stepscope.importers.results import Recorded, Refused, Result
from stepscope.quantities import count_of


class EventFile:
    """Event file, read by iteration."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.value_count = 0
        """Values that the importer has taken over."""
        self.unreadable_count = 0
        """Values that it has left out because they cannot be read."""
        self._record_count = 0
        self._damage: str | None = None

    def events(self) -> Iterator[tuple[Event, int]]:
        """Yield the events and their times in epoch nanoseconds, up to the first damage.

        Raises:
            OSError: the file cannot be read.
        """
        try:
            for payload in read_records(self.path):
                self._record_count += 1
                try:
                    event = read_event(payload)
                except MalformedMessageError:
                    self.unreadable_count += 1
                    continue
                t_ns = event.t_ns
                if t_ns is None:
                    self.unreadable_count += len(event.values)
                else:
                    yield event, t_ns
        except DamagedRecordError as error:
            self._damage = str(error)

    def result(self, form: str) -> Result:
        """Return the result of the import, after iteration."""
        if not self._record_count:
            reason = self._damage or "it is empty"
            return Refused(self.path, f"{self.path} has no events: {reason}.")
        losses = [] if self._damage is None else [self._damage]
        if self.unreadable_count:
            losses.append(f"{count_of(self.unreadable_count, 'value')} could not be read")
        return Recorded(
            name=self.path.name,
            form=form,
            event_count=self.value_count,
            lost=" and ".join(losses) or None,
        )
