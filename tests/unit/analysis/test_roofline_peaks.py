"""Table of peaks: completeness, units, and lookups by device name."""

from __future__ import annotations

import pytest

from stepscope.analysis.roofline.peaks import (
    DEVICE_PEAKS,
    IDENTITIES,
    PEAK_FIGURES,
    UNITS,
    estimate_cpu_peaks,
    find_peaks,
    parse_peaks,
)

GIB = 2**30
SPARSE = {
    # As printed in the documents, with 2:4 sparsity.
    "A100 SXM 80 GB": {"tf32": 312, "bf16": 624, "int8": 1248},
    "A10": {"tf32": 125, "bf16": 250, "int8": 500},
    "L4": {"tf32": 120, "bf16": 242, "fp8": 485},
    "L40S": {"tf32": 366, "bf16": 733, "fp8": 1466, "int8": 1466},
    "H100 SXM": {"tf32": 989, "bf16": 1979, "fp8": 3958, "int8": 3958},
    "H100 PCIe": {"tf32": 756, "bf16": 1513, "fp8": 3026, "int8": 3026},
    "H100 NVL": {"tf32": 835, "bf16": 1671, "fp8": 3341, "int8": 3341},
    "H200 SXM": {"tf32": 989, "bf16": 1979, "fp8": 3958, "int8": 3958},
    "B200": {"tf32": 2200, "bf16": 4500, "fp8": 9000, "fp4": 18000},
    "GB200": {"tf32": 2500, "bf16": 5000, "fp8": 10000, "fp4": 20000},
    "RTX 4090": {"bf16": 330.3, "fp8": 660.6, "int8": 1321.2},
    "MI300X": {"tf32": 1307.4, "bf16": 2614.9, "fp8": 5229.8},
}


def test_every_row_has_an_identity_and_a_source() -> None:
    names = {line.rsplit(maxsplit=len(UNITS) + 1)[0] for line in PEAK_FIGURES.splitlines()[2:]}
    assert names == set(DEVICE_PEAKS) == {identity.name for identity in IDENTITIES}
    for identity in IDENTITIES:
        assert (
            "datasheet" in identity.source
            or "whitepaper" in identity.source
            or "Brief" in identity.source
        )
        assert any(year in identity.source for year in map(str, range(2018, 2027)))


@pytest.mark.parametrize("name", DEVICE_PEAKS)
def test_units_are_tera_and_giga(name: str) -> None:
    peaks = DEVICE_PEAKS[name]
    assert peaks.bytes_per_s is not None
    assert 3e11 <= peaks.bytes_per_s <= 1e13
    assert all(1e12 < rate < 2e16 for rate in peaks.flops_per_s.values())


@pytest.mark.parametrize("name", DEVICE_PEAKS)
def test_narrower_numbers_are_no_slower(name: str) -> None:
    rates = DEVICE_PEAKS[name].flops_per_s
    for chain in (
        ("fp64", "fp64_matrix", "fp16"),
        ("fp64", "fp32", "fp32_matrix", "tf32", "fp16", "fp8", "fp4"),
        ("fp32", "bf16", "fp8", "fp4"),
        ("bf16", "int8"),
    ):
        peaks = [rates[unit] for unit in chain if unit in rates]  # type: ignore[index]
        assert peaks == sorted(peaks), chain


@pytest.mark.parametrize("name", SPARSE)
def test_figures_are_dense(name: str) -> None:
    for unit, sparse in SPARSE[name].items():
        dense = DEVICE_PEAKS[name].flops_per_s[unit]  # type: ignore[index]
        assert dense == pytest.approx(sparse * 1e12 / 2, rel=0.015), unit


