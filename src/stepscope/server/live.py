"""Server-sent events: changes of runs and of the list of runs.

One task per feed with listeners, which ends with the last listener.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from stepscope.errors import NotARunError, StepscopeError

MIN_INTERVAL_S = 1.0
"""Minimum time between two change events."""
MAX_INTERVAL_S = 30.0
INTERVAL_PER_COST = 3.0
"""Minimum interval as a multiple of the time that a payload takes to compute: otherwise a page
could never draw a run that grows faster than it is read."""
INTERVAL_PER_POLL = 10.0
"""Minimum interval as a multiple of the time that reading the revision takes."""
COST_DECAY = 0.9
"""Decay of the recorded cost with each further payload."""
KEEP_ALIVE_S = 15.0
_REMOVED = "gone"

ReadRevision = Callable[[], Awaitable[int]]
"""Function that reads the current revision."""


class ServerSentEvent(msgspec.Struct, frozen=True):
    """Event of a feed."""

    kind: str
    revision: int

    def encode(self) -> bytes:
        """Encode the event for the stream."""
        data = msgspec.json.encode({"revision": self.revision}).decode()
        return f"id: {self.revision}\nevent: {self.kind}\ndata: {data}\n\n".encode()


class Feed:
    """Changes of one object.

    Args:
        read_revision: reads its revision; raises NotARunError once it is removed.
    """

    def __init__(self, read_revision: ReadRevision) -> None:
        self._read_revision = read_revision
        self._listeners: set[asyncio.Queue[ServerSentEvent | None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._hint = asyncio.Event()
        self._closed = False
        self.cost_s = 0.0
        """Recent maximum time to compute one of its payloads."""

    def hint(self) -> None:
        """Read the revision soon: there is a change."""
        self._hint.set()

    async def listen(self, last_revision: int | None = None) -> AsyncIterator[bytes]:
        """Stream events to one listener, starting with `open` and the current revision.

        Args:
            last_revision: the last revision that a returning listener has received; `change`
                follows at once if the current one differs.
        """
        queue: asyncio.Queue[ServerSentEvent | None] = asyncio.Queue(maxsize=8)
        self._listeners.add(queue)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        try:
            revision = await self._read_revision()
            yield ServerSentEvent("open", revision).encode()
            if last_revision not in {None, revision}:
                yield ServerSentEvent("change", revision).encode()
            while not self._closed:
                try:
                    event = await asyncio.wait_for(queue.get(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield b":\n\n"
                    continue
                if event is None:
                    return
                yield event.encode()
        except NotARunError:
            yield ServerSentEvent(_REMOVED, last_revision or 0).encode()
        finally:
            self._listeners.discard(queue)
            if not self._listeners and self._watching is not None:
                self._watching.cancel()
                self._watching = None

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        self._publish(None)

    async def _watch(self) -> None:
        previous: int | None = None
        while True:
            self._hint.clear()
            start_s = time.monotonic()
            try:
                revision = await self._read_revision()
            except NotARunError:
                self._publish(ServerSentEvent(_REMOVED, previous or 0))
                return
            except (StepscopeError, OSError):
                revision = previous or 0
            if revision != previous:
                if previous is not None:
                    self._publish(ServerSentEvent("change", revision))
                previous = revision
            poll_s = time.monotonic() - start_s
            interval_s = max(
                MIN_INTERVAL_S, INTERVAL_PER_POLL * poll_s, INTERVAL_PER_COST * self.cost_s
            )
            await asyncio.sleep(MIN_INTERVAL_S)
            try:
                await asyncio.wait_for(
                    self._hint.wait(), min(interval_s, MAX_INTERVAL_S) - MIN_INTERVAL_S
                )
            except TimeoutError:
                pass

    def _publish(self, event: ServerSentEvent | None) -> None:
        for queue in self._listeners:
            if queue.full():  # a slow reader needs only the latest events
                queue.get_nowait()
            queue.put_nowait(event)


class Feeds:
    """Feeds by name."""

    def __init__(self) -> None:
        self._feeds: dict[str, Feed] = {}

    def feed(self, name: str, read_revision: ReadRevision) -> Feed:
        """Get or create the feed of this name."""
        return self._feeds.setdefault(name, Feed(read_revision))

    def hint(self, name: str) -> None:
        """See `Feed.hint`."""
        if name in self._feeds:
            self._feeds[name].hint()

    def note_cost(self, name: str, seconds: float) -> None:
        """Record the time that a payload of this feed took to compute."""
        if name in self._feeds:
            feed = self._feeds[name]
            feed.cost_s = max(seconds, COST_DECAY * feed.cost_s)

    def close(self) -> None:
        """End all streams of all feeds."""
        for feed in self._feeds.values():
            feed.close()
