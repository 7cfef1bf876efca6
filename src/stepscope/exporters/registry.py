"""Registry of exporters: built-in ones and those of installed packages.

A package offers an exporter by an entry point of the group `stepscope.exporters` that names a class
with the members of `Exporter`. Built-in exporters are entry points as well: an exporter is loaded
when it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import fields

from stepscope import errors
from stepscope.entry_points import BuiltIn, entry_points
from stepscope.run import Run

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "stepscope.exporters"
BUILT_IN = tuple(
    BuiltIn(name, f"stepscope.exporters.{value}")
    for name, value in (
        ("chrome", "chrome:ChromeExporter"),
        ("timeline", "timeline:TimelineExporter"),
        ("tensorboard", "tensorboard:TensorBoardExporter"),
        ("summary", "summary:SummaryExporter"),
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
        takes = ", ".join(_spell(option) for option in sorted(exporter.options)) or "no options"
        raise errors.UsageError(
            f"--to {name} does not take {' and '.join(map(_spell, refused))}; it takes {takes}."
        )
    return exporter.export(run, output, options)


def _spell(option: str) -> str:
    return "--no-spans" if option == "spans" else f"--{option.replace('_', '-')}"


def _offers() -> list[BuiltIn | Any]:
    installed: list[BuiltIn | EntryPoint] = [*BUILT_IN, *entry_points(GROUP)]
    return installed
