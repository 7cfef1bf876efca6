"""Peaks of a device: from the table, from the user, or estimated for a CPU.

Documents assume boost clocks that a loaded device does not sustain: a kernel at 90 % of the peak
is very good.

Peaks of devices, from their vendors' own documents. Checked 2026-11-20. Figures are DENSE: figures
that a document only gives with 2:4 sparsity are halved, as its footnote says. A device is the unit
that a process sees: one die of the MI250 series. Figures of GeForce cards are those with
accumulation in FP32, as in PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

import msgspec

from stepscope.analysis.roofline.calls import Precision
from stepscope.quantities import number

Unit = Literal[
    "fp64", "fp64_matrix", "fp32", "fp32_matrix", "tf32", "fp16", "bf16", "fp8", "fp4", "int8"
]
"""Compute units by precision: `fp64` and `fp32` are vector units, all others matrix units."""
UNITS: tuple[Unit, ...] = get_args(Unit)
TERA = 1e12
GIGA = 1e9

PEAK_FIGURES = """
                  GB/s    fp64  fp64_m  fp32  fp32_m  tf32   fp16    bf16    fp8     fp4     int8
V100 SXM          900     7.8   -       15.7  -       -      125     -       -       -       -
V100 DGX Station  900     7.8   -       15.7  -       -      125     -       -       -       -
V100 PCIe         900     7     -       14    -       -      112     -       -       -       -
V100S PCIe        1134    8.2   -       16.4  -       -      130     -       -       -       -
T4                320     -     -       8.1   -       -      65      -       -       -       130
A10               600     -     -       31.2  -       62.5   125     125     -       -       250
A100 SXM 40 GB    1555    9.7   19.5    19.5  -       156    312     312     -       -       624
A100 SXM 80 GB    2039    9.7   19.5    19.5  -       156    312     312     -       -       624
A100 PCIe 40 GB   1555    9.7   19.5    19.5  -       156    312     312     -       -       624
A100 PCIe 80 GB   1935    9.7   19.5    19.5  -       156    312     312     -       -       624
L4                300     -     -       30.3  -       60     121     121     242.5   -       242.5
L40S              864     -     -       91.6  -       183    362.05  362.05  733     -       733
H100 SXM          3350    34    67      67    -       494.7  989.4   989.4   1978.9  -       1978.9
H100 PCIe         2000    26    51      51    -       378    756.5   756.5   1513    -       1513
H100 NVL          3900    30    60      60    -       417.5  835.5   835.5   1670.5  -       1670.5
H200 SXM          4800    34    67      67    -       494.7  989.4   989.4   1978.9  -       1978.9
H200 NVL          4800    30    60      60    -       417.5  835.5   835.5   1670.5  -       1670.5
GH200 96 GB       4000    34    67      67    -       494.7  989.4   989.4   1978.9  -       1978.9
GH200 144 GB      4900    34    67      67    -       494.7  989.4   989.4   1978.9  -       1978.9
B100              8000    30    30      60    -       875    1750    1750    3500    7000    3500
B200              7700    37    37      75    -       1100   2250    2250    4500    9000    4500
GB200             8000    40    40      80    -       1250   2500    2500    5000    10000   5000
RTX 3090          936     -     -       35.6  -       35.6   71      71      -       -       284
RTX 4090          1008    -     -       82.6  -       82.6   165.2   165.2   330.3   -       660.6
RTX 5090          1792    -     -       104.8 -       104.8  209.5   209.5   419     1676    838
MI100             1228.8  11.5  -       23.1  46.1    -      184.6   92.3    -       -       184.6
MI210             1638.4  22.6  45.3    22.6  45.3    -      181     181     -       -       181
MI250 die         1638.4  22.65 45.25   22.65 45.25   -      181.05  181.05  -       -       181.05
MI250X die        1638.4  23.95 47.85   23.95 47.85   -      191.5   191.5   -       -       191.5
MI300X            5300    81.7  163.4   163.4 163.4   653.7  1307.4  1307.4  2614.9  -       2614.9
MI325X            6000    81.7  163.4   163.4 163.4   653.7  1307.4  1307.4  2614.9  -       2614.9
MI355X            8000    78.6  78.6    157.3 157.3   -      2516.6  2516.6  5033.2  10066.3 5033.2
"""
"""GB/s, then TFLOP/s (TOP/s for integers); "-" for a figure that is not in the document."""


class DeviceIdentity(NamedTuple):
    """Name that a device reports, without the vendor, and the document with its peaks."""

    name: str
    pattern: str
    """Regular expression of the reported name."""
    source: str
    """Document and year."""
    memory_gib: tuple[float, float] = (0, 1e9)
    """Range of memory sizes, for variants with the same name."""
    multiprocessors: int | None = None


_V100 = "NVIDIA V100 Tensor Core GPU datasheet, 2020"
_A100 = "NVIDIA A100 Tensor Core GPU datasheet, 2021"
_A100_40 = "NVIDIA A100 Tensor Core GPU datasheet, 2020"
_H100 = "NVIDIA H100 Tensor Core GPU datasheet, 2024"
_H200 = "NVIDIA H200 Tensor Core GPU datasheet, 2024"
_GH200 = "NVIDIA GH200 Grace Hopper Superchip datasheet, 2024"
_BLACKWELL = "NVIDIA datasheet of GB200 NVL72 and HGX B200, 2025"
_MI200 = "AMD Instinct MI200 Series datasheet, 2022, halved: a module has two dies"

IDENTITIES: tuple[DeviceIdentity, ...] = (
    DeviceIdentity("V100 SXM", r"v100-sxm[23].*", _V100),
    DeviceIdentity(
        "V100 DGX Station",
        r"v100-dgxs-.*",
        "NVIDIA DGX Station datasheet, 2018: 500 TFLOPS of four GPUs",
    ),
    DeviceIdentity("V100 PCIe", r"v100-pcie.*", _V100),
    DeviceIdentity("V100S PCIe", r"v100s-pcie.*", _V100),
    DeviceIdentity("T4", r"t4", "NVIDIA T4 Tensor Core GPU datasheet, 2019"),
    DeviceIdentity("A10", r"a10", "NVIDIA A10 Tensor Core GPU datasheet, 2021"),
    DeviceIdentity("A100 SXM 40 GB", r"a100-(sxm4?-40gb|pg509-200)", _A100_40),
    DeviceIdentity("A100 SXM 80 GB", r"a100-sxm4?-80gb", _A100),
    DeviceIdentity("A100 PCIe 40 GB", r"a100-pcie-40gb", _A100_40),
    DeviceIdentity("A100 PCIe 80 GB", r"a100( 80gb pcie|-pcie-80gb)", _A100),
    DeviceIdentity("L4", r"l4", "NVIDIA L4 Tensor Core GPU datasheet, 2023"),
    DeviceIdentity("L40S", r"l40s", "NVIDIA L40S datasheet, 2023"),
    DeviceIdentity("H100 SXM", r"h100 80gb hbm3", _H100),
    DeviceIdentity("H100 PCIe", r"h100 pcie", "NVIDIA H100 Tensor Core GPU datasheet, 2022"),
    DeviceIdentity("H100 NVL", r"h100 nvl", _H100),
    DeviceIdentity("H200 SXM", r"h200", _H200),
    DeviceIdentity("H200 NVL", r"h200 nvl", _H200),
    DeviceIdentity("GH200 96 GB", r"gh200.*", _GH200, (80, 100)),
    DeviceIdentity("GH200 144 GB", r"gh200.*", _GH200, (120, 150)),
    DeviceIdentity("B100", r"b100", "NVIDIA Blackwell Architecture Technical Brief, 2024"),
    DeviceIdentity("B200", r"b200", _BLACKWELL),
    DeviceIdentity("GB200", r"gb200", _BLACKWELL),
    DeviceIdentity(
        "RTX 3090", r"geforce rtx 3090", "NVIDIA Ampere GA102 GPU Architecture whitepaper, 2021"
    ),
    DeviceIdentity("RTX 4090", r"geforce rtx 4090", "NVIDIA Ada GPU Architecture whitepaper, 2023"),
    DeviceIdentity(
        "RTX 5090", r"geforce rtx 5090", "NVIDIA RTX Blackwell GPU Architecture whitepaper, 2025"
    ),
    DeviceIdentity("MI100", r"instinct mi100", "AMD Instinct MI100 datasheet, 2020"),
    DeviceIdentity("MI210", r"instinct mi210", "AMD Instinct MI210 datasheet, 2022"),
    DeviceIdentity("MI250 die", r"instinct mi250(x( / mi250)?)?", _MI200, multiprocessors=104),
    DeviceIdentity("MI250X die", r"instinct mi250x( / mi250)?", _MI200, multiprocessors=110),
    DeviceIdentity("MI300X", r"instinct mi300x( oam)?", "AMD Instinct MI300X datasheet, 2023"),
    DeviceIdentity("MI325X", r"instinct mi325x( oam)?", "AMD Instinct MI325X datasheet, 2024"),
    DeviceIdentity("MI355X", r"instinct mi355x( oam)?", "AMD Instinct MI355X datasheet, 2025"),
)


class Peaks(msgspec.Struct, frozen=True, kw_only=True):
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
