"""Parallel decoding of blocks; results come in the order of the blocks.

Where the compiled scanner understands the first block, threads decode the others: it runs without
Python's lock, and nothing is sent between processes. Otherwise forked processes decode.
"""

from __future__ import annotations

import errno
import gc
import mmap
import os
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from stepscope.cores import start_worker, wait_for
from stepscope.importers.kineto.blocks import BLOCK_BYTES, Block
from stepscope.importers.kineto.columns import Chunk
from stepscope.importers.kineto.decode import decode_block, is_scannable

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

QUEUED_PER_WORKER = 2
"""Blocks sent in advance, so that no worker waits while the parent is busy."""
_AHEAD_PER_WORKER = 8
"""Blocks sent or decoded beyond the next one in order: a damaged one takes long."""
_SLOT_BYTES = 2 * BLOCK_BYTES
_SWITCH_INTERVAL_S = 0.0005
"""Time that a thread with a block waits for Python's lock, which the import of DuckDB holds: with
5 ms, Python's default, as long as it takes to scan two blocks."""


_MAX_WAIT_S = 0.5
"""A signal just before the wait does not interrupt it: Python handles it when the wait ends."""


class DecodingStoppedError(OSError):
    """A worker process ended unexpectedly: killed, or out of memory."""

    def __init__(self) -> None:
        super().__init__(
            errno.ECHILD, "a process that decoded it was killed, perhaps for lack of memory"
        )


def decode_all(
    blocks: Iterable[Block], workers: int, on_start: Callable[[], object] = lambda: None
) -> Iterator[Chunk]:
    """Yield the chunks of all blocks, in order; decodes in this thread when `workers` is 0.

    Args:
        blocks: blocks of one file.
        workers: number of threads or processes that decode.
        on_start: called after processes are forked; until then this process must have no thread.
    """
    source = iter(blocks)
    if not workers:
        on_start()
        yield from map(decode_block, source)
        return
    first = list(islice(source, 1))
    blocks = chain(first, source)
    if all(is_scannable(block.read()) for block in first):
        on_start()
        yield from _decode_in_threads(blocks, workers)
        return
    pool = _Pool(workers)
    try:
        on_start()
        yield from pool.map(blocks)
    finally:
        pool.close()


def _decode_in_threads(blocks: Iterable[Block], workers: int) -> Iterator[Chunk]:
    """Yield the chunks of blocks; few are decoded in advance, as in `_Pool`."""
    pending: deque[Future[Chunk]] = deque()
    interval_s = sys.getswitchinterval()
    with ThreadPoolExecutor(workers) as threads:
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        try:
            for block in _prefetch(blocks):
                pending.append(threads.submit(decode_block, block))
                if len(pending) > workers * QUEUED_PER_WORKER:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            sys.setswitchinterval(interval_s)
            for future in pending:
                future.cancel()


