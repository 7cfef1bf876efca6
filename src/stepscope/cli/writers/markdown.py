"""Tables and texts of Markdown files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from stepscope import quantities
from stepscope.cli.text import printable
from stepscope.cli.writers.generic import cut

MAX_CELL_LENGTH = 80


def markdown_table(
    head: Sequence[str], rows: Iterable[Sequence[str | None]], *, max_length: int = MAX_CELL_LENGTH
) -> list[str]:
    """Make the lines of a table, with an empty one after it; a missing cell is `n/a`."""
    return [*_table_lines(head, rows, max_length), ""]


def _table_lines(
    head: Sequence[str], rows: Iterable[Sequence[str | None]], max_length: int
) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        cells = [
            quantities.MISSING if cell is None else markdown_text(cell, max_length) for cell in row
        ]
        yield f"| {' | '.join(cells)} |"


def markdown_text(text: str, max_length: int = MAX_CELL_LENGTH) -> str:
    """Make text that ends no cell and opens no tag: names come from recordings."""
    shown = cut(printable(text), max_length)
    return shown.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
