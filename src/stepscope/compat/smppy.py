"""SageMaker Profiler's `smppy`, and `smprof`, its later name.

    from stepscope.compat import smppy

is the only line of a script that changes. As there, only the time between `start_profiling` and
`stop_profiling` is recorded, with or without `stepscope run`.
"""

from __future__ import annotations

from stepscope.capture import (
    annotate,
    annotation_begin,
    annotation_end,
    start_profiling,
    stop_profiling,
)

__all__ = ["Config", "SMProfiler", "annotate", "annotation_begin", "annotation_end"]

CUDA_FLAG = "EnableCuda"


class Config:
    """Settings of the profiler.

    Attributes:
        profiler: flags by name, as text: "EnableCuda", which is "0" if detailed windows (kernels,
            copies, operators) are not recorded. Other flags have no effect.
    """

    def __init__(self) -> None:
        self.profiler: dict[str, str] = {}


class SMProfiler:
    """The profiler of this process; `SMProfiler.instance()` returns it."""

    _instance: SMProfiler | None = None

    def __init__(self) -> None:
        self._config = Config()

    @classmethod
    def instance(cls) -> SMProfiler:
        """Return the only instance. From the first call on, nothing is recorded until
        `start_profiling`."""
        if cls._instance is None:
            cls._instance = cls()
            stop_profiling()
        return cls._instance

    def configure(self, config: Config) -> None:
        """Set the flags of the next `start_profiling`."""
        self._config = config

    def start_profiling(self) -> None:
        """Start recording; a second call does nothing."""
        start_profiling(windows=str(self._config.profiler.get(CUDA_FLAG, "1")) != "0")

    def stop_profiling(self) -> None:
        """Stop recording; a second call does nothing."""
        stop_profiling()
