"""Statistics and elements of tensors on their way from the device to the spool.

Statistics of host tensors are known at once. Those of device tensors are copied to pinned memory
without waiting, and written at a later step, when the device has got so far.

Elements of tensors, on request: option `--tensors-raw`. A tensor of the host is written at once,
one of a device when its copy has arrived. The processes of a job share a limit; a tensor that
exceeds it is left out from then on, and named in the run.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
from array import array
from collections.abc import Iterable
from itertools import chain
from typing import Any, NamedTuple

import torch

from stepscope.capture import session
from stepscope.capture.frameworks.pytorch.patching import count_bytes
from stepscope.capture.frameworks.pytorch.tensors.host_copies import HostCopies
from stepscope.capture.frameworks.pytorch.tensors.shards import Joined, Part, ShardGroup
from stepscope.capture.frameworks.pytorch.tensors.statistics import COLUMNS, describe
from stepscope.spool import POWER_BINS, TENSOR_ELEMENTS, ElementBudget, Kind, RowLog, TensorPlan

MAX_PENDING = 64
"""Moments whose statistics may wait for the device; a later one is dropped."""
MAX_FILE_BYTES = 1 << 20
"""Of many tensors, as many are recorded as the spool has room for."""
MAX_NAMED = 5
"""Tensors without room that a note names."""
_TENSOR_NAME_SHIFT = 32


class Moment:
    """Rows of the tensors of one device at one time.

    Args:
        step: number of steps of the process before this one.
        mode: TRAIN or EVAL.
        t_ns: monotonic time.
        shards: joins the rows with those of other ranks; None for rows of entire tensors, and of
            shards that are recorded as they are.
    """

    def __init__(
        self, *, step: int, mode: str, t_ns: int, shards: ShardGroup | None = None
    ) -> None:
        self.step = step
        self.shards = shards
        self.fields = {"t_ns": t_ns, "step": step, "mode": mode}
        self.tensors: list[int] = []
        """Numbers of the names of the tensors."""
        self.identities: list[str] = []
        """Names and shapes of the tensors, if their shards are joined."""
        self.values: list[Any] = []
        """Of each tensor, the values of `COLUMNS` as a list, or as a tensor on the device."""
        self.histograms: list[torch.Tensor] = []

    def add(self, tensor: int, values: Any, histogram: torch.Tensor | None) -> None:
        """Add the statistics of one tensor."""
        self.tensors.append(tensor)
        self.values.append(values)
        if histogram is not None:
            self.histograms.append(histogram)


class RowWriter:
    """Writer of moments into the spool of this process."""

    def __init__(self) -> None:
        self._session: session.Session | None = None
        self._log: RowLog | None = None
        self._names: dict[tuple[str, str, torch.Size, torch.dtype], int] = {}
        self._texts: dict[int, str] = {}
        """Names by their number."""
        self._has_room = True
        self._copies: HostCopies[Moment] = HostCopies()

    def name(self, name: str, collection: str, tensor: torch.Tensor) -> int:
        """Return the number of the name of a tensor in this session; 0 without a session."""
        current = session.current()
        if current is None:
            return 0
        if current is not self._session:  # the first row, or that of a forked child
            self._session, self._log = current, current.row_log
            self._names, self._texts, self._copies = {}, {}, HostCopies()
        key = name, collection, tensor.shape, tensor.dtype
        number = self._names.get(key)
        if number is None:
            labels = json.dumps({"collection": collection, **describe(tensor)})
            number = current.meta((Kind.TENSOR, name, labels)) >> _TENSOR_NAME_SHIFT
            if number:  # else the name could not be journalled this time
                self._names[key] = number
                self._texts[number] = name
        return number

    def write(self, moment: Moment) -> None:
        """Write the rows of a moment as soon as they are on the host. Never waits."""
        if not moment.tensors:
            return
        histograms = [torch.stack(moment.histograms)] if moment.histograms else []
        if isinstance(moment.values[0], list):
            if moment.shards is not None:
                values = torch.tensor(moment.values, dtype=torch.float64, device="cpu")
                self._join(moment, values, histograms)
                return
            content = array("d", chain.from_iterable(moment.values)).tobytes()
            self._store(moment, content, histograms)
        elif len(self._copies) < MAX_PENDING:
            self._copies.start(moment, [torch.stack(moment.values), *histograms])
        elif self._log is not None:
            self._log.drop(len(moment.tensors))

    def poll(self) -> None:
        """Store the rows that have arrived on the host. Never waits."""
        self._store_copies(self._copies.take_arrived())

    def finish(self) -> None:
        """Store the other rows as well, because the process ends; drop those that do not arrive in
        time."""
        self._store_copies(self._copies.await_arrival())
        if self._log is not None:
            self._log.drop(sum(len(moment.tensors) for moment in self._copies.labels))

    def store_joined(self, rows: Iterable[Joined]) -> None:
        """Store the rows of sharded tensors that have been joined with those of other ranks."""
        for part, values, powers in rows:
            if values is not None:
                self._store(part.moment, read_bytes(values), [] if powers is None else [powers])

    def _store_copies(self, copies: Iterable[tuple[Moment, list[torch.Tensor]]]) -> None:
        for moment, (values, *histograms) in copies:
            if moment.shards is not None:
                self._join(moment, values, histograms)
            else:
                self._store(moment, read_bytes(values), histograms)

    def _join(self, moment: Moment, values: torch.Tensor, histograms: list[torch.Tensor]) -> None:
        if moment.shards is not None and self._session is session.current():
            identity = "\n".join(moment.identities)
            powers = histograms[0] if histograms else None
            moment.shards.submit(Part(moment, moment.step, identity, values, powers))

    def _store(self, moment: Moment, values: bytes, histograms: list[torch.Tensor]) -> None:
        if self._log is None or self._session is not session.current():
            return
        powers = [read_bytes(histogram) for histogram in histograms]
        sizes = (8, 8 * len(COLUMNS), *(4 * POWER_BINS for _ in powers))
        count = max(1, MAX_FILE_BYTES // sum(sizes))
        left_out: list[int] = []
        for first in range(0, len(moment.tensors), count):
            tensors = moment.tensors[first : first + count]
            parts = [
                content[first * size : (first + count) * size]
                for content, size in zip((values, *powers), sizes[1:])
            ]
            columns = [
                ("tensor", "q", 1, array("q", tensors).tobytes()),
                ("statistics", "d", len(COLUMNS), parts[0]),
                *(("powers", "i", POWER_BINS, part) for part in parts[1:]),
            ]
            fields = {"statistics": COLUMNS, **moment.fields}
            if not self._log.write(len(tensors), columns, **fields):
                left_out += tensors
        if left_out and self._has_room:
            self._has_room = False
            self._note_left_out(moment.step, left_out)

    def _note_left_out(self, step: int, tensors: list[int]) -> None:
        """Note, once, which tensors the spool had no room for. All are counted as dropped."""
        if self._session is not None:
            names = [self._texts.get(number, "") for number in tensors]
            more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
            self._session.note(
                f"the spool has no room for the statistics of {len(names)} tensors of step {step}: "
                f"{', '.join(names[:MAX_NAMED])}{more}; record fewer tensors or steps, or raise "
                "--spool-limit"
            )


def read_bytes(tensor: torch.Tensor) -> bytes:
    """Return the elements of a host tensor as they are in memory, in the order of the last
    dimension."""
    tensor = tensor.contiguous()
    return ctypes.string_at(tensor.data_ptr(), count_bytes(tensor))


MAX_NOTES = 50
"""Tensors that are named as left out."""
_MEGABYTE = 1_000_000


class _Row(NamedTuple):
    number: int
    """Of the name of the tensor."""
    name: str
    t_ns: int
    step: int
    mode: str


class ElementWriter:
    """Writer of the elements of the tensors of one process.

    Args:
        plan: which tensors, and their limit.
        names: numbers the names of tensors.
    """

    def __init__(self, plan: TensorPlan, names: RowWriter) -> None:
        self._patterns = [re.compile(pattern) for pattern in plan.raw_patterns]
        self._limit_bytes = plan.raw_limit_bytes
        self._names = names
        self._left_out: set[str] = set()
        self._copies: HostCopies[_Row] = HostCopies()

    def add(  # noqa: PLR0917 - one row
        self, name: str, collection: str, tensor: torch.Tensor, t_ns: int, step: int, mode: str
    ) -> None:
        """Record the elements of a tensor if its name matches; of a distributed one those of this
        rank."""
        if name in self._left_out or not any(pattern.fullmatch(name) for pattern in self._patterns):
            return
        to_local = getattr(tensor, "to_local", None)  # a DTensor
        values = (tensor if to_local is None else to_local()).detach()
        if values.layout is not torch.strided or values.is_quantized or values.is_nested:
            self._leave_out(name, step, f"their layout is {values.layout}")
            return
        current = session.current()
        if current is None or values.is_meta or not values.numel():
            return
        node_count = _count_nodes()
        budget = ElementBudget(current.tree.root, self._limit_bytes // node_count)
        if not budget.reserve(count_bytes(values)):
            limit = f"{self._limit_bytes / _MEGABYTE:g} MB (--tensors-raw-limit)"
            share = (
                "the limit" if node_count == 1 else f"this node's part, 1/{node_count} of the limit"
            )
            self._leave_out(name, step, f"{share} of {limit} is reached")
            return
        values = values.resolve_conj().resolve_neg().contiguous()
        row = _Row(self._names.name(name, collection, values), name, t_ns, step, mode)
        if values.device.type == "cpu":
            self._store(row, values)
        else:
            self._copies.start(row, [values])

    def poll(self) -> None:
        """Store the elements that have arrived on the host. Never waits."""
        self._store_all(self._copies.take_arrived())

    def finish(self) -> None:
        """Store the others as well, because the process ends; name those that do not arrive."""
        self._store_all(self._copies.await_arrival())
        for row in self._copies.labels:
            self._leave_out(row.name, row.step, "the device did not finish in time")

    def _store_all(self, arrived: Iterable[tuple[_Row, list[torch.Tensor]]]) -> None:
        for row, (values,) in arrived:
            self._store(row, values)

    def _store(self, row: _Row, values: torch.Tensor) -> None:
        current = session.current()
        if current is None:
            return
        columns = [
            ("tensor", "q", 1, array("q", [row.number]).tobytes()),
            ("elements", "B", count_bytes(values), read_bytes(values)),
        ]
        fields = {"t_ns": row.t_ns, "step": row.step, "mode": row.mode}
        if not current.row_log.write(1, columns, table=TENSOR_ELEMENTS, **fields):
            self._leave_out(row.name, row.step, "the spool has no room (--spool-limit)")

    def _leave_out(self, name: str, step: int, reason: str) -> None:
        """Record no more elements of a tensor, and note the reason."""
        self._left_out.add(name)
        current = session.current()
        if current is not None and len(self._left_out) <= MAX_NOTES:
            current.note(f"elements of {name} from step {step} on are not recorded: {reason}")


def _count_nodes() -> int:
    """Return the number of nodes of the job, as torchrun states it: the limit is that of all."""
    world_size = os.environ.get("WORLD_SIZE", "")
    local_world_size = os.environ.get("LOCAL_WORLD_SIZE", "")
    if not world_size.isdecimal() or not local_world_size.isdecimal():
        return 1
    return max(1, int(world_size) // max(1, int(local_world_size)))
