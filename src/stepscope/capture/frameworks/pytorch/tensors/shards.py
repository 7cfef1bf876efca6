"""Sharded tensors: their layout, and statistics of whole ones, exchanged between ranks.

The training thread hands over its rows and goes on. A thread of its own meets the other ranks in a
process group that the job does not know: it is no member of `torch.distributed`'s list of groups,
takes no number of theirs, uses a connection of its own to the job's store, and communicates by
gloo on the host. So no rank waits for another one: if some take no part, the rows stay as they
are, those of each rank's shard.

    training thread          thread of the exchange
    submit(moment)    ->     headers of all ranks: are these the same tensors at the same step?
                             rows of all ranks, and sum of the histograms
    take()            <-     rows of the whole tensors, on the first rank
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch

from stepscope.capture import session
from stepscope.capture.frameworks.pytorch.tensors.statistics import COLUMNS, MAX_PRODUCT_ELEMENTS
from stepscope.capture.guard import Probe
from stepscope.spool import TensorPlan

MAX_PENDING = 64
"""Moments that wait for the other ranks; with more, the ranks are too far apart."""
MEETING_TIMEOUT_S = 60.0
"""Time in which all ranks have to reach their first recorded step."""
CONNECTION_TIMEOUT_S = 120.0
"""Time in which they have to be connected, too."""
EXCHANGE_TIMEOUT = timedelta(minutes=30)
"""The slowest rank may evaluate or save meanwhile; the job does not wait for the exchange."""
MAX_WAIT_S = 2.0
"""Time that the end of the process waits for other ranks."""
POLL_S, MAX_POLL_S = 0.001, 0.05
MAX_HISTOGRAM_ELEMENTS = 2**31 - 1
"""Elements of a whole tensor that the bins of a histogram can count."""

_probe = Probe("statistics of whole sharded tensors")


class Part(NamedTuple):
    """Statistics of this rank's shards at one time."""

    moment: Any
    """The `Moment`; the group does not look into it."""
    step: int
    identity: str
    """Names and shapes of the tensors, which are equal on all ranks."""
    values: torch.Tensor
    """(tensor, statistic) in double precision."""
    powers: torch.Tensor | None
    """(tensor, bin) as int32, of histograms."""


class Joined(NamedTuple):
    """Rows to be recorded of a part."""

    part: Part
    values: torch.Tensor | None
    """Statistics of the whole tensors; of the shards if they were not joined; None if another rank
    records them."""
    powers: torch.Tensor | None


class _NoMeetingError(RuntimeError):
    """Ranks differ; the text is the reason, as a clause."""


