"""`stepscope export RUN --to FORMAT -o FILE`: runs and their traces as files of other tools."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

from stepscope.cli.opening import open_run
from stepscope.cli.options import json_option, run_argument
from stepscope.cli.output import print_json
from stepscope.errors import UsageError
from stepscope.exporters import Exported, export_chrome, export_timeline
from stepscope.quantities import count_of
from stepscope.run import Trace
from stepscope.views import ViewOptions, explain_no_traces, select_traces

_FILE = re.compile(r"\.json(\.gz)?$|\.gz$")


@click.command(
    "export",
    help="Write the traces of RUN in the format of other tools. Several traces become one file "
    "each in the directory OUTPUT, or a single file with --merge.",
)
@run_argument
@click.option(
    "--to",
    "form",
    type=click.Choice(["chrome", "timeline"]),
    required=True,
    help="chrome: traces in the JSON format of PyTorch's profiler, for chrome://tracing, "
    "Perfetto and other tools that read it. timeline: the whole run in one such file: metrics as "
    "counters, the spans of all processes, and the traces.",
)
@click.option(
    "-o",
    "--output",
    "output",
    metavar="OUTPUT",
    required=True,
    type=click.Path(path_type=Path),
    help="Output file, compressed if its name ends in .gz; a directory for several traces.",
)
@click.option("--trace", "trace", metavar="NAME", help="Export only the trace NAME.")
@click.option(
    "--rank",
    "rank",
    type=click.IntRange(min=0),
    metavar="N",
    help="Export only traces of rank N.",
)
@click.option("--merge", is_flag=True, help="Write all traces into one file.")
@click.option(
    "--spans/--no-spans",
    default=True,
    help="Include the spans that stepscope recorded in the same process. Default: --spans.",
)
@click.option(
    "--counters",
    is_flag=True,
    help="Add counters: the queue depth of each stream and the bandwidth of copies.",
)
@json_option
def command(
    run: str,
    *,
    form: str,
    output: Path,
    trace: str | None,
    rank: int | None,
    merge: bool,
    spans: bool,
    counters: bool,
    as_json: bool,
) -> None:
    if form == "timeline":
        if trace is not None or rank is not None or merge or counters:
            raise UsageError(
                "--to timeline exports the whole run; remove --trace, --rank, --merge and "
                "--counters."
            )
        _write_timeline(run, output, as_json=as_json)
        return
    options = ViewOptions(rank=rank, trace=trace)
    signals = open_run(run)
    recordings = select_traces(signals, options)
    missing = explain_no_traces(signals, recordings)
    if missing is not None:
        raise UsageError(f"Nothing to export: {missing}.")
    files = _files(recordings, output, merge=merge)
    written = [
        export_chrome(traces, path, spans=spans, counters=counters)
        for path, traces in files.items()
    ]
    _report(written, run, form, as_json=as_json)


def _write_timeline(run: str, output: Path, *, as_json: bool) -> None:
    if output.is_dir():
        raise UsageError(f"{output} is a directory; pass a file to -o.")
    written = export_timeline(open_run(run), output)
    if as_json:
        payload = {"run": run, "format": "timeline", "files": [written]}
        print_json(payload)
        return
    click.echo(
        f"{written.path}: {count_of(written.counter_count, 'sample')}, "
        f"{count_of(written.span_count, 'span')}, {count_of(len(written.recordings), 'trace')}"
    )


def _files(
    recordings: Sequence[Trace], output: Path, *, merge: bool
) -> dict[Path, Sequence[Trace]]:
    """Assign traces to output files."""
    if merge or (len(recordings) == 1 and not output.is_dir()):
        if output.is_dir():
            raise UsageError(f"{output} is a directory; pass a file to -o with --merge.")
        return {output: recordings}
    if output.is_file() or (_FILE.search(output.name) and not output.is_dir()):
        raise UsageError(
            f"Cannot write {len(recordings)} traces to one file, {output}; pass a directory to -o, "
            "select one trace with --trace or --rank, or add --merge."
        )
    files: dict[Path, Sequence[Trace]] = {}
    for recording in recordings:
        files[_free(output / _file_name(recording.name), files)] = [recording]
    return files


def _file_name(recording: str) -> str:
    """Turn the name of a trace into a file name; names of directories become its prefix."""
    name = re.sub(r"[^\w.=+-]+", "-", recording).strip("-.") or "trace"
    return name if _FILE.search(name) else f"{name}.json"


def _free(path: Path, used: dict[Path, Sequence[Trace]]) -> Path:
    """Return the path, with a number before its suffixes if another trace uses it."""
    stem, dot, endings = path.name.partition(".json")
    number, candidate = 2, path
    while candidate in used:
        candidate = path.with_name(f"{stem}-{number}{dot}{endings}")
        number += 1
    return candidate


def _report(written: Sequence[Exported], run: str, form: str, *, as_json: bool) -> None:
    if as_json:
        payload = {"run": run, "format": form, "files": written}
        print_json(payload)
        return
    for file in written:
        recording_count = len(file.recordings)
        content = file.recordings[0] if recording_count == 1 else f"{recording_count} traces"
        click.echo(f"{file.path}: {content}, {count_of(file.event_count, 'event')}")