def _prefetch(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the same blocks while a thread makes the next one, which may have to be inflated."""
    source = iter(blocks)
    with ThreadPoolExecutor(1) as thread:
        pending = thread.submit(next, source, None)
        while (block := pending.result()) is not None:
            pending = thread.submit(next, source, None)
            yield block


class _Pool:
    """Workers, and the shared memory that passes text to them and columns back.

    Only short messages go through pipes: if a block was sent while a worker sends a chunk, both
    sides would wait forever. Columns in pipes would be copied four times, some pages at a time.
    """

    def __init__(self, workers: int) -> None:
        slots = workers * QUEUED_PER_WORKER
        self._memory = mmap.mmap(-1, slots * _SLOT_BYTES)
        self._free = list(range(slots))
        self._slots: dict[int, int] = {}  # number of a block -> its slot
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        for _ in range(workers):
            ours, process = start_worker(_work, self._pipes, self._memory)
            self._pipes.append(ours)
            self._processes.append(process)

    def map(self, blocks: Iterable[Block]) -> Iterator[Chunk]:
        waiting: dict[int, Chunk] = {}
        queued = dict.fromkeys(self._pipes, 0)
        gaps: dict[int, bytes] = {}
        source = enumerate(_prefetch(blocks))
        following = 0
        sent = 0
        done = False
        while True:
            limit = following + _AHEAD_PER_WORKER * len(self._pipes)
            while not done and sent < limit and min(queued.values()) < QUEUED_PER_WORKER:
                try:
                    number, block = next(source)
                except StopIteration:
                    done = True
                    break
                sent = number + 1
                if len(block.text) > _SLOT_BYTES:  # rare; a worker may sleep meanwhile
                    waiting[number] = decode_block(block)
                    break
                pipe = min(queued, key=queued.__getitem__)
                gaps[number] = block.gap  # it may be long, and no worker needs it
                self._send(pipe, number, replace(block, gap=b""))
                queued[pipe] += 1
            if done and following == sent:
                return
            if following not in waiting:
                busy = [pipe for pipe, count in queued.items() if count]
                for ready in wait_for(busy, _MAX_WAIT_S):
                    number, chunk = self._receive(ready)
                    chunk.gap = gaps.pop(number)
                    queued[ready] -= 1
                    waiting[number] = chunk
            while following in waiting:
                yield waiting.pop(following)
                following += 1

    def _send(self, pipe: Connection, number: int, block: Block) -> None:
        """Send a block to a worker, with a slot of shared memory that holds its text, if any."""
        slot = self._slots[number] = self._free.pop()
        if not block.path:
            at, length = slot * _SLOT_BYTES, len(block.text)
            self._memory[at : at + length] = block.text
            block = replace(block, text=b"", offset=at, length=length)
        try:
            pipe.send((number, block, slot))
        except OSError as error:
            raise DecodingStoppedError from error

    def _receive(self, pipe: Connection) -> tuple[int, Chunk]:
        try:
            number, answer, sizes = pipe.recv()
        except (EOFError, OSError) as error:  # an OSError within a message
            raise DecodingStoppedError from error
        if isinstance(answer, OSError):
            raise answer
        slot = self._slots.pop(number)
        columns = []
        with memoryview(self._memory) as memory:
            at = slot * _SLOT_BYTES
            for size in sizes:
                columns.append(bytearray(memory[at : at + size]))
                at += size
        self._free.append(slot)
        return number, pickle.loads(answer, buffers=columns)  # noqa: S301 - of our own process

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.kill()  # it is idle, or its result is not needed
        for process in self._processes:
            process.join()


def _work(pipe: Connection, memory: mmap.mmap) -> None:
    """Decode until the parent closes the pipe or exits."""
    gc.disable()  # a block creates 100,000 objects and no cycle
    try:
        while True:
            number, block, slot = pipe.recv()
            if not block.path:
                # Nothing refers to it after decoding, so it is not copied.
                shared = memoryview(memory)[block.offset : block.offset + block.length]
                block = replace(block, shared=shared)
            try:
                chunk = decode_block(block)
            except OSError as error:
                pipe.send((number, error, ()))
                continue
            pipe.send((number, *_packed(chunk, memory, slot * _SLOT_BYTES)))
    except (EOFError, ConnectionError):
        os._exit(0)


def _packed(chunk: Chunk, memory: mmap.mmap, at: int) -> tuple[bytes, list[int]]:
    """Return a message and the sizes of the columns that were written to shared memory at `at`.

    If they do not fit into a slot, the message holds them.
    """
    columns: list[pickle.PickleBuffer] = []
    message = pickle.dumps(chunk, protocol=5, buffer_callback=columns.append)
    raws = [column.raw() for column in columns]
    sizes = [raw.nbytes for raw in raws]
    if sum(sizes) > _SLOT_BYTES:
        return pickle.dumps(chunk, protocol=5), []
    for raw, size in zip(raws, sizes, strict=True):
        memory[at : at + size] = raw
        at += size
    return message, sizes
