"""Generated blocks by name, and the documents that contain them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.foreign import describe_reliability
from benchmarks.laboratory.page import describe_rows, quote_figure
from benchmarks.reliability_doc import describe_faults, describe_fuzzing, describe_kills
from benchmarks.what_if.page import (
    describe_fixes,
    describe_pairs,
    describe_peer,
    describe_recordings,
)
from tools.docs.errors import list_faults, list_messages
from tools.docs.findings import list_findings
from tools.docs.formats import list_exports, list_imports, list_main_tables
from tools.docs.import_map import draw_imports
from tools.docs.reference import describe_classes, describe_commands, describe_views
from tools.docs.releases import list_releases, read_results
from tools.docs.rules import list_topics, write_pages
from tools.docs.run_directory import describe_schema
from tools.docs.seeds import list_features

ROOT = Path(__file__).resolve().parents[2]
BLOCKS: dict[str, Callable[[], str]] = {
    "faults of the environment": list_faults,
    "messages of errors": list_messages,
    "features of replaced tools": list_features,
    **{f"releases of {name}": partial(list_releases, name) for name in read_results()},
    "formats of importers": list_imports,
    "formats of exporters": list_exports,
    "main tables of views": list_main_tables,
    "topics of rules": list_topics,
    "pages of rules": write_pages,
    "schema": describe_schema,
    "options of commands": describe_commands,
    "fields of views": describe_views,
    "classes": describe_classes,
    "imports of packages": draw_imports,
    "findings": list_findings,
    "reliability of verdicts": describe_reliability,
    "counts of kills": describe_kills,
    "counts of failed writes": describe_faults,
    "counts of hostile input": describe_fuzzing,
    "rows of the laboratory": describe_rows,
    "simulated fixes": describe_fixes,
    "replays of traces": describe_recordings,
    "savings of true fixes": describe_pairs,
    "paths of another tool": describe_peer,
}
_BLOCK = re.compile(r"(<!-- generated: ([^>\n]+?) -->\n).*?(<!-- end -->)", re.DOTALL)
_FIGURE = re.compile(r"(<!-- generated: (ratio|value) of (.+?) -->).*?(<!-- end -->)")


def find_documents() -> list[Path]:
    """Find the documents with generated blocks."""
    paths = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in paths if "<!-- generated: " in path.read_text()]


def update_blocks(text: str) -> str:
    """Replace the content of every block, and every figure of the laboratory within a line.

    Raises:
        KeyError: a block or a row has an unknown name.
    """
    text = _FIGURE.sub(
        lambda match: f"{match[1]}{quote_figure(match[2], match[3])}{match[4]}", text
    )
    return _BLOCK.sub(lambda block: f"{block[1]}\n{BLOCKS[block[2]]().strip()}\n\n{block[3]}", text)


def write_document(path: Path) -> None:
    """Write the blocks of one document."""
    path.write_text(update_blocks(path.read_text()))
