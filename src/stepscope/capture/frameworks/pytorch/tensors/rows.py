"""Rows of statistics on their way from the device to the spool.

Statistics of host tensors are known at once. Those of device tensors are copied to pinned memory
without waiting, and written at a later step, when the device has got so far.
"""

from __future__ import annotations

import ctypes
import json
import time
from array import array
from collections import deque
from itertools import chain
from typing import Any, NamedTuple

import torch

from stepscope.capture import session
from stepscope.capture.frameworks.pytorch.tensors.statistics import COLUMNS, describe
from stepscope.spool import POWER_BINS, Kind, RowLog

MAX_PENDING = 64
"""Moments whose statistics may wait for the device; a later one is dropped."""
MAX_WAIT_S = 2.0
POLL_S = 0.01
_TENSOR_NAME_SHIFT = 32


class Moment:
    """Rows of the tensors of one device at one time."""

    def __init__(self, *, step: int, mode: str, t_ns: int) -> None:
        self.fields = {"t_ns": t_ns, "step": step, "mode": mode}
        self.tensors: list[int] = []
        """Numbers of the names of the tensors."""
        self.values: list[Any] = []
        """Of each tensor, the values of `COLUMNS` as a list, or as a tensor on the device."""
        self.histograms: list[torch.Tensor] = []

    def add(self, tensor: int, values: Any, histogram: torch.Tensor | None) -> None:
        """Add the statistics of one tensor."""
        self.tensors.append(tensor)
        self.values.append(values)
        if histogram is not None:
            self.histograms.append(histogram)


class _Copy(NamedTuple):
    """Statistics on their way to the host."""

    moment: Moment
    event: Any
    values: torch.Tensor
    histograms: torch.Tensor | None


class RowWriter:
    """Writer of moments into the spool of this process."""

    def __init__(self) -> None:
        self._session: session.Session | None = None
        self._log: RowLog | None = None
        self._names: dict[tuple[str, str, torch.Size, torch.dtype], int] = {}
        self._copies: deque[_Copy] = deque()

    def name(self, name: str, collection: str, tensor: torch.Tensor) -> int:
        """Return the number of the name of a tensor in this session; 0 without a session."""
        current = session.current()
        if current is None:
            return 0
        if current is not self._session:  # the first row, or that of a forked child
            self._session, self._log = current, current.new_row_log()
            self._names, self._copies = {}, deque()
        key = name, collection, tensor.shape, tensor.dtype
        number = self._names.get(key)
        if number is None:
            labels = json.dumps({"collection": collection, **describe(tensor)})
            number = current.meta((Kind.TENSOR, name, labels)) >> _TENSOR_NAME_SHIFT
            if number:  # else the name could not be journalled this time
                self._names[key] = number
        return number

    def write(self, moment: Moment) -> None:
        """Write the rows of a moment as soon as they are on the host. Never waits."""
        if not moment.tensors:
            return
        if isinstance(moment.values[0], list):
            content = array("d", chain.from_iterable(moment.values)).tobytes()
            histograms = torch.stack(moment.histograms) if moment.histograms else None
            self._store(moment, content, histograms)
        elif len(self._copies) < MAX_PENDING:
            values = torch.stack(moment.values)
            histograms = torch.stack(moment.histograms) if moment.histograms else None
            copies = _start_copy(values), None if histograms is None else _start_copy(histograms)
            event = torch.Event(values.device)
            event.record()
            self._copies.append(_Copy(moment, event, *copies))
        elif self._log is not None:
            self._log.drop(len(moment.tensors))

    def poll(self) -> None:
        """Store the rows that have arrived on the host. Never waits."""
        while self._copies and self._copies[0].event.query():
            copy = self._copies.popleft()
            self._store(copy.moment, _read(copy.values), copy.histograms)

    def finish(self) -> None:
        """Store the other rows as well, because the process ends; those that have not arrived after
        two seconds are dropped: the device may wait for a process that has failed."""
        until_s = time.monotonic() + MAX_WAIT_S
        while self._copies and time.monotonic() < until_s:
            self.poll()
            time.sleep(POLL_S)
        if self._log is not None:
            self._log.drop(sum(len(copy.moment.tensors) for copy in self._copies))

    def _store(self, moment: Moment, values: bytes, histograms: torch.Tensor | None) -> None:
        if self._log is None or self._session is not session.current():
            return
        columns = [
            ("tensor", "q", 1, array("q", moment.tensors).tobytes()),
            ("statistics", "d", len(COLUMNS), values),
        ]
        if histograms is not None:
            columns.append(("powers", "i", POWER_BINS, _read(histograms.int())))
        self._log.write(len(moment.tensors), columns, statistics=COLUMNS, **moment.fields)


def _start_copy(tensor: torch.Tensor) -> torch.Tensor:
    host = torch.empty_like(tensor, device="cpu", pin_memory=tensor.device.type == "cuda")
    return host.copy_(tensor, non_blocking=True)


def _read(tensor: torch.Tensor) -> bytes:
    tensor = tensor.contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.nbytes)
