"""The workers as the server sees them: three queues, each with one process that answers.

    quick        timeline, lists and small things: what a hand on the mouse waits for
    views        screens, each of which may take seconds
    background   verdicts for the list of jobs

Processes are forked from one that has imported everything and has never opened a database, so a
new one is there in milliseconds. It begins when it is first needed.
"""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

import msgspec

from stepscope.server.forking import forking
from stepscope.server.settings import Limits
from stepscope.server.worker import Reply, exit_at_once

Queue = Literal["quick", "views", "background"]
QUEUES: tuple[Queue, ...] = ("quick", "views", "background")


class Refusal(Exception):  # noqa: N818 - not every answer that is none is an error of somebody
    """No payload came: why, in one sentence, and as a status of HTTP."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Answer(NamedTuple):
    """A payload as JSON, and what the worker has become by making it."""

    body: bytes
    grown_bytes: int


class _Worker:
    """One process. All methods wait, and are called in threads."""

    def __init__(self, tasks: str, limits: Limits) -> None:
        context = forking(tasks)
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=exit_at_once,
            args=(theirs, tasks, limits.answer_s, limits.answer_bytes),
            name="stepscope-worker",
            daemon=True,
        )
        self._process.start()
        theirs.close()

    def ask(self, task: str, arguments: dict[str, Any]) -> Answer:
        """Its answer; EOFError or OSError when it dies over it."""
        self._pipe.send((task, arguments))
        reply, body = _received(self._pipe)
        if reply.error is not None:
            raise Refusal(reply.status, reply.error)
        return Answer(body, reply.grown_bytes)

    def kill(self) -> None:
        """End it, whatever it is doing."""
        self._process.kill()
        self._process.join()


def _received(pipe: Connection) -> tuple[Reply, bytes]:
    return msgspec.json.decode(pipe.recv_bytes(), type=Reply), pipe.recv_bytes()


class WorkerQueue:
    """One worker, and those who wait for it in the order in which they came."""

    def __init__(self, tasks: str, limits: Limits) -> None:
        self._tasks = tasks
        self._limits = limits
        self._turn = asyncio.Lock()
        self._worker: _Worker | None = None
        self._closed = False

    async def ask(self, task: str, arguments: dict[str, Any]) -> Answer:
        """The payload of a task. Who is cancelled while waiting leaves the queue; a worker that
        is at it gets a little longer, and is killed then.

        Raises:
            Refusal: no payload came.
        """
        async with self._turn:
            worker = await self._ready()
            asked = asyncio.ensure_future(asyncio.to_thread(worker.ask, task, arguments))
            asked.add_done_callback(looked_at)
            try:
                answer = await asyncio.wait_for(asyncio.shield(asked), self._limits.answer_s)
            except TimeoutError:
                await self._replace()
                raise Refusal(
                    503, f"The answer took more than {self._limits.answer_s:g} s and was stopped."
                ) from None
            except asyncio.CancelledError:
                await self._wind_up(asked)
                raise
            except (EOFError, OSError):
                await self._replace()
                raise Refusal(
                    500, "The process that computed the answer has died; ask again."
                ) from None
            if answer.grown_bytes > self._limits.worker_bytes:
                await self._replace()
            return answer

    async def idle(self) -> None:
        """Wait until it has nothing to do."""
        async with self._turn:
            pass

    async def start(self) -> None:
        """Have a worker ready before anybody asks."""
        async with self._turn:
            await self._ready()

    async def rest(self) -> None:
        """Give the worker's memory back; the next one who asks gets another."""
        async with self._turn:
            await self._replace()

    async def close(self) -> None:
        """End the worker; nobody can ask any more."""
        self._closed = True
        await self._replace()

    async def _ready(self) -> _Worker:
        if self._closed:
            raise Refusal(503, "The server is ending.")
        if self._worker is None:
            making = asyncio.to_thread(_Worker, self._tasks, self._limits)
            starting = asyncio.ensure_future(making)
            try:
                self._worker = await asyncio.shield(starting)
            except asyncio.CancelledError:
                self._worker = await starting  # for the next one
                raise
        return self._worker

    async def _wind_up(self, asked: asyncio.Future[Answer]) -> None:
        """Nobody waits for this answer any more: take it if it comes soon."""
        done, _ = await asyncio.wait({asked}, timeout=self._limits.grace_s)
        if not done or isinstance(asked.exception(), EOFError | OSError):
            await self._replace()

    async def _replace(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await asyncio.to_thread(worker.kill)


def looked_at(asked: asyncio.Future[Any]) -> None:
    """An answer may fail when nobody waits for it any more, which is no news."""
    if not asked.cancelled():
        asked.exception()


class Workers:
    """All queues."""

    def __init__(self, tasks: str, limits: Limits) -> None:
        self._queues = {name: WorkerQueue(tasks, limits) for name in QUEUES}

    async def ask(self, queue: Queue, task: str, **arguments: Any) -> Answer:
        """See `WorkerQueue.ask`."""
        return await self._queues[queue].ask(task, arguments)

    async def start(self) -> None:
        """Have those ready that a page needs first."""
        for name in ("quick", "views"):
            await self._queues[name].start()

    async def idle(self, queue: Queue) -> None:
        """See `WorkerQueue.idle`."""
        await self._queues[queue].idle()

    async def rest(self, queue: Queue) -> None:
        """See `WorkerQueue.rest`."""
        await self._queues[queue].rest()

    async def close(self) -> None:
        """End all workers."""
        for queue in self._queues.values():
            await queue.close()
