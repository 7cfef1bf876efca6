"""Peaks of a device: from the table, from the user, or estimated for a CPU.

Documents assume boost clocks that a loaded device does not sustain: a kernel at 90 % of the peak
is very good.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from stepscope.analysis.roofline.calls import Precision
from stepscope.analysis.roofline.device_table import (
    GIGA,
    IDENTITIES,
    PEAK_FIGURES,
    TERA,
    UNITS,
    DeviceIdentity,
    Unit,
)
from stepscope.quantities import number


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Peaks of one device."""

    name: str
    source: str
    """Document and year."""
    bytes_per_s: float | None
    """Memory bandwidth."""
    flops_per_s: Mapping[Unit, float]
    estimate: bool = False
    """True for an estimate instead of a vendor's figure for this device."""

    def rate(self, precision: Precision, *, matrix: bool) -> float | None:
        """Peak operations per second, None if unknown.

        Vector units compute half precision in FP32.
        """
        if not matrix:
            return self.flops_per_s.get("fp64" if precision == "fp64" else "fp32")
        if precision == "fp64":
            return self.flops_per_s.get("fp64_matrix", self.flops_per_s.get("fp64"))
        if precision == "fp32":
            return self.flops_per_s.get("fp32_matrix", self.flops_per_s.get("fp32"))
        # Units multiply FP4 at one rate, whatever the scales are.
        return self.flops_per_s.get("fp4" if precision == "mxfp4" else precision)


def find_peaks(
    name: str, *, memory_bytes: int | None = None, multiprocessors: int | None = None
) -> Peaks | None:
    """Find the peaks of a device in the table; None without a unique match.

    Args:
        name: name from the driver or the profiler, such as "NVIDIA H100 80GB HBM3". A slice of
            a device (MIG, GRID) has other peaks and does not match.
        memory_bytes, multiprocessors: if known; some variants share a name.
    """
    plain_name = _VENDOR.sub("", name.strip().lower())
    if " mig " in plain_name:
        return None
    gib = (memory_bytes or 0) / _GIB
    matches = [
        identity
        for identity in IDENTITIES
        if re.fullmatch(identity.pattern, plain_name)
        and (gib <= 0 or identity.memory_gib[0] <= gib <= identity.memory_gib[1])
        and (not multiprocessors or identity.multiprocessors in {None, multiprocessors})
    ]
    return DEVICE_PEAKS[matches[0].name] if len(matches) == 1 else None


def estimate_cpu_peaks(cores: float) -> Peaks:
    """Estimate the peaks of a CPU: traces do not contain its vendor's figures.

    F = cores · 2.5 GHz · 32 in FP32 (two 256-bit fused multiply-adds a cycle), half in FP64;
    bandwidth = cores · 8 GB/s
    """
    rates: dict[Unit, float] = {
        "fp32": cores * _CPU_HERTZ * _CPU_FP32_PER_CYCLE,
        "fp64": cores * _CPU_HERTZ * _CPU_FP32_PER_CYCLE / 2,
    }
    return Peaks(
        name=f"CPU of {number(cores)} cores",
        source="an estimate: 2.5 GHz, two 256-bit fused multiply-adds a cycle, 8 GB/s, per core",
        bytes_per_s=cores * _CPU_CORE_BYTES_PER_S,
        flops_per_s=rates,
        estimate=True,
    )


def parse_peaks(text: str) -> Peaks:
    """Parse the peaks that a user specifies.

    Args:
        text: `bf16=989,fp32=67,bandwidth=3350` in TFLOP/s and GB/s, or the name of a device of the
            table.

    Raises:
        ValueError: the text is neither; the message is for the user.
    """
    if "=" not in text:
        by_name = {name.lower(): peaks for name, peaks in DEVICE_PEAKS.items()}
        peaks = by_name.get(text.strip().lower()) or find_peaks(text)
        if peaks is None:
            raise ValueError(
                f"Unknown device {text.strip()!r}. The table of peaks has "
                f"{', '.join(DEVICE_PEAKS)}."
            )
        return peaks
    figures = dict(_parse_figure(part) for part in text.split(","))
    rates: dict[Unit, float] = {unit: figures[unit] * TERA for unit in UNITS if unit in figures}
    bandwidth = figures.get("bandwidth")
    return Peaks(
        name="custom",
        source="specified by the user",
        bytes_per_s=bandwidth * GIGA if bandwidth else None,
        flops_per_s=rates,
    )


def _parse_figure(part: str) -> tuple[str, float]:
    key, _, value = (token.strip().lower() for token in part.partition("="))
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf") or key not in {*UNITS, "bandwidth"}:
        raise ValueError(
            f"Invalid peak {part.strip()!r}. Expected UNIT=NUMBER with a number above zero, e.g. "
            f"bf16=989; units are {', '.join(UNITS)} (TFLOP/s) and bandwidth (GB/s)."
        )
    return key, number


def _parse_table() -> dict[str, Peaks]:
    figures = {}
    for line in PEAK_FIGURES.strip().splitlines()[1:]:
        name, *columns = line.rsplit(maxsplit=len(UNITS) + 1)
        figures[name] = columns
    return {identity.name: _make_peaks(identity, figures[identity.name]) for identity in IDENTITIES}


def _make_peaks(identity: DeviceIdentity, columns: list[str]) -> Peaks:
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
DEVICE_PEAKS: dict[str, Peaks] = _parse_table()
"""Peaks of the devices of the table, by name."""
