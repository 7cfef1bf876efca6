"""`stepscope import SOURCE… -o RUN`: traces of other tools as a run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from stepscope import errors, importers, schema, store
from stepscope.cli.opening import describe_import, ended_by_sigterm, import_all
from stepscope.cli.options.common import json_option
from stepscope.cli.output import locate, print_json, say, suggest
from stepscope.cores import available_processes, start_worker
from stepscope.quantities import count_of, file_size

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")


MAX_SUMMARISED_EVENTS = 200_000
"""The verdict of a longer trace takes as long as its import: it is computed when it is needed."""
_SILENCE_S = 60
"""Timeout for a server that sends nothing."""


class RefusedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file without readable content."""

    path: str
    reason: str


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """The payload."""

    run: str
    doubts: list[str]
    """What may make the traces say something else, the worst first."""
    traces: list[importers.Imported]
    recorded: list[importers.Recorded]
    copied: list[importers.Copied]
    refused: list[RefusedFile]


@click.command(
    "import",
    help="Import traces (files, directories, URLs, also of object stores) into the new run RUN.",
)
@click.argument("sources", metavar="SOURCE…", nargs=-1, required=True)
@click.option(
    "-o", "--output", "run", metavar="RUN", required=True, help="Directory or URL of the new run."
)
@click.option(
    "--step-range",
    metavar="NAME",
    help="Ranges of traces that are steps, such as an NVTX range; a number may follow the name.",
)
@click.option(
    "--progress",
    "as_lines",
    is_flag=True,
    help="Print the share that is done on standard error, one number per line, for other programs.",
)
@json_option("stepscope.cli.commands.import_traces.ImportReport")
def command(
    sources: Sequence[str], run: str, step_range: str | None, as_lines: bool, as_json: bool
) -> None:
    with ExitStack() as stack:
        local = {source: _local(stack, source) for source in sources}
        files = importers.find_files(local.values())
        if not files:
            raise errors.UsageError(
                f"No files in {', '.join(sources)}; pass a trace or a directory of traces."
            )
        run_id = run.rstrip("/").rpartition("/")[2] if store.is_remote(run) else Path(run).name
        originals = importers.find_files(
            path for source, path in local.items() if path == Path(source)
        )
        info = describe_import(run_id, sources, originals)
        making = _new_remote_run(run, info) if store.is_remote(run) else _new_run(run, info)
        with ended_by_sigterm(), making as directory:
            outcome = f"Nothing was imported, and {run} was not created."
            results = import_all(
                files, directory, outcome, step_range=step_range, as_lines=as_lines
            )
            doubts, has_work = _examine(directory, results)
    _report(results, doubts, run, has_work=has_work, as_json=as_json)
    events = sum(one.event_count for one in results if isinstance(one, importers.Imported))
    if events <= MAX_SUMMARISED_EVENTS:
        with suppress(Exception):  # `stepscope fleet` summarises it again
            from stepscope import comparison
            from stepscope.run import open_run

            comparison.get_summary(open_run(run))


@contextmanager
def _new_run(run: str, info: schema.RunInfo) -> Iterator[Path]:
    """Create a run, and remove it again on an error. Existing files are not touched."""
    directory = Path(run)
    existed = directory.is_dir()
    if existed and any(directory.iterdir()) and not (directory / "run.json").exists():
        raise errors.UsageError(f"The directory {run} is not empty; pass a new one to -o.")
    store.create_run(run, info)
    try:
        yield directory
    except BaseException:
        for entry in directory.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()
        if not existed:
            directory.rmdir()
        raise


@contextmanager
def _new_remote_run(run: str, info: schema.RunInfo) -> Iterator[Path]:
    """Create a run in a temporary directory, and upload it to a bucket unless an error occurs.

    Beforehand it checks that the URL is free."""
    _in_process(run, store.check_free, run)
    with tempfile.TemporaryDirectory(prefix="stepscope-import-") as directory:
        run_directory = Path(directory, "run")
        store.create_run(run_directory, info)
        yield run_directory
        store.upload_run(run_directory, run)


def _in_process(url: str, work: Callable[..., T], *arguments: Any) -> T:
    """Call a function that uses an object store in a process of its own.

    The client of the object store has threads, and the processes that import are forked later.
    """
    if available_processes() == 1:  # no process will be forked
        return work(*arguments)
    pipe, process = start_worker(_answer, [], work, arguments)
    try:
        answer = pipe.recv()
    except EOFError:
        raise errors.UsageError(
            f"Cannot read {url}: the process that contacted the object store was killed."
        ) from None
    finally:
        pipe.close()
        process.join()
    if isinstance(answer, Exception):
        raise answer
    result: T = answer
    return result


