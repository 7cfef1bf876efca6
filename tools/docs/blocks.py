"""Generated blocks by name, and the documents that contain them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from benchmarks.foreign import describe_reliability
from benchmarks.reliability_doc import describe_faults, describe_fuzzing, describe_kills
from tools.docs.errors import list_faults, list_messages
from tools.docs.releases import list_releases
from tools.docs.rules import list_topics, write_pages
from tools.docs.run_directory import describe_schema
from tools.docs.seeds import list_features

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCKS: dict[str, Callable[[], str]] = {
    "faults of the environment": list_faults,
    "messages of errors": list_messages,
    "features of replaced tools": list_features,
    "releases of frameworks": list_releases,
    "topics of rules": list_topics,
    "pages of rules": write_pages,
    "schema": describe_schema,
    "reliability of verdicts": describe_reliability,
    "counts of kills": describe_kills,
    "counts of failed writes": describe_faults,
    "counts of hostile input": describe_fuzzing,
}
_BLOCK = re.compile(r"(<!-- generated: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def find_documents() -> list[Path]:
    """Find the documents with generated blocks."""
    return [path for path in sorted(DOCS.glob("*.md")) if _BLOCK.search(path.read_text())]


def update_blocks(text: str) -> str:
    """Replace the content of every block.

    Raises:
        KeyError: a block has an unknown name.
    """
    return _BLOCK.sub(lambda block: f"{block[1]}\n{BLOCKS[block[2]]().strip()}\n\n{block[3]}", text)


def write_document(path: Path) -> None:
    """Write the blocks of one document."""
    path.write_text(update_blocks(path.read_text()))
