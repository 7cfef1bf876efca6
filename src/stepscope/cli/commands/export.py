"""`stepscope export RUN --to FORMAT -o FILE`: runs and their traces as files of other tools."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click
import msgspec

from stepscope import errors, exporters, views
from stepscope.cli.opening import open_run
from stepscope.cli.options.common import json_option, parsed_by, run_argument, split_names
from stepscope.cli.output import print_json
from stepscope.exporters import SOURCES
from stepscope.quantities import count_of
from stepscope.run import Run, Trace

_FILE = re.compile(r"\.json(\.gz)?$|\.gz$")


class ExportedTraces(msgspec.Struct, frozen=True, kw_only=True):
    """The payload, of traces."""

    run: str
    format: str
    files: list[exporters.Exported]


class ExportedTimelines(msgspec.Struct, frozen=True, kw_only=True):
    """The payload, of the timeline."""

    run: str
    format: Literal["timeline"] = "timeline"
    files: list[exporters.ExportedTimeline]


class ExportedEventFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The payload, of scalars and tensors."""

    run: str
    format: Literal["tensorboard"] = "tensorboard"
    files: list[exporters.ExportedEvents]


def _parse_steps(text: str) -> tuple[int, int]:
    """Parse the first step and the step after the last.

    >>> _parse_steps("10:20")
    (10, 20)
    """
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise click.BadParameter(f"{text!r} is not a range of steps, e.g. 10:20.")
    return int(match[1]), int(match[2])


@click.command(
    "export",
    help="Write the traces or tensors of RUN in the format of other tools. Several traces become "
    "one file each in the directory OUTPUT, or a single file with --merge.",
)
@run_argument
@click.option(
    "--to",
    "form",
    type=click.Choice(["chrome", "timeline", "tensorboard"]),
    required=True,
    help="chrome: traces in the JSON format of PyTorch's profiler, for chrome://tracing, "
    "Perfetto and other tools that read it. timeline: the whole run in one such file: metrics as "
    "counters, the spans of all processes, and the traces. tensorboard: scalars, losses, and "
    "statistics and histograms of tensors, as event files in the directory OUTPUT.",
)
@click.option(
    "-o",
    "--output",
    "--out",
    "output",
    metavar="OUTPUT",
    required=True,
    type=click.Path(path_type=Path),
    help="Output file, compressed if its name ends in .gz; a directory for several traces.",
)
@click.option("--trace", "trace", metavar="NAME", help="Export only the trace NAME.")
@click.option(
    "--rank", "rank", type=click.IntRange(min=0), metavar="N", help="Export only traces of rank N."
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
@click.option(
    "--steps",
    callback=parsed_by(_parse_steps),
    metavar="FIRST:END",
    help="For timeline: only the time of these steps, END excluded.",
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    callback=parsed_by(split_names),
    metavar="NAME,…",
    help=f"For timeline: only some of {', '.join(SOURCES)}; may be repeated. bottlenecks are marks "
    "of GPUs that are hardly used, and of findings of rules.",
)
@click.option(
    "--suffix",
    "suffixes",
    multiple=True,
    callback=parsed_by(split_names),
    metavar="TEXT,…",
    help="For timeline: only spans and traces of imported files whose names end in TEXT, e.g. "
    "horovod_timeline; may be repeated.",
)
@click.option(
    "--gpu-below",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="For timeline: mark GPUs that are busy for a smaller share of the time. "
    f"Default: {100 * exporters.GPU_BELOW_RATIO:g}.",
)
@json_option(
    "stepscope.cli.commands.export.ExportedTraces",
    "stepscope.cli.commands.export.ExportedTimelines",
    "stepscope.cli.commands.export.ExportedEventFiles",
)
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
    steps: tuple[int, int] | None,
    sources: tuple[str, ...],
    suffixes: tuple[str, ...],
    gpu_below: float | None,
    as_json: bool,
) -> None:
    if form == "timeline":
        if trace is not None or rank is not None or merge or counters:
            raise errors.UsageError(
                "--to timeline exports the whole run; remove --trace, --rank, --merge and "
                "--counters."
            )
        opened = open_run(run)
        content = exporters.choose_content(
            opened,
            sources=sources or SOURCES,
            suffixes=suffixes or None,
            gpu_below_ratio=exporters.GPU_BELOW_RATIO if gpu_below is None else gpu_below / 100,
        )
        _write_timeline(opened, run, output, steps=steps, content=content, as_json=as_json)
        return
    if steps is not None or sources or suffixes or gpu_below is not None:
        raise errors.UsageError(
            "--steps, --source, --suffix and --gpu-below are for --to timeline."
        )
    if form == "tensorboard":
        if trace is not None or rank is not None or merge or counters:
            raise errors.UsageError(
                "--to tensorboard exports the scalars and tensors of all ranks; remove --trace, "
                "--rank, --merge and --counters."
            )
        _write_event_files(open_run(run), run, output, as_json=as_json)
        return
    options = views.ViewOptions(rank=rank, trace=trace)
    signals = open_run(run)
    recordings = views.select_traces(signals, options)
    missing = views.explain_no_traces(signals, recordings)
    if missing is not None:
        raise errors.UsageError(f"Nothing to export: {missing}.")
    files = _files(recordings, output, merge=merge)
    written = [
        exporters.export_chrome(traces, path, spans=spans, counters=counters)
        for path, traces in files.items()
    ]
    _report(written, run, form, as_json=as_json)