def _answer(pipe: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        pipe.send(work(*arguments))
    except (errors.StepscopeError, OSError) as error:
        pipe.send(error)


def _local(stack: ExitStack, source: str) -> Path:
    """Return the source as a local path; download URLs and copy pipes to a temporary directory."""
    if source.startswith(("http://", "https://")):
        target = _temporary(stack, source.rstrip("/").rpartition("/")[2].partition("?")[0])
        _fetch(source, target)
        return target
    if store.is_remote(source):
        # The last part of a prefix may name the rank.
        directory = _temporary(stack, source.rstrip("/").rpartition("/")[2])
        directory.mkdir()
        _say_download(source, _in_process(source, store.download_files, source, directory))
        return directory
    path = Path(source)
    if not path.exists():
        raise errors.UsageError(f"{source} does not exist; pass a trace, a directory or a URL.")
    if path.is_file() or path.is_dir():
        return path
    target = _temporary(stack, path.name)  # a pipe
    with path.open("rb") as pipe, target.open("wb") as file:
        shutil.copyfileobj(pipe, file)
    return target


def _say_download(url: str, download: store.Download) -> None:
    ignored = count_of(download.ignored_count, "object")
    say(
        f"Downloaded {count_of(download.file_count, 'file')} of {file_size(download.size_bytes)} "
        f"from {url}" + (f"; ignored {ignored} of other types." if download.ignored_count else ".")
    )


def _temporary(stack: ExitStack, name: str) -> Path:
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="stepscope-import-"))
    return Path(directory, name or "trace.json")


def _fetch(url: str, target: Path) -> None:
    import http.client  # takes 20 ms with TLS, and is seldom needed
    import urllib.error
    import urllib.request

    from stepscope.masking import mask_text

    try:
        with (
            urllib.request.urlopen(url, timeout=_SILENCE_S) as answer,  # noqa: S310
            target.open("wb") as file,
        ):
            shutil.copyfileobj(answer, file)
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it is the response as well
        reason = getattr(error, "reason", error) or type(error).__name__
        raise errors.UsageError(f"Cannot download {mask_text(url)}: {reason}.") from error


def _examine(directory: Path, results: Sequence[importers.Result]) -> tuple[list[str], bool]:
    """Return what may make the imported traces say something else, and whether a verdict can be
    made of them."""
    if not any(isinstance(result, importers.Imported) for result in results):
        return [], False
    from stepscope import run

    reader = store.open_run(directory)
    doubts = [doubt.sentence for doubt in run.list_run_doubts(run.Run(reader))]
    return doubts, any(map(reader.has, ("kernels", "operators")))


def _report(
    results: Sequence[importers.Result],
    doubts: Sequence[str],
    run: str,
    *,
    has_work: bool,
    as_json: bool,
) -> None:
    read = [result for result in results if isinstance(result, importers.Imported)]
    recorded = [result for result in results if isinstance(result, importers.Recorded)]
    copied = [result for result in results if isinstance(result, importers.Copied)]
    refused = [result for result in results if isinstance(result, importers.Refused)]
    if as_json:
        print_json(
            ImportReport(
                run=run,
                doubts=list(doubts),
                traces=read,
                recorded=recorded,
                copied=copied,
                refused=[RefusedFile(path=str(r.path), reason=r.reason) for r in refused],
            )
        )
        return
    present: list[tuple[importers.Format, Sequence[importers.Imported | importers.Recorded]]] = []
    if read:
        present.append((importers.TRACE, read))
    for item in importers.list_formats():
        of_format = [result for result in recorded if result.form in (item.parts or (item.name,))]
        if of_format:
            present.append((item, of_format))
    for item, results in present:
        click.echo(_describe(item, results, run))
    for doubt in doubts:
        click.echo(f"! {doubt}")
    if doubts:
        click.echo(f"All doubts: {suggest('show', locate(run), 'quality')}")
    view = "timeline" if read else next((item.view for item, _ in present), None)
    view = None if has_work else view
    words = ("diagnose", locate(run)) if view is None else ("show", locate(run), view)
    click.echo(f"Next: {suggest(*words)}")


def _describe(
    form: importers.Format, results: Sequence[importers.Imported | importers.Recorded], run: str
) -> str:
    samples = sum(
        result.sample_count for result in results if isinstance(result, importers.Recorded)
    )
    return form.sentence.format(
        files=count_of(len(results), form.file),
        events=count_of(sum(result.event_count for result in results), form.event),
        samples=count_of(samples, "sample"),
        run=run,
    )