class ShardGroup:
    """Exchange between the ranks that hold the parts of some tensors.

    Args:
        ranks: these ranks, ascending.
        rank: this rank.
        agreement: text that has to be equal on all ranks.
        device_type: type of the device of the tensors; the ranks have a group for each.
        connect: makes the process group; replaced in tests.
    """

    def __init__(
        self,
        ranks: tuple[int, ...],
        rank: int,
        *,
        agreement: str,
        device_type: str = "cpu",
        connect: Callable[[ShardGroup], Any] | None = None,
    ) -> None:
        self.ranks = ranks
        self.index = ranks.index(rank)
        self.agreement = agreement
        self.name = hashlib.sha256(f"{device_type} {ranks}".encode()).hexdigest()
        self.failure: str | None = None
        """Reason why parts are not joined any more, as a clause."""
        self.is_connected = False
        self._connect = connect or connect_by_gloo
        self._start_s = time.monotonic()
        self._pending: deque[Part] = deque()
        self._todo: SimpleQueue[Part] = SimpleQueue()
        self._results: deque[Joined] = deque()
        run = _probe.protect(self._run)
        self._thread = threading.Thread(target=run, name="stepscope-shards", daemon=True)
        self._thread.start()

    def submit(self, part: Part) -> None:
        """Hand over rows. Never waits."""
        self._pending.append(part)
        self._todo.put(part)
        if len(self._pending) > MAX_PENDING and self.failure is None:
            self.failure = f"the other ranks are more than {MAX_PENDING} recorded steps behind"

    def take(self) -> Iterator[Joined]:
        """Yield what is to be recorded by now, in the order of `submit`. Never waits."""
        while self._results:
            joined = self._results.popleft()
            if self._pending and self._pending[0] is joined.part:
                self._pending.popleft()
                yield joined
        if not self.is_connected and time.monotonic() - self._start_s > CONNECTION_TIMEOUT_S:
            self.failure = self.failure or "the ranks could not connect to each other"
        if self.failure is not None or not self._thread.is_alive():
            self.failure = self.failure or "the exchange between ranks has failed"
            while self._pending:
                part = self._pending.popleft()
                yield Joined(part, part.values, part.powers)

    def finish(self) -> Iterator[Joined]:
        """Yield what is to be recorded of all rows; waits at most `MAX_WAIT_S`."""
        until_s = time.monotonic() + MAX_WAIT_S
        while self._pending and self.failure is None and time.monotonic() < until_s:
            yield from self.take()
            time.sleep(POLL_S)
        if self._pending and self.failure is None:
            self.failure = "the process ended before the other ranks had sent theirs"
        yield from self.take()

    def _run(self) -> None:
        try:
            group = self._connect(self)
            self.is_connected = True
            while self.failure is None:
                self._exchange(group, self._todo.get())
        except (RuntimeError, ValueError, OSError, AttributeError, ImportError) as error:
            if self.failure is None:
                first_line = str(error).strip().partition("\n")[0]
                is_clause = isinstance(error, _NoMeetingError)
                self.failure = (
                    first_line if is_clause else f"the ranks cannot exchange them: {first_line}"
                )

    def _exchange(self, group: Any, part: Part) -> None:
        """Join the parts of all ranks. All ranks draw the same conclusions from the headers, so
        that none waits for rows which another one does not send."""
        digest = hashlib.sha256(part.identity.encode()).digest()[:7]
        header = [part.step, len(part.values), int.from_bytes(digest, "big")]
        while True:
            headers = self._gather(group, torch.tensor(header, dtype=torch.int64, device="cpu"))
            last_step = int(headers[:, 0].max())
            if part.step < last_step:  # another rank did not record this step
                self._results.append(Joined(part, part.values, part.powers))
                return
            if int(headers[:, 0].min()) == last_step:
                break
        if not bool((headers == headers[0]).all()):
            self._results.append(Joined(part, part.values, part.powers))
            return
        values: torch.Tensor | None = self._gather(group, part.values)
        powers = None if part.powers is None else part.powers.clone()
        if powers is not None:
            _wait(group.allreduce([powers]))
        if self.index or values is None:
            values, powers = None, None
        else:
            values = join_parts(values)
        self._results.append(Joined(part, values, powers))

    def _gather(self, group: Any, tensor: torch.Tensor) -> torch.Tensor:
        tensors = [torch.empty_like(tensor) for _ in self.ranks]
        _wait(group.allgather([tensors], [tensor]))
        return torch.stack(tensors)


def connect_by_gloo(group: ShardGroup) -> Any:
    """Make a process group of the ranks, if all of them want the same.

    Raises:
        RuntimeError: ranks did not come, or want something else.
    """
    dist: Any = torch.distributed
    # A connection of its own: one that waits keeps the training thread from using the store.
    store = dist.distributed_c10d._get_default_store().clone()
    store = dist.PrefixStore(f"stepscope/{group.name}", store)
    store.set(str(group.index), group.agreement)
    until_s = time.monotonic() + MEETING_TIMEOUT_S
    for index, rank in enumerate(group.ranks):
        while not store.check([str(index)]):
            if group.failure is not None or time.monotonic() >= until_s:
                raise _NoMeetingError(f"rank {rank} took no part within {MEETING_TIMEOUT_S:.0f} s")
            time.sleep(MAX_POLL_S)
        if store.get(str(index)).decode() != group.agreement:
            raise _NoMeetingError(f"rank {rank} was told to record other tensors")
    gloo = dist.ProcessGroupGloo(
        dist.PrefixStore("gloo", store), group.index, len(group.ranks), EXCHANGE_TIMEOUT
    )
    # It is never destroyed: the destructor waits for its threads, which a forked child has not, and
    # which wait for other ranks.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(gloo))
    return gloo


