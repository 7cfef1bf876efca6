"""Memory timelines of a run: memory of a device by category."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.analysis import CATEGORY_COLUMNS, CategoryLevels, measure_category_levels
from stepscope.run.run import Run
from stepscope.run.traces import Trace
from stepscope.schema import rank_in_name


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTimeline:
    """One imported memory timeline."""

    name: str
    rank: int | None
    """Rank that the name of the file states."""
    start_ns: int
    """Time of the first change, also of one before the range of the run."""
    levels: CategoryLevels
    """Within the range of the run, at least one time."""
    change_count: int
    preexisting_bytes: int | None
    """Memory allocated before the profile; None if the file does not tell it."""

    def is_during(self, trace: Trace) -> bool:
        """Return True if most of the timeline is within the time of a trace."""
        t_ns = self.levels.t_ns
        inside = (t_ns >= trace.whole.start_ns) & (t_ns <= trace.whole.end_ns)
        return bool(2 * np.count_nonzero(inside) > len(t_ns))


def read_memory_timelines(run: Run) -> list[MemoryTimeline]:
    """Read the memory timelines with a change in the range of a run, by name."""
    rows = run.reader.table(
        "memory_categories",
        ("timeline", "name", "action", *CATEGORY_COLUMNS),
        order_by="name, timeline, id",
        encoded=("name", "action", "category"),
    )
    codes_before = [*(action == "preexisting" for action in rows["action"].values), False]
    timelines = []
    for number in dict.fromkeys(rows["timeline"].tolist()):
        mask = rows["timeline"] == number
        changes = {name: rows[name][mask] for name in ("t_ns", "size_bytes")}
        category = rows["category"]
        changes["category"] = type(category)(category.codes[mask], category.values)
        levels = measure_category_levels(changes)
        inside = run.period.contains(levels.t_ns)
        if not inside.any():
            continue
        actions = rows["action"].codes[mask]
        before = [codes_before[code] for code in actions.tolist()]
        is_known = bool((actions >= 0).any())
        name = rows["name"].values[rows["name"].codes[np.flatnonzero(mask)[0]]] or ""
        timelines.append(
            MemoryTimeline(
                name=name,
                rank=rank_in_name(name),
                start_ns=int(levels.t_ns[0]),
                levels=levels.take(inside),
                change_count=int(mask.sum()),
                preexisting_bytes=int(changes["size_bytes"][before].sum()) if is_known else None,
            )
        )
    return timelines
