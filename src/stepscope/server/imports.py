"""Imports of traces that a page requests, one after the other, each by a `stepscope import`.

A run is created in a hidden directory and renamed when it is complete: the list of jobs never shows
an incomplete one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import secrets
import shutil
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import cast

import msgspec

from stepscope.run.catalog import is_removed
from stepscope.server.payloads import ImportProgress
from stepscope.server.settings import Settings
from stepscope.server.workers import Refusal

MAX_IMPORTS = 100
"""Imports that are remembered."""
MAX_WAITING = 20
MAX_NAMESAKES = 1000
_SUFFIXES = re.compile(r"(\.pt)?(\.trace)?(\.json)?(\.gz)?$")
_OTHER = re.compile(r"[^\w.+=@-]+")
_MAX_NAME_LENGTH = 100


class _Import(msgspec.Struct):
    name: str
    """Name of the trace, or of the directory of several."""
    root: Path
    scratch: Path
    """Hidden directory of this import, in that of the runs."""
    progress: ImportProgress
    task: asyncio.Task[None] | None = msgspec.field(default=None)


class Imports:
    """Imports of one server.

    Args:
        settings: settings of the server.
        on_change: called when there is a new run.
    """

    def __init__(self, settings: Settings, on_change: Callable[[], None]) -> None:
        self._settings = settings
        self._on_change = on_change
        self._imports: OrderedDict[str, _Import] = OrderedDict()
        self._turn = asyncio.Lock()

    @property
    def obstacle(self) -> str | None:
        """Reason why nothing can be imported, as a sentence; None if there is none."""
        root = self._settings.root
        if not isinstance(root, Path):
            return (
                "Traces are imported into directories only; use `stepscope import FILE -o URL` for "
                "a bucket."
            )
        if not is_removed(str(root)):
            return "The served directory is a run; serve its parent directory to import traces."
        return None

    def prepare(self, name: str) -> str:
        """Create the hidden directory of a new import and return the id of the import.

        Args:
            name: name of the trace or of its directory, from which that of the run follows.

        Raises:
            Refusal: nothing can be imported here, or too many imports wait.
            OSError: the directory cannot be written.
        """
        root = self._settings.root
        if self.obstacle is not None or not isinstance(root, Path):
            raise Refusal(400, str(self.obstacle))
        if sum(not item.progress.finished for item in self._imports.values()) >= MAX_WAITING:
            raise Refusal(429, f"{MAX_WAITING} imports are waiting. Try again later.")
        import_id = secrets.token_hex(8)
        scratch = root / self._settings.runs_directory / f".import-{import_id}"
        scratch.mkdir(parents=True)
        while len(self._imports) >= MAX_IMPORTS:
            self._imports.popitem(last=False)
        progress = ImportProgress(
            id=import_id, finished=False, done_ratio=None, run=None, failure=None
        )
        self._imports[import_id] = _Import(name, root, scratch, progress)
        return import_id

    async def receive(self, import_id: str, content: AsyncIterator[bytes]) -> Path:
        """Write the content of a trace to a file of the import.

        Raises:
            OSError: the file cannot be written, or an error of `content`.
        """
        item = self._imports[import_id]
        path = item.scratch / "sent" / _file_name(item.name)
        path.parent.mkdir()
        with path.open("xb") as file:
            async for chunk in content:
                await asyncio.to_thread(file.write, chunk)
        return path

    def start(self, import_id: str, traces: Sequence[Path]) -> None:
        """Import the traces when all earlier imports are finished."""
        item = self._imports[import_id]
        item.task = asyncio.create_task(self._work(item, traces))

    def abandon(self, import_id: str) -> None:
        """Forget an import that was not started."""
        shutil.rmtree(self._imports.pop(import_id).scratch, ignore_errors=True)

    def progress(self, import_id: str) -> ImportProgress:
        """Report the progress of an import.

        Raises:
            Refusal: there is no such import.
        """
        if import_id not in self._imports:
            raise Refusal(404, "There is no such import.")
        return self._imports[import_id].progress

    async def close(self) -> None:
        """End all imports, which removes their files."""
        for item in self._imports.values():
            if item.task is not None:
                item.task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await item.task

    async def _work(self, item: _Import, traces: Sequence[Path]) -> None:
        import_id = item.progress.id
        try:
            async with self._turn:
                failure = await self._import(item, traces)
                run = None if failure else await asyncio.to_thread(self._publish, item)
        except OSError as error:
            run, failure = None, f"The run cannot be written: {error.strerror or error}."
        finally:
            await asyncio.to_thread(shutil.rmtree, item.scratch, ignore_errors=True)
        item.progress = ImportProgress(
            id=import_id,
            finished=True,
            done_ratio=1.0 if run else item.progress.done_ratio,
            run=run,
            failure=failure,
        )
        self._on_change()

    async def _import(self, item: _Import, traces: Sequence[Path]) -> str | None:
        """Run the import and return the sentence of its error."""
        name = _run_name(item.name)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "stepscope", "import", "--progress", "-o", str(item.scratch / name)),
            *("--", *map(str, traces)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        sentences = []
        try:
            async for line in cast("asyncio.StreamReader", process.stderr):
                text = line.decode("utf-8", "replace").strip()
                try:
                    ratio = float(text)
                except ValueError:
                    sentences.append(text.removeprefix("stepscope: "))
                else:
                    item.progress = ImportProgress(
                        id=item.progress.id,
                        finished=False,
                        done_ratio=ratio,
                        run=None,
                        failure=None,
                    )
            status = await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
        if status == 0:
            return None
        return sentences[-1] if sentences else "The import was ended by the system."

    def _publish(self, item: _Import) -> str:
        """Move the complete run to its place and return its id."""
        runs = item.scratch.parent
        name = _run_name(item.name)
        for number in range(1, MAX_NAMESAKES + 1):
            run = runs / (name if number == 1 else f"{name}-{number}")
            try:
                run.mkdir()  # the rename replaces an empty directory, and no other
            except FileExistsError:
                continue
            (item.scratch / name).rename(run)
            return str(run.relative_to(item.root))
        raise FileExistsError(errno.EEXIST, f"{runs} has many runs named {name}")


def _run_name(name: str) -> str:
    """Turn the name of a trace into that of a run.

    >>> _run_name("worker0.1623143089861.pt.trace.json.gz")
    'worker0.1623143089861'
    """
    return _SUFFIXES.sub("", _file_name(name), count=1).rstrip("-.") or "trace"


def _file_name(name: str) -> str:
    """Turn a name that a page sends into a file name that is neither hidden nor long."""
    return _OTHER.sub("-", name)[-_MAX_NAME_LENGTH:].lstrip("-.") or "trace"
