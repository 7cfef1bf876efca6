"""Results of an import, one per file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A trace that is in the run."""

    trace: int
    name: str
    rank: int | None
    event_count: int
    lost: str | None
    """The unreadable part, as the rest of a sentence."""
    execution_trace: str | None = None
    """Path of the execution trace that describes its operators."""
    described_count: int = 0
    """Operators that it describes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A file of samples, spans, changes of memory or tensors that is in the run."""

    name: str
    form: str
    sample_count: int = 0
    event_count: int = 0
    lost: str | None = None
    """The unreadable part, as the rest of a sentence."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A file without readable content."""

    path: Path
    reason: str


def refuse(path: Path, error: Exception) -> Refused:
    """Refuse a file that cannot be read, or with a ValueError one whose content is damaged."""
    if isinstance(error, ValueError):
        return Refused(path, f"{path} was not imported: {error}.")
    reason = getattr(error, "strerror", None) or error
    return Refused(path, f"{path} cannot be read: {reason}.")


Result = Imported | Recorded | Refused
EXECUTION_TRACE = "execution trace"
"""`Recorded.form` of execution traces."""
MEMORY_TIMELINE = "memory timeline"
"""`Recorded.form` of memory timelines."""
FLIGHT_RECORDER = "flight recorder"
"""`Recorded.form` of dumps of PyTorch's flight recorder."""
TENSORBOARD = "TensorBoard"
"""`Recorded.form` of TensorBoard's event files."""
NCCL_INSPECTOR = "NCCL Inspector"
"""`Recorded.form` of logs of NCCL Inspector."""
STAGE_OPERATIONS = "operations of pipeline stages"
"""`Recorded.form` of operations of jobs with pipeline stages."""
DEBUGGER_TENSORS = "tensors of SageMaker Debugger"
"""`Recorded.form` of the files of Debugger's tensors."""
ProgressCallback = Callable[[int, float], None]
"""Called with the index of a file in the list and the share of it that is done, 0 to 1."""


def ignore_progress(_index: int, _share: float) -> None:
    """Do nothing with the progress."""
