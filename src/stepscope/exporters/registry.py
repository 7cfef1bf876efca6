"""Registry of exporters: built-in ones and those of installed packages.

A package offers an exporter by an entry point of the group `stepscope.exporters` that names a class
with the members of `Exporter`. Built-in exporters are entry points as well: an exporter is loaded
when it is asked for.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import fields

from stepscope import errors
from stepscope.entry_points import BuiltIn, entry_points
from stepscope.masking import mask_text
from stepscope.run import Run

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "stepscope.exporters"
BUILT_IN = tuple(
    BuiltIn(name, f"stepscope.exporters.{value}")
    for name, value in (
        ("chrome", "chrome:ChromeExporter"),
        ("timeline", "timeline:TimelineExporter"),
        ("perfetto", "perfetto:PerfettoExporter"),
        ("tensorboard", "tensorboard:TensorBoardExporter"),
        ("summary", "summary:SummaryExporter"),
        ("parquet", "columnar:ParquetExporter"),
        ("arrow", "columnar:ArrowExporter"),
        ("speedscope", "speedscope:SpeedscopeExporter"),
        ("pprof", "pprof:PprofExporter"),
        ("prometheus", "prometheus:PrometheusExporter"),
        ("otlp", "otlp:OtlpExporter"),
        ("mlflow", "trackers:MlflowExporter"),
        ("wandb", "trackers:WandbExporter"),
    )
)
"""By the names that `--to` takes."""


class ExportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of an export; each exporter takes some of them."""

    trace: str | None = None
    """Name of the only trace to export."""
    rank: int | None = None
    merge: bool = False
    """Write all traces into one file."""
    spans: bool = True
    """Add the spans that stepscope recorded in the process of a trace."""
    counters: bool = False
    """Add the queue depth of each stream and the bandwidth of copies."""
    steps: tuple[int, int] | None = None
    """First step and the step after the last."""
    source: tuple[str, ...] = ()
    suffix: tuple[str, ...] = ()
    """Ends of the names of the imported files whose spans and traces are exported."""
    gpu_below: float | None = None
    """Percentage of the time below which a GPU is marked as hardly used."""
    reader: str | None = None
    """Tool that a Chrome file is for; see `chrome.READERS`."""
    view: str | None = None
    """View whose table is written."""
    table: str | None = None
    """Table of the view; None for the one that is named like it, else the longest."""

    def changed(self) -> list[str]:
        """Return the names of the options that are not at their defaults."""
        return [field.name for field in fields(self) if getattr(self, field.name) != field.default]


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was written, or a place that was sent figures."""

    path: str
    content: str
    """What it holds, in a few words with numbers."""


class Exporter(Protocol):
    """Writer of one format."""

    options: frozenset[str]
    """Names of the fields of `ExportOptions` that it takes."""

    def export(self, run: Run, output: str, options: ExportOptions) -> Sequence[Written]:
        """Write a run.

        Args:
            run: the run.
            output: a file, a directory or a URL, as the format has it.
            options: all that differ from their defaults are in `options` of the exporter.

        Raises:
            UsageError: there is nothing to write, or the output does not fit.
            OSError: a file cannot be written.
        """


class LiveExporter(Exporter, Protocol):
    """Writer of a format that is of use while a job runs."""

    def choose_output(self, output: str | None) -> str:
        """Return where figures go while a job runs.

        Args:
            output: the user's choice; None for that of the environment.

        Raises:
            UsageError: the format needs another choice, or a library that is not installed.
        """


def choose_live_output(name: str, output: str | None) -> str:
    """Check, before a job starts, that its figures can be sent while it runs.

    Raises:
        UsageError: there is no such format, or see `LiveExporter.choose_output`.
    """
    exporter = load_exporter(name)
    if not hasattr(exporter, "choose_output"):
        live = ", ".join(n for n in list_exporters() if hasattr(load_exporter(n), "choose_output"))
        raise errors.UsageError(
            f"{name} is not written while a job runs; choose one of {live}, or export the run "
            "afterwards."
        )
    live_exporter: LiveExporter = exporter  # type: ignore[assignment]
    address = live_exporter.choose_output(output)
    if "://" in address and mask_text(address) != address:
        raise errors.UsageError(
            f"The URL of --to {name} holds a password or a token, which other users of the machine "
            "could read; pass it in an environment variable of the receiver's library."
        )
    return address


def require_output(name: str, output: str | None, kind: str) -> str:
    """Return the output of a live export.

    Raises:
        UsageError: there is none.
    """
    if output:
        return output
    raise errors.UsageError(f"--to {name} needs a {kind}: pass --to {name}={kind.upper()}.")


def check_library(module: str, *, extra: str) -> None:
    """Check that a library is installed, without importing it.

    Raises:
        UsageError: it is not.
    """
    if importlib.util.find_spec(module) is None:
        errors.require(module, extra=extra)


def list_exporters() -> list[str]:
    """List the names of all exporters."""
    return [offer.name for offer in _offers()]


def load_exporter(name: str) -> Exporter:
    """Load an exporter by its name.

    Raises:
        UsageError: there is none of this name, or its package is broken or lacks another one.
    """
    offer = next((offer for offer in _offers() if offer.name == name), None)
    if offer is None:
        raise errors.UsageError(
            f"There is no format {name!r}; there are {', '.join(list_exporters())}."
        )
    try:
        exporter: Exporter = offer.load()()
        missing = [member for member in ("options", "export") if not hasattr(exporter, member)]
        if missing:
            raise TypeError(f"{offer.value} has no {' and no '.join(missing)}")
    except errors.StepscopeError:
        raise
    except Exception as error:
        raise errors.UsageError(f"The exporter {name} cannot be loaded: {error}.") from error
    return exporter


def export(run: Run, name: str, output: str, options: ExportOptions) -> Sequence[Written]:
    """Write a run in a format; see `Exporter.export`.

    Raises:
        UsageError: the format does not take an option, and as `Exporter.export`.
    """
    exporter = load_exporter(name)
    refused = [option for option in options.changed() if option not in exporter.options]
    if refused:
        takes = (
            ", ".join(spell_option(option) for option in sorted(exporter.options)) or "no options"
        )
        flags = " and ".join(map(spell_option, refused))
        raise errors.UsageError(f"--to {name} does not take {flags}; it takes {takes}.")
    return exporter.export(run, output, options)


_FLAGS = {"spans": "--no-spans", "reader": "--for"}


def spell_option(option: str) -> str:
    """Return the flag of an option."""
    return _FLAGS.get(option) or f"--{option.replace('_', '-')}"


def _offers() -> list[BuiltIn | Any]:
    installed: list[BuiltIn | EntryPoint] = [*BUILT_IN, *entry_points(GROUP)]
    return installed