def test_generations_grow() -> None:
    names = ("V100 SXM", "A100 SXM 80 GB", "H100 SXM", "B200")
    assert [DEVICE_PEAKS[n].flops_per_s["fp16"] for n in names] == sorted(
        DEVICE_PEAKS[n].flops_per_s["fp16"] for n in names
    )
    assert [DEVICE_PEAKS[n].bytes_per_s or 0 for n in names] == sorted(
        DEVICE_PEAKS[n].bytes_per_s or 0 for n in names
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA A100-PG509-200", "A100 SXM 40 GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80 GB"),
        ("A100-SXM4-40GB", "A100 SXM 40 GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80 GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 PCIe 40 GB"),
        ("Tesla V100-SXM2-32GB", "V100 SXM"),
        ("Tesla V100-DGXS-32GB", "V100 DGX Station"),
        ("Tesla V100-PCIE-16GB", "V100 PCIe"),
        ("Tesla V100S-PCIE-32GB", "V100S PCIe"),
        ("Tesla T4", "T4"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Instinct MI355X", "MI355X"),
    ],
)
def test_devices_match_their_reported_names(name: str, expected: str) -> None:
    peaks = find_peaks(name)
    assert peaks.name == expected


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A10G",
        "NVIDIA A100X",
        "NVIDIA H100",
        "NVIDIA H20",
        "NVIDIA H800",
        "NVIDIA L40",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "GRID A100-10C",
        "AMD Radeon Graphics",
        "AMD Instinct MI300A",
        "",
    ],
)
def test_similar_devices_do_not_match(name: str) -> None:
    assert find_peaks(name) is None


def test_ambiguous_variants_do_not_match() -> None:
    assert find_peaks("NVIDIA GH200 480GB") is None
    small = find_peaks("NVIDIA GH200 480GB", memory_bytes=95 * GIB)
    large = find_peaks("NVIDIA GH200 144G HBM3e", memory_bytes=141 * GIB)
    assert (small.name, large.name) == ("GH200 96 GB", "GH200 144 GB")
    shared = "AMD Instinct MI250X / MI250"
    assert find_peaks(shared) is None
    dies = [find_peaks(shared, multiprocessors=count) for count in (104, 110, 96)]
    assert [die.name if die else None for die in dies] == ["MI250 die", "MI250X die", None]


def test_rates_by_unit_and_precision() -> None:
    h100, mi300 = DEVICE_PEAKS["H100 SXM"], DEVICE_PEAKS["MI300X"]
    assert h100.rate("bf16", matrix=True) == 989.4e12
    assert h100.rate("bf16", matrix=False) == h100.rate("fp32", matrix=True) == 67e12
    assert h100.rate("fp64", matrix=True) == 67e12
    assert h100.rate("fp64", matrix=False) == 34e12
    assert h100.rate("fp4", matrix=True) is None
    assert mi300.rate("fp32", matrix=True) == 163.4e12
    assert DEVICE_PEAKS["V100 SXM"].rate("bf16", matrix=True) is None


def test_custom_peaks() -> None:
    peaks = parse_peaks("bf16=989.4, fp32=67,bandwidth=3350")
    assert peaks.flops_per_s == {"fp32": 67e12, "bf16": 989.4e12}
    assert peaks.bytes_per_s == 3350e9
    assert peaks.source == "specified by the user"
    assert parse_peaks("fp32=1").bytes_per_s is None
    assert parse_peaks("h100 pcie") is DEVICE_PEAKS["H100 PCIe"]
    assert parse_peaks("NVIDIA H100 80GB HBM3") is DEVICE_PEAKS["H100 SXM"]


@pytest.mark.parametrize("text", ["bf16=fast", "bf16=0", "bf32=3", "H1000", "", "bf16=nan"])
def test_invalid_peaks_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid peak|Unknown device"):
        parse_peaks(text)


def test_cpu_peaks_are_an_estimate() -> None:
    peaks = estimate_cpu_peaks(8)
    assert peaks.estimate
    assert peaks.rate("fp32", matrix=True) == 8 * 80e9
    assert peaks.rate("fp64", matrix=False) == 8 * 40e9
    assert peaks.rate("bf16", matrix=True) is None
    assert "estimate" in peaks.source
