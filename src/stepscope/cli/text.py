"""Numbers and tables in a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from stepscope import quantities
from stepscope.cli.output import complete_commands

FILE_WIDTH = 100
"""Width of text that goes to a file or a pipe."""
BAR_CELLS = 24
GAP = 2
"""Between columns."""
MIN_NAME_CELLS = 12
"""Minimum width to which names are cut."""
duration = quantities.duration
_PICTURES = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}
_PICTURES |= dict.fromkeys(
    (*range(0x80, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD
)
"""Control characters of ASCII have pictures of their own; others, and those that turn the
direction of writing, become the replacement character."""


def printable(text: str) -> str:
    """Text with a picture in the place of every character that moves the cursor or does worse.

    >>> printable("red" + chr(27) + "[31m")
    'red␛[31m'
    """
    return text.translate(_PICTURES)


class _Printer(Console):
    """A console that no name in a recording can command: only line ends pass.

    Lines have no trailing blanks. Commands that a message suggests are complete where the run is
    known.
    """

    run: str | None = None
    """Location of the run that is written about."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, as other outputs do; the default ends the process."""
        raise  # noqa: PLE0704 - rich calls this while it handles the error

    def render_str(self, text: str, **options: Any) -> Text:
        """Complete the commands in a string, such as a cell of a table."""
        rendered = super().render_str(text, **options)
        return rendered if self.run is None else _complete(rendered, self.run)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        blanks: list[Segment] = []  # kept until the line goes on
        if self.run is not None and isinstance(renderable, Text):
            renderable = _complete(renderable, self.run)
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
                continue
            lines = segment.text.split("\n")
            text = "\n".join(
                [*(printable(line).rstrip(" ") for line in lines[:-1]), printable(lines[-1])]
            )
            content = text.rstrip(" ")
            if content:
                if not content.startswith("\n"):
                    yield from blanks
                blanks.clear()
                yield segment._replace(text=content)
            if len(content) < len(text):
                blanks.append(segment._replace(text=text[len(content) :]))
        yield from blanks


def _complete(text: Text, run: str) -> Text:
    for start, end, command in reversed(complete_commands(text.plain, run)):
        text = text[:start] + Text(command, style=text.style) + text[end:]
    return text


class _Rows(Table):
    """A table in which a line end in a cell does not end the row, and no number loses its end.

    Where it does not fit, headings of numbers are broken first, then names are cut, and then
    numbers are broken: a name is known by its beginning, a number without its unit is another.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [_widths(console, options, column) for column in self.columns]
        room = options.max_width - GAP * len(widths)
        if sum(width for width, _ in widths) > room:
            self._make_fit(widths, room)
        yield from super().__rich_console__(console, options)

    def _make_fit(self, widths: Sequence[tuple[int, int]], room: int) -> None:
        numbers: dict[int, int] = {}
        names: dict[int, int] = {}
        for index, (column, (preferred, needed)) in enumerate(
            zip(self.columns, widths, strict=True)
        ):
            if column.justify == "right":
                column.no_wrap, column.overflow = False, "fold"
                numbers[index] = needed
            else:
                names[index] = preferred
        names = _cut(names, room - sum(numbers.values()))
        fits = sum(names.values()) + sum(numbers.values()) <= room
        for index, width in (names | numbers if fits else names).items():
            self.columns[index].width = width

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        shown = [printable(cell) if isinstance(cell, str) else cell for cell in cells]
        super().add_row(*shown, **options)


def _widths(console: Console, options: ConsoleOptions, column: Column) -> tuple[int, int]:
    """Measure a column: its width, and its width with one word of the heading per line."""
    heading = Measurement.get(console, options, column.header)
    cells = [Measurement.get(console, options, cell).maximum for cell in column.cells]
    return max(heading.maximum, *cells, 0), max(heading.minimum, *cells, 0)


def _cut(widths: Mapping[int, int], room: int) -> dict[int, int]:
    """Reduce the widest columns of names until they fit, keeping them readable."""
    limit = max(widths.values(), default=0)
    while limit > MIN_NAME_CELLS and sum(min(width, limit) for width in widths.values()) > room:
        limit -= 1
    return {index: min(width, limit) for index, width in widths.items()}


def console(run: str | Path | None = None, *, stderr: bool = False) -> Console:
    """Make a console: the terminal, or plain text as wide as `COLUMNS`, else of a fixed width.

    Args:
        run: location of the run that is written about, for the commands that messages suggest.
        stderr: True for stderr instead of stdout.
    """
    stream = sys.stderr if stderr else sys.stdout
    columns = os.environ.get("COLUMNS", "")
    has_width = stream.isatty() or (columns.isdecimal() and int(columns) > 0)
    printer = _Printer(
        file=stream,
        width=None if has_width else FILE_WIDTH,
        # `no_color` of rich keeps bold and dim.
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        highlight=False,
    )
    printer.run = None if run is None else str(run)
    return printer


def clock_time(epoch_ns: int) -> str:
    """Format a local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(epoch_ns / 1e9))


def bar(ratio: float | None, hatched: float = 0.0) -> str:
    """Draw a bar of 24 cells for a ratio, with a hatched part; empty if it is missing."""
    if ratio is None:
        return ""
    cells = min(BAR_CELLS, max(0, round(ratio * BAR_CELLS)))
    end = min(BAR_CELLS, max(cells, round((ratio + hatched) * BAR_CELLS)))
    return "█" * cells + "▒" * (end - cells) + "·" * (BAR_CELLS - end)


def table(*columns: str) -> Table:
    """Make a table whose first column is left-aligned, the others right-aligned."""
    rows = _Rows(box=None, padding=(0, GAP, 0, 0), header_style="dim")
    for position, column in enumerate(columns):
        rows.add_column(column, justify="left" if position == 0 else "right", no_wrap=True)
    return rows


def text_table(*columns: str) -> Table:
    """Make a table of texts, which are left-aligned and broken into lines where they do not fit."""
    rows = table(*columns)
    for column in rows.columns:
        column.justify, column.no_wrap = "left", False
    return rows
