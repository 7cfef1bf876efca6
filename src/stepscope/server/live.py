"""Pushes a change to whoever listens, as Server-Sent Events.

One task looks after each thing that somebody listens to, and ends with its last listener.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from stepscope.errors import NotARunError, StepscopeError

SHORTEST_S = 1.0
"""Between two changes that listeners are told of."""
LONGEST_S = 30.0
PATIENCE = 3.0
"""A page that draws what took a second to compute is told of the next change three seconds later:
else a run that grows faster than it is read would never be seen at all."""
LOOKING = 10.0
"""Looking for changes may take a tenth of the time."""
FORGETTING = 0.9
"""Of what a payload took, with each further one."""
KEEP_ALIVE_S = 15.0
_GONE = "gone"

Look = Callable[[], Awaitable[int]]
"""The revision of the moment."""


class Event(msgspec.Struct, frozen=True):
    """What is told."""

    kind: str
    revision: int

    def encoded(self) -> bytes:
        """As it is sent."""
        data = msgspec.json.encode({"revision": self.revision}).decode()
        return f"id: {self.revision}\nevent: {self.kind}\ndata: {data}\n\n".encode()


class Feed:
    """Changes of one thing.

    Args:
        look: its revision; NotARunError when there is nothing any more.
    """

    def __init__(self, look: Look) -> None:
        self._look = look
        self._listeners: set[asyncio.Queue[Event | None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._hint = asyncio.Event()
        self._closed = False
        self.cost_s = 0.0
        """What the dearest of its payloads took lately."""

    def hint(self) -> None:
        """Look again soon: there is something new."""
        self._hint.set()

    async def listen(self, last_seen: int | None = None) -> AsyncIterator[bytes]:
        """The stream of one listener. It begins with `open` and the revision of the moment.

        Args:
            last_seen: the revision that a listener who comes back has seen; `change` follows at
                once where there is another.
        """
        queue: asyncio.Queue[Event | None] = asyncio.Queue(maxsize=8)
        self._listeners.add(queue)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        try:
            revision = await self._look()
            yield Event("open", revision).encoded()
            if last_seen not in {None, revision}:
                yield Event("change", revision).encoded()
            while not self._closed:
                try:
                    event = await asyncio.wait_for(queue.get(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield b":\n\n"
                    continue
                if event is None:
                    return
                yield event.encoded()
        except NotARunError:
            yield Event(_GONE, last_seen or 0).encoded()
        finally:
            self._listeners.discard(queue)
            if not self._listeners and self._watching is not None:
                self._watching.cancel()
                self._watching = None

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        self._tell(None)

    async def _watch(self) -> None:
        seen: int | None = None
        while True:
            self._hint.clear()
            began = time.monotonic()
            try:
                revision = await self._look()
            except NotARunError:
                self._tell(Event(_GONE, seen or 0))
                return
            except (StepscopeError, OSError):
                revision = seen or 0
            if revision != seen:
                if seen is not None:
                    self._tell(Event("change", revision))
                seen = revision
            looking_s = time.monotonic() - began
            pause = max(SHORTEST_S, LOOKING * looking_s, PATIENCE * self.cost_s)
            await asyncio.sleep(SHORTEST_S)
            try:
                await asyncio.wait_for(self._hint.wait(), min(pause, LONGEST_S) - SHORTEST_S)
            except TimeoutError:
                pass

    def _tell(self, event: Event | None) -> None:
        for queue in self._listeners:
            if queue.full():  # who reads so slowly needs the latest only
                queue.get_nowait()
            queue.put_nowait(event)


class Feeds:
    """A feed for everything that somebody listens to."""

    def __init__(self) -> None:
        self._feeds: dict[str, Feed] = {}

    def feed(self, name: str, look: Look) -> Feed:
        """The feed of one thing, by a name of its own."""
        return self._feeds.setdefault(name, Feed(look))

    def hint(self, name: str) -> None:
        """See `Feed.hint`."""
        if name in self._feeds:
            self._feeds[name].hint()

    def note_cost(self, name: str, seconds: float) -> None:
        """A payload of this thing took so long."""
        if name in self._feeds:
            feed = self._feeds[name]
            feed.cost_s = max(seconds, FORGETTING * feed.cost_s)

    def close(self) -> None:
        """End all streams of all feeds."""
        for feed in self._feeds.values():
            feed.close()
