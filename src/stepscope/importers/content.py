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


_CONVERT = "Convert it with `iconv -f {0} -t UTF-8`, and import the result"
_UTF_16 = f"text in UTF-16. {_CONVERT.format('UTF-16')}"
_UNPACK = "Unpack it, and import the files in it"
_DECOMPRESS = "Decompress it with `{0} -d`, and import the result"
_FOREIGN_FORMS = (
    (b"PK\x03\x04", f"a zip archive. {_UNPACK}"),
    (b"7z\xbc\xaf\x27\x1c", f"a 7-Zip archive. {_UNPACK}"),
    (b"\xfd7zXZ\x00", f"compressed with xz. {_DECOMPRESS.format('xz')}"),
    (b"\x28\xb5\x2f\xfd", f"compressed with Zstandard. {_DECOMPRESS.format('zstd')}"),
    (b"BZh", f"compressed with bzip2. {_DECOMPRESS.format('bzip2')}"),
    (b"\x04\x22\x4d\x18", f"compressed with LZ4. {_DECOMPRESS.format('lz4')}"),
    (b"\xff\xfe\x00\x00", f"text in UTF-32. {_CONVERT.format('UTF-32')}"),
    *(
        (mark, _UTF_16)
        for mark in (b"\xff\xfe", b"\xfe\xff", b"{\x00", b"[\x00", b"\x00{", b"\x00[")
    ),
)
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
