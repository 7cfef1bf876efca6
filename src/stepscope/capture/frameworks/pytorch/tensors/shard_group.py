"""Exchange of the statistics of shards between ranks, to record those of whole tensors.

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
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch

from stepscope.capture.frameworks.pytorch.tensors.shard_layout import join_parts
from stepscope.capture.guard import Probe

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
