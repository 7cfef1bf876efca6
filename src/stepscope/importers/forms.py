"""Forms of files that no importer reads, recognised by their content, with a way to use them.

A form is named in the refusal of a file: "FILE is NAME. ADVICE." It is looked for only where no
importer has read the file, so that a pattern that fits a readable trace does no harm.
"""

from __future__ import annotations

import re
import shlex
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from stepscope.importers.content import GZIP_MAGIC, SQLITE_MAGIC

_HEAD_BYTES = 1 << 20
_CONTENT_BYTES = 64 << 10
_UNPACK = "Unpack it, and import the files in it"
_DECOMPRESS = "Decompress it with `{} -d`, and import the result"
_CONVERT = "Convert it with `iconv -f {0} -t UTF-8`, and import the result"
_RECORD = "`stepscope run -- CMD` or torch.profiler"
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_SQLITE = b"SQLite format 3\0"


class Sample(msgspec.Struct, frozen=True):
    """Start of a file."""

    head: bytes
    """First bytes of the file."""
    content: bytes
    """First bytes of its content, without gzip."""
    name: str
    size: int
    """Bytes of the file."""


class ForeignForm(msgspec.Struct, frozen=True):
    """A form of files that no importer reads."""

    name: str
    """What a file of it is, after "is"."""
    advice: str
    """What to do, without full stop; {path} is the file, as in a command."""
    matches: Callable[[Sample], object]
    """True for files of the form."""


def _starts(*marks: bytes) -> Callable[[Sample], object]:
    return lambda sample: sample.head.startswith(marks)


def _fits(pattern: bytes) -> Callable[[Sample], object]:
    compiled = re.compile(pattern, re.DOTALL)
    return lambda sample: compiled.match(sample.content)


def _has_tables(*names: bytes) -> Callable[[Sample], object]:
    """Return a test for an SQLite database with a table whose name starts so."""
    pattern = re.compile(rb'CREATE (?:TABLE|VIEW) ["`]?(?:' + b"|".join(names) + b")")
    return lambda sample: sample.content.startswith(SQLITE_MAGIC) and pattern.search(sample.head)


def _is_cut_database(sample: Sample) -> bool:
    """Return True for an SQLite database with fewer pages than its header states
    (https://www.sqlite.org/fileformat.html#the_database_header)."""
    if not sample.head.startswith(SQLITE_MAGIC) or len(sample.head) < 32:
        return False
    page_bytes = int.from_bytes(sample.head[16:18], "big")
    page_count = int.from_bytes(sample.head[28:32], "big")
    return sample.size < page_count * (65536 if page_bytes == 1 else page_bytes)


def _is_damaged_xplane(sample: Sample) -> bool:
    """Return True for binary data with the names of planes."""
    names = (b"/host:CPU", b"/host:metadata", b"/device:GPU:", b"/device:TPU:", b"Task Environment")
    return b"\0" in sample.content and any(name in sample.content for name in names)


def _is_nsys_report(sample: Sample) -> bool:
    """Return True for binary data with a name of a report: its form is not published."""
    binary = b"\0" in sample.head and not sample.content.startswith(
        (SQLITE_MAGIC, b"\x89HDF", b"PAR1")
    )
    return binary and sample.name.endswith((".nsys-rep", ".qdrep", ".qdstrm"))


