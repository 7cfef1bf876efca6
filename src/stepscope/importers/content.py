"""Content of files, compressed with gzip or not."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from stepscope.quantities import memory

GZIP_MAGIC = b"\x1f\x8b"
_HEAD_BYTES = 4096
MAX_INFLATED_BYTES = 2 << 30
"""Text of a compressed file that is read as a whole: a small file may inflate to a thousandfold."""


def is_compressed(path: Path) -> bool:
    """Return True for a gzip file, judged by its first bytes."""
    with path.open("rb") as file:
        return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC


def read_head(path: Path) -> bytes:
    """Return the first 4 KiB of the content, or less; nothing of an unreadable file."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if head.startswith(GZIP_MAGIC):
            return zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
    except (OSError, zlib.error):
        return b""
    return head


def read_content(path: Path) -> bytes:
    """Return the whole content.

    Raises:
        OSError: the file cannot be read; as `gzip.BadGzipFile`, it is damaged.
        EOFError: the end of a compressed file is missing.
        zlib.error: a compressed file is damaged.
    """
    if not is_compressed(path):
        return path.read_bytes()
    with gzip.open(path) as file:
        content = file.read(MAX_INFLATED_BYTES + 1)
    if len(content) > MAX_INFLATED_BYTES:
        raise gzip.BadGzipFile(f"it holds more than {memory(MAX_INFLATED_BYTES)} of text")
    return content
