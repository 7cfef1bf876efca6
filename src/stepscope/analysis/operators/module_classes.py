"""Time of modules by class."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from stepscope import intervals


class ModuleClass(msgspec.Struct, frozen=True, kw_only=True):
    """All modules of one class, without the modules inside them."""

    name: str
    module_count: int
    call_count: int
    self_ns: int
    self_ratio: float
    """Share of the denominator of the shares, or of the host time of all modules."""


_INSTANCE = re.compile(r"_\d+$")
"""Number that tells modules of one class apart: `Linear_3`."""


def find_slowest_class(
    names: Sequence[str], calls: intervals.Int, self_ns: intervals.Int, base_ns: int
) -> ModuleClass | None:
    """Find the class whose modules have the longest self time; None without any time."""
    classes, codes = np.unique([_INSTANCE.sub("", name) for name in names], return_inverse=True)
    sums = np.bincount(codes, self_ns, minlength=len(classes))
    if not sums.any() or base_ns <= 0:
        return None
    slowest = int(sums.argmax())
    return ModuleClass(
        name=str(classes[slowest]),
        module_count=int((codes == slowest).sum()),
        call_count=int(calls[codes == slowest].sum()),
        self_ns=int(sums[slowest]),
        self_ratio=float(sums[slowest]) / base_ns,
    )
