"""`stepscope export RUN --to FORMAT -o FILE`: runs and their traces as files of other tools."""

from __future__ import annotations

import re
from typing import Any

import click
import msgspec

from stepscope import errors, exporters
from stepscope.cli.opening import open_run, say_damage, say_recovery
from stepscope.cli.options.common import json_option, parsed_by, run_argument, split_names
from stepscope.cli.output import print_json
from stepscope.exporters import SOURCES
from stepscope.run import explain_damage


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    """The payload."""

    run: str
    format: str
    files: list[exporters.Written]
    """Each with further fields of its format."""
    damage: list[str]
    """One sentence per file of the run that cannot be read: what it had is not in the files."""


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
    type=click.Choice(exporters.list_exporters()),
    metavar="FORMAT",
    required=True,
    help="chrome: traces in the JSON format of PyTorch's profiler, for chrome://tracing, "
    "Perfetto and other tools that read it. timeline: the whole run in one such file: metrics as "
    "counters, the spans of all processes, and the traces. perfetto: the same in Perfetto's "
    "protobuf. tensorboard: scalars, losses, and statistics and histograms of tensors, as event "
    "files in the directory OUTPUT. summary: "
    "verdict, shares, times and cost as one flat JSON file, which `stepscope compare BASE RUN` "
    "takes in place of a run. parquet, arrow: one table of a view, with units. speedscope, "
    "pprof: stack samples, and operators with their time on host and device, as flame graphs. "
    "prometheus, otlp, mlflow, wandb: figures of the run for these.",
)
@click.option(
    "-o",
    "--output",
    "--out",
    "output",
    metavar="OUTPUT",
    required=True,
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
    "--for",
    "reader",
    type=click.Choice(exporters.READERS),
    help="For chrome: write ranges of the host as operators, as the profiler plug-in of "
    "TensorBoard expects. Perfetto, HTA and stepscope tell them apart: leave it out there.",
)
@click.option(
    "--steps",
    callback=parsed_by(_parse_steps),
    metavar="FIRST:END",
    help="For timeline: only the time of these steps, END excluded.",
)
@click.option(
    "--source",
    multiple=True,
    callback=parsed_by(split_names),
    metavar="NAME,…",
    help=f"For timeline: only some of {', '.join(SOURCES)}; may be repeated. bottlenecks are marks "
    "of GPUs that are hardly used, and of findings of rules.",
)
@click.option(
    "--suffix",
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
@click.option("--view", "view", metavar="VIEW", help="For parquet and arrow: the view to write.")
@click.option(
    "--table",
    "table",
    metavar="NAME",
    help="For parquet and arrow: the table of the view. Default: its main table, as with --csv "
    "of show.",
)
@json_option("stepscope.cli.commands.export.ExportReport")
def command(run: str, *, form: str, output: str, as_json: bool, **values: Any) -> None:
    options = exporters.ExportOptions(**values)
    opened = open_run(run)
    try:
        written = exporters.export(opened, form, output, options)
    except errors.UsageError as error:
        sentence = explain_damage(opened.reader.damage)
        raise errors.UsageError(f"{sentence} {error}" if sentence else str(error)) from None
    damage = opened.reader.damage
    if as_json:
        print_json(ExportReport(run=run, format=form, files=list(written), damage=damage))
        return
    say_recovery(opened.reader)
    say_damage(damage)
    for file in written:
        click.echo(f"{file.path}: {file.content}")