def _wait(work: Any) -> None:
    """Wait for a collective, without a call that keeps the interpreter from ending."""
    pause_s = POLL_S
    while not work.is_completed():
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, MAX_POLL_S)
    work.wait()  # raises its error


class ShardGroups:
    """Groups of one process.

    Args:
        plan: what to record; it is the same on all ranks, or nothing is joined.
    """

    def __init__(self, plan: TensorPlan) -> None:
        self._plan = plan
        self._layouts: dict[Any, ShardLayout | None] = {}
        """By mesh and placements."""
        self._groups: dict[tuple[tuple[int, ...], str], ShardGroup] = {}
        """By ranks and type of device: the rows of one type are known in the order of the steps."""
        self._reported: set[tuple[tuple[int, ...], str | None]] = set()
        """Ranks, and why their statistics are not joined."""

    def find(self, tensor: Any) -> ShardGroup | None:
        """Return the group that joins the statistics of a tensor; None if they stay as they are."""
        layout = self._layout(tensor)
        if layout is None:
            return None
        doubt = layout.doubt or self._doubt(layout, tensor)
        if doubt is not None:
            self._report(layout.ranks, doubt)
            return None
        key = layout.ranks, tensor.device.type
        group = self._groups.get(key)
        if group is None:
            rank = torch.distributed.get_rank()
            group = self._groups[key] = ShardGroup(
                layout.ranks, rank, agreement=self._plan.encode(), device_type=key[1]
            )
        return group if group.failure is None else None

    def take(self) -> Iterator[Joined]:
        """Yield the rows that are to be recorded by now. Never waits."""
        for group in self._groups.values():
            yield from group.take()
            self._report_state(group)

    def finish(self) -> Iterator[Joined]:
        """Yield all other rows; the process ends."""
        for group in self._groups.values():
            yield from group.finish()
            self._report_state(group)

    def _layout(self, tensor: Any) -> ShardLayout | None:
        mesh = getattr(tensor, "device_mesh", None)
        if mesh is None:
            return find_layout(tensor)
        key = mesh, tuple(tensor.placements)
        if key not in self._layouts:
            self._layouts[key] = find_layout(tensor)
        return self._layouts[key]

    def _doubt(self, layout: ShardLayout, tensor: Any) -> str | None:
        for rank in layout.ranks:
            if not self._plan.records_rank(rank):
                return f"rank {rank} records no tensors"
        if self._plan.histograms and tensor.numel() > MAX_HISTOGRAM_ELEMENTS:
            return "a tensor has too many elements for a histogram"
        return None

    def _report_state(self, group: ShardGroup) -> None:
        if group.is_connected or group.failure is not None:
            self._report(group.ranks, group.failure)

    def _report(self, ranks: tuple[int, ...], why: str | None) -> None:
        """Record, once, whether statistics are those of whole tensors or of shards."""
        current = session.current()
        if current is None or (ranks, why) in self._reported:
            return
        self._reported.add((ranks, why))
        statistics = "whole" if why is None else "shards"
        current.fact("sharded_tensors", statistics=statistics, ranks=list(ranks), why=why)
        if why is not None:
            current.note(
                "statistics of sharded tensors are those of this rank's shards, not of whole "
                f"tensors: {why}"
            )


_SHARDS = {"Shard", "_StridedShard"}
"""Classes of placements that give each element to one rank of a mesh dimension."""
_REPLICAS = {"Replicate"}
_COUNTS = ("element_count", "nan_count", "infinite_count", "zero_count")


