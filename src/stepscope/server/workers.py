"""Workers from the server's side: three queues, each with one process.

    quick        timeline, lists and small requests, for which an interaction waits
    views        screens, which may take seconds
    background   verdicts for the list of jobs

Processes are forked from one that has imported all modules and has never opened a database, so that
a new one starts within milliseconds. It is started on first use.
"""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

import msgspec

from stepscope.quantities import duration
from stepscope.server.settings import Limits, worker_context
from stepscope.server.worker import Reply, run_worker

QueueName = Literal["quick", "views", "background"]
QUEUES: tuple[QueueName, ...] = ("quick", "views", "background")


class Refusal(Exception):  # noqa: N818 - some refusals are not errors
    """Response of the web UI's server without a payload: one sentence and an HTTP status.

    The page shows it. Load the page again; a program corrects its request by `/api/openapi.json`.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Result(NamedTuple):
    """Result of a task."""

    body: bytes
    """Payload as JSON."""
    growth_bytes: int
    """Memory growth of the worker since its start."""


class _WorkerProcess:
    """One process. All methods block, and are called in threads."""

    def __init__(self, tasks: str, limits: Limits) -> None:
        context = worker_context(tasks)
        self._pipe, worker_pipe = context.Pipe()
        self._process = context.Process(
            target=run_worker,
            args=(worker_pipe, tasks, limits.response_s, limits.response_bytes),
            name="stepscope-worker",
            daemon=True,
        )
        self._process.start()
        worker_pipe.close()

    def run(self, task: str, arguments: dict[str, Any]) -> Result:
        """Run a task.

        Raises:
            Refusal: the task has failed.
            EOFError, OSError: the process has died.
        """
        self._pipe.send((task, arguments))
        reply, body = _receive(self._pipe)
        if reply.error is not None:
            raise Refusal(reply.status, reply.error)
        return Result(body, reply.growth_bytes)

    def kill(self) -> None:
        """Kill the process, even in the middle of a task."""
        self._process.kill()
        self._process.join()


def _receive(pipe: Connection) -> tuple[Reply, bytes]:
    return msgspec.json.decode(pipe.recv_bytes(), type=Reply), pipe.recv_bytes()


class WorkerQueue:
    """One worker with the tasks that wait for it, in the order of their arrival."""

    def __init__(self, tasks: str, limits: Limits) -> None:
        self._tasks = tasks
        self._limits = limits
        self._turn = asyncio.Lock()
        self._worker: _WorkerProcess | None = None
        self._closed = False

    async def run(self, task: str, arguments: dict[str, Any]) -> Result:
        """Run a task. A cancelled task leaves the queue; if it is running already, the worker has a
        grace period to finish it before it is killed.

        Raises:
            Refusal: the task has failed.
        """
        async with self._turn:
            worker = await self._ensure_worker()
            running = asyncio.ensure_future(asyncio.to_thread(worker.run, task, arguments))
            running.add_done_callback(retrieve_exception)
            try:
                result = await asyncio.wait_for(asyncio.shield(running), self._limits.response_s)
            except TimeoutError:
                await self._kill_worker()
                raise Refusal(
                    503,
                    f"The response took more than {duration(1e9 * self._limits.response_s)} and "
                    "was cancelled.",
                ) from None
            except asyncio.CancelledError:
                await self._finish_cancelled(running)
                raise
            except (EOFError, OSError):
                await self._kill_worker()
                raise Refusal(
                    500, "The process that computed the response has died. Try again."
                ) from None
            if result.growth_bytes > self._limits.worker_bytes:
                await self._kill_worker()
            return result

    async def wait_until_idle(self) -> None:
        """Wait until the tasks that are in the queue now have finished."""
        async with self._turn:
            pass

    async def start(self) -> None:
        """Start the worker before the first task."""
        async with self._turn:
            await self._ensure_worker()

    async def release_memory(self) -> None:
        """End the worker; the next task starts another one."""
        async with self._turn:
            await self._kill_worker()

    async def close(self) -> None:
        """End the worker and refuse further tasks."""
        self._closed = True
        await self._kill_worker()

    async def _ensure_worker(self) -> _WorkerProcess:
        if self._closed:
            raise Refusal(503, "The server is shutting down.")
        if self._worker is None:
            starting = asyncio.ensure_future(
                asyncio.to_thread(_WorkerProcess, self._tasks, self._limits)
            )
            try:
                self._worker = await asyncio.shield(starting)
            except asyncio.CancelledError:
                self._worker = await starting  # for the next task
                raise
        return self._worker

    async def _finish_cancelled(self, running: asyncio.Future[Result]) -> None:
        """Wait for the end of a cancelled task, and kill the worker if it takes too long."""
        done, _ = await asyncio.wait({running}, timeout=self._limits.grace_s)
        if not done or isinstance(running.exception(), EOFError | OSError):
            await self._kill_worker()

    async def _kill_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await asyncio.to_thread(worker.kill)


def retrieve_exception(future: asyncio.Future[Any]) -> None:
    """Mark the exception of a future as retrieved: after a cancellation no caller awaits it."""
    if not future.cancelled():
        future.exception()


class Workers:
    """All queues."""

    def __init__(self, tasks: str, limits: Limits) -> None:
        self._queues = {name: WorkerQueue(tasks, limits) for name in QUEUES}

    async def run(self, queue: QueueName, task: str, **arguments: Any) -> Result:
        """See `WorkerQueue.run`."""
        return await self._queues[queue].run(task, arguments)

    async def start(self) -> None:
        """Start the workers that a page needs first."""
        for name in ("quick", "views"):
            await self._queues[name].start()

    async def wait_until_idle(self, queue: QueueName) -> None:
        """See `WorkerQueue.wait_until_idle`."""
        await self._queues[queue].wait_until_idle()

    async def release_memory(self, queue: QueueName) -> None:
        """See `WorkerQueue.release_memory`."""
        await self._queues[queue].release_memory()

    async def close(self) -> None:
        """End all workers."""
        for queue in self._queues.values():
            await queue.close()
