"""Account of a whole job: what its time went to, and what would save some of it."""

from __future__ import annotations

from collections.abc import Set
from typing import Annotated

import msgspec

from stepscope import schema

KEEP_RESULT = (
    "write its result to a file once and read that in later runs, arrays with "
    "numpy.load(path, mmap_mode='r'); the first time, prepare parts of it in several processes "
    "(concurrent.futures.ProcessPoolExecutor)"
)
SHORTENED = {
    "preparing": (
        "preparation",
        "before the first step",
        f"{KEEP_RESULT}; loops over elements are faster as operations on arrays",
    ),
    "between_steps": ("work", "between the steps", "do it less often, or beside the training"),
    "between_epochs": ("work", "between the epochs", "do it less often, or beside the training"),
    "finishing": (
        "work",
        "after the last step",
        "leave out what is not needed, or do it in another job",
    ),
}
"""Classes with a fix for their longest function: its work, its time, and what to do."""


class PartFunction(msgspec.Struct, frozen=True, kw_only=True):
    """Function, or imported package, with time of a class."""

    name: str
    location: str
    """File and line; empty for a package."""
    time_ns: float
    """Mean over ranks; that of a package includes what it imports."""


class JobPart(msgspec.Struct, frozen=True, kw_only=True):
    """Class of a job's time, the mean over ranks."""

    key: str
    title: str
    time_ns: float
    share_ratio: float
    """Share of the job."""
    planned_ns: float | None = None
    """Time in a job of the planned number of steps; null where that is not known."""
    functions: list[PartFunction] = []


class JobFix(msgspec.Struct, frozen=True, kw_only=True):
    """Change that shortens the job outside its steps."""

    title: str
    instructions: str = msgspec.field(name="how")
    why: str
    saving_ns: float
    """Time that it saves, of the planned job where that is known."""
    saving_ratio: float
    """Share of the job, as for `saving_ns`."""
    is_bound: bool
    """True where it saves at most this."""
    changes: list[schema.Change] = []
    step_cause: str | None = None
    """Cause of the verdict whose fixes say the same of the step: then this one is left out."""


class JobAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Account of the time of a whole job."""

    headline: str
    is_first: bool
    """True where the job is more than its steps: the verdict begins with the account."""
    duration_ns: int
    planned_ns: float | None
    """Duration of a job of the planned number of steps; null where that is not known."""
    planned_step_count: int | None
    step_count: int
    """Steps of the rank that has completed the most."""
    goodput_ratio: Annotated[float | None, schema.field_label("goodput")]
    """Share of the job that is steps whose result was kept; null where most of it was not seen."""
    device_goodput_ratio: Annotated[float | None, schema.field_label("device goodput")]
    """That times the busy share of the devices; null without devices."""
    first_step_ns: Annotated[int | None, schema.field_label("time to first step")]
    """Time from the start of the job to its first step."""
    is_final: bool
    parts: list[JobPart]
    """Classes with time, in order of time."""
    fixes: list[JobFix]
    notes: list[str]
    """Reasons for time that was not seen."""

    def omit_fixes(self, causes: Set[str]) -> JobAccount:
        """Omit what the fixes of causes say with the steps as their base."""
        fixes = [fix for fix in self.fixes if fix.step_cause not in causes]
        return msgspec.structs.replace(self, fixes=fixes)