class ShardLayout(NamedTuple):
    """Ranks that hold the parts of a tensor between them, each element once."""

    ranks: tuple[int, ...]
    """Ascending. Replicas of the tensor on other ranks have a layout of their own."""
    doubt: str | None = None
    """Reason why the parts cannot be joined, as a clause."""


def find_layout(tensor: Any) -> ShardLayout | None:
    """Find the ranks that hold the parts of a tensor; None for one that this rank has entirely."""
    mesh, placements = getattr(tensor, "device_mesh", None), getattr(tensor, "placements", None)
    if mesh is None or placements is None:
        if getattr(tensor, "_fsdp_flattened", False):  # set by FullyShardedDataParallel
            return ShardLayout((), "FullyShardedDataParallel keeps flat parameters, without shapes")
        return None
    kinds = [type(placement).__name__ for placement in placements]
    unknown = set(kinds) - _SHARDS - _REPLICAS
    if unknown:
        return ShardLayout((), f"a tensor has the placement {min(unknown)}")
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return None
    index = tuple(
        slice(None) if kind in _SHARDS else position for kind, position in zip(kinds, coordinate)
    )
    ranks = sorted(torch.atleast_1d(mesh.mesh[index]).flatten().tolist())
    return ShardLayout(tuple(ranks)) if len(ranks) > 1 else None


def is_empty_part(tensor: Any) -> bool:
    """Return True if a sharded tensor has elements, and none of them on this rank."""
    local = getattr(tensor, "_local_tensor", None)
    return local is not None and not local.numel() and bool(tensor.numel())


def empty_row(device: torch.device) -> Any:
    """Return the statistics of a part without elements: a list on the host, a tensor elsewhere."""
    if device.type == "cpu":
        return [0.0 if name in _COUNTS else math.nan for name in COLUMNS]
    row = torch.full((len(COLUMNS),), math.nan, dtype=torch.float64, device=device)
    row[: len(_COUNTS)].zero_()
    return row


def join_parts(parts: torch.Tensor) -> torch.Tensor:
    """Join the statistics of the parts of tensors.

    The squares of deviations are joined by the formula of Chan, Golub and LeVeque,
    https://doi.org/10.1080/00031305.1983.10483115, for any number of parts.

    Args:
        parts: (part, tensor, one of `COLUMNS`), in double precision.

    Returns:
        (tensor, one of `COLUMNS`); NaN where one is not known.
    """
    part = dict(zip(COLUMNS, parts.unbind(-1)))
    joined = {name: part[name].sum(0) for name in _COUNTS}
    finite = part["element_count"] - part["nan_count"] - part["infinite_count"]
    has_finite = finite > 0

    def of_finite(name: str, neutral: float) -> torch.Tensor:
        return torch.where(has_finite, part[name], neutral)

    joined["min"] = of_finite("min", math.inf).amin(0)
    joined["max"] = of_finite("max", -math.inf).amax(0)
    joined["sum"] = of_finite("sum", 0.0).sum(0)
    distance = part["sum"] / finite - joined["sum"] / finite.sum(0)
    between = torch.where(has_finite, finite * distance * distance, 0.0)
    joined["deviation_square_sum"] = (of_finite("deviation_square_sum", 0.0) + between).sum(0)
    joined["abs_sum"] = of_finite("abs_sum", 0.0).sum(0)
    has_product = joined["element_count"] <= MAX_PRODUCT_ELEMENTS
    joined["product"] = torch.where(has_product, of_finite("product", 1.0).prod(0), math.nan)
    for name in ("min", "max", "sum", "deviation_square_sum", "abs_sum", "product"):
        joined[name] = torch.where(has_finite.any(0), joined[name], math.nan)
    has_elements = part["element_count"] > 0
    change = torch.where(has_elements, part["update_square_sum"], 0.0).sum(0)
    joined["update_square_sum"] = torch.where(has_elements.any(0), change, math.nan)
    return torch.stack([joined[name] for name in COLUMNS], -1)
