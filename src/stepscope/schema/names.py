"""Names of source files and trace files, and errors of decoding JSON."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

_SITE = re.compile(r".*[/\\](?:site|dist)-packages[/\\]([^/\\.]+)")
_STANDARD = re.compile(r"~|<frozen .*|.*[/\\]lib(?:64)?[/\\]python\d[^/\\]*[/\\].*|")


def library_of(file: str) -> str:
    """Name the library of a source file; empty for the user's code.

    >>> library_of("/usr/lib/python3/dist-packages/torch/nn/functional.py")
    'torch'
    >>> library_of("/usr/lib64/python3.12/threading.py")
    'python'
    >>> library_of("/opt/ml/code/train.py")
    ''
    """
    match = _SITE.match(file)
    if match is not None:
        return match[1]
    return "python" if _STANDARD.fullmatch(file) else ""


XPLANE_SUFFIX = ".xplane.pb"
"""Ending of names that the profilers of TensorFlow and JAX give."""
TRACE_SUFFIXES = (".json", ".json.gz", XPLANE_SUFFIX)
"""Endings of names by which traces are looked for among other files."""
PROFILER_SUFFIXES = (".pt.trace.json", ".pt.trace.json.gz")
"""Endings of names that torch.profiler's `tensorboard_trace_handler` gives."""
_EVENT_FILE_PART = "tfevents"
_NAME = re.compile(r"(?P<worker>.+?)(?:\.(?P<time>\d{13}|\d{19}))?\.pt\.trace\.json(?:\.gz)?")
_HOST = re.compile(r"(?P<host>.+)_(?P<pid>\d+)")
_RANK = re.compile(r"(?:^|[^a-z])rank[-_ ]?(\d+)", re.IGNORECASE)
_DIGITS_OF_NS = 19
_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000


def is_event_file_name(name: str) -> bool:
    """Return True for a name as TensorBoard's writers give, such as `events.out.tfevents.1.a`."""
    return _EVENT_FILE_PART in name


class TraceFileName(NamedTuple):
    """Parsed name of a file `<worker>.<time>.pt.trace.json`, plain or `.gz`.

    It is the name that torch.profiler's `tensorboard_trace_handler` gives
    (https://github.com/pytorch/pytorch/blob/main/torch/profiler/profiler.py): the worker is
    `<host>_<process id>` unless the script chose another name.
    """

    worker: str
    host: str | None
    """Host of a worker that is named after host and process; None for any other."""
    pid: int | None
    """Process, if there is a host."""
    written_ns: int | None
    """Time at which the file was written, by which TensorBoard tells spans of a worker apart; epoch
    nanoseconds."""

    @property
    def dated_worker(self) -> str:
        """Worker and time to the second (UTC)."""
        if self.written_ns is None:
            return self.worker
        written = datetime.fromtimestamp(self.written_ns // _NS_PER_S, UTC)
        return f"{self.worker} {written:%Y-%m-%d %H:%M:%S}"


def parse_trace_name(name: str) -> TraceFileName | None:
    """Parse the name of a file; None if it does not have this form.

    >>> parse_trace_name("node3_4711.1623143089861.pt.trace.json.gz")
    TraceFileName(worker='node3_4711', host='node3', pid=4711, written_ns=1623143089861000000)
    """
    parts = _NAME.fullmatch(name)
    if parts is None:
        return None
    worker, time = parts["worker"], parts["time"]
    origin = None if rank_in_name(worker) is not None else _HOST.fullmatch(worker)
    return TraceFileName(
        worker=worker,
        host=origin["host"] if origin else None,
        pid=int(origin["pid"]) if origin else None,
        # Before 2023 torch wrote milliseconds.
        written_ns=int(time) * (1 if len(time) == _DIGITS_OF_NS else _NS_PER_MS) if time else None,
    )


def rank_in_name(name: str) -> int | None:
    """Return the rank that a name of a file or a worker states, such as `rank-3.json`."""
    match = _RANK.search(name)
    return int(match[1]) if match else None


MALFORMED_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Raised by msgspec for text that is not JSON of the expected type; the last one for text that is
nested more deeply than the interpreter's stack."""