FOREIGN_FORMS = (
    # Of profilers
    ForeignForm(
        "an SQLite database whose end is missing", "Copy it again, as binary data", _is_cut_database
    ),
    ForeignForm(
        "a report of Nsight Systems",
        "Convert it with `nsys export --type=sqlite {path}`, and import the result",
        _is_nsys_report,
    ),
    ForeignForm(
        "a JSON export of Nsight Systems",
        f"It has no trace events. To import a trace, record the job with {_RECORD}",
        _fits(rb'\s*\{[^\n]{0,2000}"(?:CudaEvent|NvtxEvent|TraceProcessEvent)"\s*:'),
    ),
    ForeignForm(
        "a report of Nsight Compute",
        "`ncu --import {path} --page details` shows it. To import a trace, record the job with "
        f"{_RECORD}",
        _starts(b"NVR\0"),
    ),
    ForeignForm(
        "a rocpd database of rocprof",
        "Convert it with `rocpd convert -i {path} --output-format pftrace`, the result with "
        "`traceconv json out.pftrace trace.json`, and import that",
        _has_tables(b"rocpd_"),
    ),
    ForeignForm(
        "a CSV file of rocprof",
        "It is a table without a timeline of the host. Record with `rocprofv3 --output-format "
        "json`, and import that",
        _fits(
            rb'(?:\xef\xbb\xbf)?"?(?:Kind"?,"?Agent_Id|Domain"?,"?Function|Index"?,"?KernelName|'
            rb'Name"?,"?Calls"?,"?TotalDuration|Guid"?,"?Kind|Correlation_Id"?,"?Dispatch_Id)'
        ),
    ),
    ForeignForm(
        "a Chakra execution trace",
        "It is made for simulators and holds no timeline: import the trace of torch.profiler and "
        "the execution trace of PyTorch from which it was made",
        _fits(rb'\s*\{\s*"workload_graph"\s*:'),
    ),
    ForeignForm(
        "a Chakra execution trace",
        "`chakra_jsonizer --input_filename {path} --output_filename et.json` shows it. It is made "
        "for simulators and holds no timeline: import the trace of torch.profiler from which it "
        "was made",
        _fits(rb"[\x05-\x40]\x0a[\x03-\x20]\d+\.\d+\.\d+"),
    ),
    ForeignForm(
        "an XPlane file that is damaged", "Copy the file again, as binary data", _is_damaged_xplane
    ),
    # Archives and texts
    ForeignForm(
        "a web page",
        "If it was downloaded, a proxy or a login page answered in place of the server",
        _fits(rb"\s*<(?i:!doctype html|html|head|body)\b"),
    ),
    ForeignForm(
        "a zip archive whose end is missing",
        "Copy it again, as binary data",
        _starts(b"PK\x03\x04"),
    ),
    ForeignForm("a 7-Zip archive", _UNPACK, _starts(b"7z\xbc\xaf\x27\x1c")),
    ForeignForm("compressed with xz", _DECOMPRESS.format("xz"), _starts(b"\xfd7zXZ\x00")),
    ForeignForm(
        "compressed with Zstandard", _DECOMPRESS.format("zstd"), _starts(b"\x28\xb5\x2f\xfd")
    ),
    ForeignForm("compressed with bzip2", _DECOMPRESS.format("bzip2"), _starts(b"BZh")),
    ForeignForm("compressed with LZ4", _DECOMPRESS.format("lz4"), _starts(b"\x04\x22\x4d\x18")),
    ForeignForm("text in UTF-32", _CONVERT.format("UTF-32"), _starts(b"\xff\xfe\x00\x00")),
    ForeignForm(
        "text in UTF-16",
        _CONVERT.format("UTF-16"),
        _starts(b"\xff\xfe", b"\xfe\xff", b"{\x00", b"[\x00", b"\x00{", b"\x00["),
    ),
    ForeignForm(
        "an SQLite database", "A trace is what torch.profiler writes", _starts(SQLITE_MAGIC)
    ),
)
"""Special forms come before general ones."""


def find_foreign_form(path: Path) -> str | None:
    """Return name and advice for a file that no importer reads; None if its form is unknown."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    content = head[:_CONTENT_BYTES]
    if head.startswith(GZIP_MAGIC):
        try:
            content = zlib.decompressobj(wbits=31).decompress(head, _CONTENT_BYTES)
        except zlib.error:
            content = b""
    sample = Sample(head, content, path.name, path.stat().st_size)
    form = next((form for form in FOREIGN_FORMS if form.matches(sample)), None)
    command_path = shlex.quote(str(path))
    return f"{form.name}. {form.advice.format(path=command_path)}" if form else None