def _write_timeline(
    opened: Run,
    run: str,
    output: Path,
    *,
    steps: tuple[int, int] | None,
    content: exporters.TimelineContent,
    as_json: bool,
) -> None:
    if output.is_dir():
        raise errors.UsageError(f"{output} is a directory; pass a file to -o.")
    start_ns, end_ns = (None, None) if steps is None else exporters.find_step_range(opened, steps)
    written = exporters.export_timeline(
        opened, output, start_ns=start_ns, end_ns=end_ns, content=content
    )
    if as_json:
        print_json(ExportedTimelines(run=run, files=[written]))
        return
    click.echo(
        f"{written.path}: {count_of(written.counter_count, 'sample')}, "
        f"{count_of(written.span_count, 'span')}, {count_of(len(written.recordings), 'trace')}, "
        f"{count_of(written.bottleneck_count, 'mark')} of bottlenecks"
    )


def _write_event_files(opened: Run, run: str, output: Path, *, as_json: bool) -> None:
    if output.exists() and not output.is_dir():
        raise errors.UsageError(f"{output} is a file; pass a directory to -o for event files.")
    written = exporters.export_tensorboard(opened, output)
    if not written:
        raise errors.UsageError(
            "Nothing to export: the run has no scalars and no tensors; run the job with "
            "`--tensors weights,gradients,losses`."
        )
    if as_json:
        print_json(ExportedEventFiles(run=run, files=written))
        return
    for file in written:
        click.echo(
            f"{file.path}: {count_of(file.scalar_count, 'scalar')}, "
            f"{count_of(file.histogram_count, 'histogram')}"
        )


def _files(
    recordings: Sequence[Trace], output: Path, *, merge: bool
) -> dict[Path, Sequence[Trace]]:
    """Assign traces to output files."""
    if merge or (len(recordings) == 1 and not output.is_dir()):
        if output.is_dir():
            raise errors.UsageError(f"{output} is a directory; pass a file to -o with --merge.")
        return {output: recordings}
    if output.is_file() or (_FILE.search(output.name) and not output.is_dir()):
        raise errors.UsageError(
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


def _report(written: Sequence[exporters.Exported], run: str, form: str, *, as_json: bool) -> None:
    if as_json:
        print_json(ExportedTraces(run=run, format=form, files=list(written)))
        return
    for file in written:
        recording_count = len(file.recordings)
        content = file.recordings[0] if recording_count == 1 else f"{recording_count} traces"
        click.echo(f"{file.path}: {content}, {count_of(file.event_count, 'event')}")
