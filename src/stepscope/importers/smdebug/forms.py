"""Form of a file of SageMaker Debugger, by its content, or by its name if it has none."""

from __future__ import annotations

import enum
import re
from pathlib import Path

_LOOK_BYTES = 16 << 10
_SAMPLE = re.compile(rb'^\s*\{[^{}\n]*"Dimension"[^{}\n]*\}\s*$', re.MULTILINE)
_SAMPLE_KEYS = (b'"NodeId"', b'"Timestamp"', b'"Value"')
_EPOCH_KEY = b'"start_time_since_epoch_in_micros"'
_EVENT_NAME = re.compile(
    r"(?P<end_us>\d+)_(?P<recorder>.+)_(?P<suffix>pythontimeline|model_timeline|horovod_timeline"
    r"|smdataparallel_timeline)\.json(\.tmp)?"
)
_METADATA = re.compile(r".+_\d+_\d+\.metadata")
_PYTHON_PROFILES = frozenset({"python_stats", "python_stats.json"})
_PYTHON_PAGE = "python_stats.html"
"""Page that pyinstrument writes of a profile that is in a file, too."""


class Form(enum.Enum):
    """Content of a file."""

    SYSTEM = "samples of the machine"
    EVENTS = "framework events"
    DETAIL = "a trace of TensorFlow's profiler"
    MARK = "only a file name"
    PAGE = "a page about another file"
    PYTHON_PROFILE = "a Python profile"


def detect_form(path: Path) -> Form | None:
    """Return the form of a file; None if Debugger did not write it, or it cannot be opened."""
    if path.name == "training_job_end.ts":
        return Form.MARK
    if "detailed_profiling" in path.parts:
        if _METADATA.fullmatch(path.name):
            return Form.MARK
        if ".trace.json" in path.name:
            return Form.DETAIL
    if path.name in _PYTHON_PROFILES:
        return Form.PYTHON_PROFILE
    if path.name == _PYTHON_PAGE:
        return Form.PAGE
    try:
        with path.open("rb") as file:
            head = file.read(_LOOK_BYTES)
    except OSError:
        return None
    return _by_content(head, path.name)


def _by_content(head: bytes, name: str) -> Form | None:
    if _EPOCH_KEY in head or (_EVENT_NAME.fullmatch(name) and head.lstrip()[:1] in {b"[", b""}):
        return Form.EVENTS
    sample = _SAMPLE.search(head)
    if sample is not None and all(key in sample[0] for key in _SAMPLE_KEYS):
        return Form.SYSTEM
    return None


class EventFileName:
    """Facts in the name of a file of framework events; none if it was renamed."""

    end_us: int | None = None
    """End of its last event, in microseconds since 1970."""
    pid: int | None = None
    host: str | None = None
    suffix: str = ""

    def __init__(self, name: str) -> None:
        match = _EVENT_NAME.fullmatch(name)
        if match is None:
            return
        self.end_us = int(match["end_us"])
        self.suffix = match["suffix"]
        self.pid, self.host = split_recorder(match["recorder"])


def split_recorder(recorder: str) -> tuple[int | None, str | None]:
    """Return the process number and the host in a name of a recorder; None if unknown.

    Now <pid>-<host>; in older versions <pid>_<worker>, in the first ones <worker> alone.
    """
    parts = re.fullmatch(r"(?P<pid>\d+)(?:-(?P<host>.+)|_\d+)", recorder)
    return (None, None) if parts is None else (int(parts["pid"]), parts["host"])
