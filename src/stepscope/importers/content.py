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


_FOREIGN_FORMS = (
    (b"PK\x03\x04", "a zip archive. Unpack it, and import the files in it"),
    (b"\xfd7zXZ\x00", "compressed with xz. Decompress it with `xz -d`, and import the result"),
    (b"\x28\xb5\x2f\xfd", "compressed with Zstandard. Decompress it with `zstd -d`, and import the "
     "result"),
    (b"BZh", "compressed with bzip2. Decompress it with `bzip2 -d`, and import the result"),
    (b"\x04\x22\x4d\x18", "compressed with LZ4. Decompress it with `lz4 -d`, and import the result"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive. Unpack it, and import the files in it"),
    (b"\xff\xfe\x00\x00", "text in UTF-32. Convert it with `iconv -f UTF-32 -t UTF-8`, and import the "
     "result"),
    *(
        (mark, "text in UTF-16. Convert it with `iconv -f UTF-16 -t UTF-8`, and import the result")
        for mark in (b"\xff\xfe", b"\xfe\xff", b"{\x00", b"[\x00", b"\x00{", b"\x00[")
    ),
)  # fmt: skip
"""First bytes of files that contain a trace in another form, and what to do with them."""


def foreign_form(path: Path) -> str | None:
    """Return the form of a file that no importer reads, with what to do; None if it has none."""
    with path.open("rb") as file:
        start = file.read(8)
    return next((form for magic, form in _FOREIGN_FORMS if start.startswith(magic)), None)


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
