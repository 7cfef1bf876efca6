"""Peaks of devices, from their vendors' own documents. Checked 2026-11-20.

Figures are DENSE: figures that a document only gives with 2:4 sparsity are halved, as its footnote
says. A device is the unit that a process sees: one die of the MI250 series. Figures of GeForce
cards are those with accumulation in FP32, as in PyTorch.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

Unit = Literal[
    "fp64",
    "fp64_matrix",
    "fp32",
    "fp32_matrix",
    "tf32",
    "fp16",
    "bf16",
    "fp8",
    "fp4",
    "int8",
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
        "RTX 3090",
        r"geforce rtx 3090",
        "NVIDIA Ampere GA102 GPU Architecture whitepaper, 2021",
    ),
    DeviceIdentity("RTX 4090", r"geforce rtx 4090", "NVIDIA Ada GPU Architecture whitepaper, 2023"),
    DeviceIdentity(
        "RTX 5090",
        r"geforce rtx 5090",
        "NVIDIA RTX Blackwell GPU Architecture whitepaper, 2025",
    ),
    DeviceIdentity("MI100", r"instinct mi100", "AMD Instinct MI100 datasheet, 2020"),
    DeviceIdentity("MI210", r"instinct mi210", "AMD Instinct MI210 datasheet, 2022"),
    DeviceIdentity("MI250 die", r"instinct mi250(x( / mi250)?)?", _MI200, multiprocessors=104),
    DeviceIdentity("MI250X die", r"instinct mi250x( / mi250)?", _MI200, multiprocessors=110),
    DeviceIdentity("MI300X", r"instinct mi300x( oam)?", "AMD Instinct MI300X datasheet, 2023"),
    DeviceIdentity("MI325X", r"instinct mi325x( oam)?", "AMD Instinct MI325X datasheet, 2024"),
    DeviceIdentity("MI355X", r"instinct mi355x( oam)?", "AMD Instinct MI355X datasheet, 2025"),
)
