"""Records of a log of TORCH_TRACE.

    V1206 15:18:20.253000 1500233 torch/_dynamo/utils.py:1288] {…, "has_payload": "490a…"}
        first line of the payload
        second line of the payload

Level, date without year, process or thread, place in the source, and a JSON object; the lines of
its payload begin with a tab, and `has_payload` is their MD5 without it
(https://github.com/pytorch/pytorch/blob/main/torch/_logging/_internal.py).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from stepscope import schema

HEAD = re.compile(rb"[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ [^\n]{1,500}:\d+\] \{")
"""Start of a log."""
_RECORD = re.compile(
    rb"^[VIWEC]\d{4} [\d:.]+ \d+ [^\n]{1,500}?:\d+\] (\{[^\n]*)(?:\n|\Z)", re.MULTILINE
)


_Int32 = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Int64 = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Artifact(msgspec.Struct):
    """Kind of a payload."""

    name: str


class Metrics(msgspec.Struct):
    """Figures at the end of a compilation, as far as they are used."""

    co_name: str | None = None
    co_filename: str | None = None
    co_firstlineno: _Int32 | None = None
    cache_size: _Int64 | None = None
    guard_count: _Int64 | None = None
    graph_op_count: _Int64 | None = None
    num_graph_breaks: Any = msgspec.UNSET
    """Graph breaks of the process so far, or null; unset by a torch before those that have a record
    of each."""
    start_time: float | None = None
    """Seconds since 1970."""
    start_time_us: _Int64 | None = None
    entire_frame_compile_time_s: float | None = None
    backend_compile_time_s: float | None = None
    inductor_compile_time_s: float | None = None
    code_gen_time_s: float | None = None
    dynamo_time_before_restart_s: float | None = None
    duration_us: _Int64 | None = None
    dynamo_cumulative_compile_time_us: _Int64 | None = None
    aot_autograd_cumulative_compile_time_us: _Int64 | None = None
    inductor_cumulative_compile_time_us: _Int64 | None = None
    inductor_code_gen_cumulative_compile_time_us: _Int64 | None = None
    restart_reasons: list[str] | None = None
    recompile_reason: str | None = None
    fail_type: str | None = None
    fail_reason: str | None = None


class StackFrame(msgspec.Struct):
    """Frame of a stack, innermost last; the name of its file is that of a number."""

    filename: int = -1
    line: _Int32 = 0
    name: str = ""


class Start(msgspec.Struct):
    """Start of a compilation."""

    stack: list[StackFrame] = []


class OutputCode(msgspec.Struct):
    """Code that Inductor has written; the payload is its text."""

    filename: str | None = None


class Record(msgspec.Struct):
    """One record."""

    frame_id: _Int64 | None = None
    frame_compile_id: _Int64 | None = None
    compiled_autograd_id: _Int64 | None = None
    rank: _Int32 | None = None
    has_payload: str | None = None
    interned: tuple[str, int] | None = msgspec.field(default=None, name="str")
    """A name, and the number that stands for it from here on."""
    dynamo_start: Start | None = None
    artifact: Artifact | None = None
    compilation_metrics: Metrics | None = None
    bwd_compilation_metrics: Metrics | None = None
    inductor_output_code: OutputCode | None = None
    chromium_event: dict[str, Any] | None = None
    payload: bytes = b""
    """Set from the lines behind the record."""

    @property
    def compile_id(self) -> str | None:
        """Number of the frame and of its compilation; None of a record of no compilation."""
        if self.frame_id is None or self.frame_compile_id is None:
            return None
        number = f"{self.frame_id}/{self.frame_compile_id}"
        return (
            number
            if self.compiled_autograd_id is None
            else f"!{self.compiled_autograd_id}/{number}"
        )


class LogReader:
    """Reader of the records of a log; afterwards it has the number of damaged ones."""

    def __init__(self) -> None:
        self.damaged_count = 0
        """Records and payloads that are not as they were written, and lines of no record."""

    def read(self, content: bytes) -> Iterator[Record]:
        """Iterate over the readable records, each with its payload."""
        decoder = msgspec.json.Decoder(Record)
        matches = list(_RECORD.finditer(content))
        starts = [match.start() for match in matches]
        self._check_text(content[: starts[0] if starts else len(content)])
        for match, end in zip(matches, [*starts[1:], len(content)], strict=True):
            try:
                record = decoder.decode(match[1])
            except schema.MALFORMED_JSON:
                self.damaged_count += 1
                continue
            text = content[match.end() : end]
            if record.has_payload is None:
                self._check_text(text)
            else:
                record.payload = self._read_payload(text, record.has_payload)
            yield record

    def _read_payload(self, text: bytes, digest: str) -> bytes:
        payload = text.removesuffix(b"\n").removeprefix(b"\t").replace(b"\n\t", b"\n")
        if hashlib.md5(payload, usedforsecurity=False).hexdigest() != digest:
            self.damaged_count += 1
        return payload

    def _check_text(self, text: bytes) -> None:
        """Count the lines of no record."""
        self.damaged_count += sum(bool(line.strip()) for line in text.splitlines())
