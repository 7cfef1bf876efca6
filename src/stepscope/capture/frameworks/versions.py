"""Versions of frameworks, recorded at the first step, when the process is known to train."""

from __future__ import annotations

from stepscope.capture.frameworks.progress import progress
from stepscope.capture.guard import Probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def record_versions(find: Callable[[], dict[str, str]]) -> None:
    """Record the versions that *find* returns, by name, at a first step; see `VersionsFact`."""
    probe = Probe("versions of frameworks")  # one for each framework

    def record() -> None:
        if progress.step_count == 1:
            probe.fact("versions", versions=find())

    progress.on_some_boundaries(probe.protect(record))
