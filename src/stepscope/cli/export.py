"""`stepscope export RUN --to FORMAT -o FILE`: runs and their recordings as files of other tools."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

from stepscope.cli.options import json_option, run_argument
from stepscope.cli.output import print_json
from stepscope.errors import UsageError
from stepscope.exporters import Exported, export_chrome, export_timeline
from stepscope.quantities import count
from stepscope.run import Run, Trace
from stepscope.store import open_run
from stepscope.views import ViewOptions, explain_no_traces, select_traces

_FILE = re.compile(r"\.json(\.gz)?$|\.gz$")


@click.command(
    "export",
    help="Write recordings of RUN in the format of other tools. Several recordings become one "
    "file each in the directory OUTPUT, or one file together with --merge.",
)
@run_argument
@click.option(
    "--to",
    "form",
    type=click.Choice(["chrome", "timeline"]),
    required=True,
    help="chrome: recordings as the JSON of PyTorch's profiler, for chrome://tracing, Perfetto "
    "and tools that read it. timeline: the whole run in one such file, with metrics as counters, "
    "the spans of all processes, and the recordings.",
)
@click.option(
    "-o",
    "--output",
    "output",
    metavar="OUTPUT",
    required=True,
    type=click.Path(path_type=Path),
    help="A file, compressed when its name ends in .gz; a directory for several recordings.",
)
@click.option("--trace", "trace", metavar="NAME", help="Only the recording of this name.")
@click.option(
    "--rank",
    "rank",
    type=click.IntRange(min=0),
    metavar="N",
    help="Only recordings of this rank.",
)
@click.option("--merge", is_flag=True, help="All recordings into one file, side by side.")
@click.option(
    "--spans/--no-spans",
    default=True,
    help="Whether to add what stepscope itself recorded of the same process. Default: --spans.",
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
    as_json: bool,
) -> None:
    if form == "timeline":
        if trace is not None or rank is not None or merge:
            raise UsageError(
                "--to timeline takes the whole run: leave out --trace, --rank, --merge."
            )
        _write_timeline(run, output, as_json=as_json)
        return
    options = ViewOptions(rank=rank, trace=trace)
    signals = Run(open_run(run))
    recordings = select_traces(signals, options)
    missing = explain_no_traces(signals, recordings)
    if missing is not None:
        raise UsageError(f"Nothing can be exported: {missing}.")
    files = _files(recordings, output, merge=merge)
    written = [export_chrome(traces, path, spans=spans) for path, traces in files.items()]
    _report(written, run, form, as_json=as_json)


def _write_timeline(run: str, output: Path, *, as_json: bool) -> None:
    if output.is_dir():
        raise UsageError(f"{output} is a directory. Name a file for the timeline.")
    written = export_timeline(Run(open_run(run)), output)
    if as_json:
        payload = {"run": run, "format": "timeline", "files": [written]}
        print_json(payload)
        return
    click.echo(
        f"{written.path}: {count(written.counter_count)} samples, {count(written.span_count)} "
        f"spans, {len(written.recordings)} recordings"
    )


def _files(
    recordings: Sequence[Trace], output: Path, *, merge: bool
) -> dict[Path, Sequence[Trace]]:
    """Assign traces to output files."""
    if merge or (len(recordings) == 1 and not output.is_dir()):
        if output.is_dir():
            raise UsageError(f"{output} is a directory. Name a file for the merged recordings.")
        return {output: recordings}
    if output.is_file() or (_FILE.search(output.name) and not output.is_dir()):
        raise UsageError(
            f"{len(recordings)} recordings do not go into the one file {output}: name a "
            "directory, choose one with --trace or --rank, or give --merge."
        )
    files: dict[Path, Sequence[Trace]] = {}
    for recording in recordings:
        files[_free(output / _file_name(recording.name), files)] = [recording]
    return files


def _file_name(recording: str) -> str:
    """A recording's name as the name of a file: those of directories before it joined to it."""
    name = re.sub(r"[^\w.=+-]+", "-", recording).strip("-.") or "trace"
    return name if _FILE.search(name) else f"{name}.json"


def _free(path: Path, used: dict[Path, Sequence[Trace]]) -> Path:
    """The path, with a number before its endings when another recording has it."""
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
        content = file.recordings[0] if recording_count == 1 else f"{recording_count} recordings"
        click.echo(f"{file.path}: {content}, {count(file.event_count)} events")
