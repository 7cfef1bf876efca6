"""What a device can do at best: from the table, from the user, or for a CPU an estimate.

Documents compute with boost clocks that a loaded device does not hold: nine tenths of a peak is a
very good kernel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from stepscope.analysis.roofline.calls import Precision
from stepscope.analysis.roofline.device_table import (
    FIGURES,
    GIGA,
    IDENTITIES,
    TERA,
    UNITS,
    Identity,
    Unit,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """What one device can do."""

    name: str
    source: str
    """Document and year."""
    bytes_per_s: float | None
    """Bandwidth of its memory."""
    flops_per_s: Mapping[Unit, float]
    estimate: bool = False
    """Not a vendor's figure for this device."""

    def rate(self, precision: Precision, *, matrix: bool) -> float | None:
        """Operations per second at best, None where no document says.

        Vector units compute half precision in FP32.
        """
        if not matrix:
            return self.flops_per_s.get("fp64" if precision == "fp64" else "fp32")
        if precision == "fp64":
            return self.flops_per_s.get("fp64_matrix", self.flops_per_s.get("fp64"))
        if precision == "fp32":
            return self.flops_per_s.get("fp32_matrix", self.flops_per_s.get("fp32"))
        return self.flops_per_s.get(precision)


def peaks_of(
    name: str, *, memory_bytes: int | None = None, multiprocessors: int | None = None
) -> Peaks | None:
    """What a device can do; None when the table does not hold it, or does not hold it for sure.

    Args:
        name: as the driver or the recorder writes it, such as "NVIDIA H100 80GB HBM3". A slice of
            a device (MIG, GRID) has other peaks and is not found.
        memory_bytes, multiprocessors: where known; some variants share a name.
    """
    plain = _VENDOR.sub("", name.strip().lower())
    if " mig " in plain:
        return None
    gib = (memory_bytes or 0) / _GIB
    fitting = [
        each
        for each in IDENTITIES
        if re.fullmatch(each.pattern, plain)
        and (gib <= 0 or each.memory_gib[0] <= gib <= each.memory_gib[1])
        and (not multiprocessors or each.multiprocessors in {None, multiprocessors})
    ]
    return TABLE[fitting[0].name] if len(fitting) == 1 else None


def cpu_peaks(cores: float) -> Peaks:
    """An estimate for a CPU: profiles do not carry what its vendor states.

    F = cores · 2.5 GHz · 32 in FP32 (two 256-bit fused multiply-adds a cycle), half in FP64;
    bandwidth = cores · 8 GB/s
    """
    rates: dict[Unit, float] = {
        "fp32": cores * _CPU_HERTZ * _CPU_FP32_PER_CYCLE,
        "fp64": cores * _CPU_HERTZ * _CPU_FP32_PER_CYCLE / 2,
    }
    return Peaks(
        name=f"CPU of {cores:g} cores",
        source="an estimate: 2.5 GHz, two 256-bit fused multiply-adds a cycle, 8 GB/s, per core",
        bytes_per_s=cores * _CPU_CORE_BYTES_PER_S,
        flops_per_s=rates,
        estimate=True,
    )


def parse_peaks(text: str) -> Peaks:
    """Peaks a user gives: `bf16=989,fp32=67,bandwidth=3350`, in TFLOP/s and GB/s, or the name of
    a device of the table. ValueError with a sentence otherwise."""
    if "=" not in text:
        named = {name.lower(): peaks for name, peaks in TABLE.items()}
        found = named.get(text.strip().lower()) or peaks_of(text)
        if found is None:
            raise ValueError(
                f"The table of peaks holds no device {text.strip()!r}; it has {', '.join(TABLE)}."
            )
        return found
    given = dict(_figure(part) for part in text.split(","))
    rates: dict[Unit, float] = {unit: given[unit] * TERA for unit in UNITS if unit in given}
    bandwidth = given.get("bandwidth")
    return Peaks(
        name="as given",
        source="given by the user",
        bytes_per_s=bandwidth * GIGA if bandwidth else None,
        flops_per_s=rates,
    )


def _figure(part: str) -> tuple[str, float]:
    key, _, value = (piece.strip().lower() for piece in part.partition("="))
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf") or key not in {*UNITS, "bandwidth"}:
        raise ValueError(
            f"{part.strip()!r} is no peak: write bf16=989, with one of {', '.join(UNITS)} in "
            "TFLOP/s or bandwidth in GB/s, above zero."
        )
    return key, number


def _table() -> dict[str, Peaks]:
    figures = {}
    for line in FIGURES.strip().splitlines()[1:]:
        name, *columns = line.rsplit(maxsplit=len(UNITS) + 1)
        figures[name] = columns
    return {each.name: _peaks(each, figures[each.name]) for each in IDENTITIES}


def _peaks(identity: Identity, columns: list[str]) -> Peaks:
    bandwidth, *rates = columns
    return Peaks(
        name=identity.name,
        source=identity.source,
        bytes_per_s=float(bandwidth) * GIGA,
        flops_per_s={
            unit: float(rate) * TERA for unit, rate in zip(UNITS, rates, strict=True) if rate != "-"
        },
    )


_VENDOR = re.compile(r"^((nvidia|tesla|amd) )+")
_GIB = 2**30
_CPU_HERTZ = 2.5e9
_CPU_FP32_PER_CYCLE = 32
_CPU_CORE_BYTES_PER_S = 8e9
TABLE: dict[str, Peaks] = _table()
"""Every device of the table by its name there."""
