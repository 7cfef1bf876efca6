"""TraceLens's own figures for two recordings of H100s, to a millionth.

Its bytes are in MiB and its times are differences of microseconds in doubles: kernels' own sums,
which it prints beside them, are exact. It charges copies an operation an element and lets every
reduction write a single one; we do not, so those figures are not compared.
"""

from __future__ import annotations

import ast
import csv
import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stepscope.analysis import RooflineGroup
from stepscope.run import Run
from stepscope.views import ViewOptions
from stepscope.views.operators.roofline import show_roofline
from tests.support.imported_runs import REAL_TRACES

Real = Callable[[str], Run]
TRACES = ("bert_small.h100", "qwen_0_5b.h100")
SHEETS = (
    "GEMM",
    "SDPA_fwd",
    "Normalization",
    "BinaryElementwise",
    "UnaryElementwise",
    "Reduce_fwd",
)
INNER = {"aten::layer_norm": "aten::native_layer_norm"}
"""It lists both; the outer one launches nothing itself."""
US_RESOLUTION = 2.0**-12
"""Of a double that counts microseconds of uptime."""
MILLIONTH = 1e-6
DETAILS = "kernel_details__summarize_kernel_stats"
KERNEL_TIME = "Kernel Time (\N{MICRO SIGN}s)_sum"


def rows(trace: str, sheet: str) -> Iterator[dict[str, str]]:
    path = REAL_TRACES / "tracelens_reference" / trace / f"{sheet}.csv"
    if path.is_file():
        csv.field_size_limit(sys.maxsize)
        with path.open(newline="") as file:
            yield from csv.DictReader(file)


CASES = [(trace, sheet) for trace in TRACES for sheet in SHEETS if any(rows(trace, sheet))]


def found(real: Real, trace: str) -> dict[tuple[str, str | None, str | None], RooflineGroup]:
    (one,) = show_roofline(real(f"{trace}.json.gz"), ViewOptions(top=0)).traces
    return {
        (group.name, group.input_dims, f"{group.input_types} {group.input_strides}"): group
        for group in one.groups
    }


def compact(text: str) -> str:
    return json.dumps(ast.literal_eval(text), separators=(",", ":"))


def kernel_time_us(row: dict[str, str]) -> float:
    """Sum of the kernels' durations, from the summary beside the rounded column."""
    totals = re.findall(r"'total_duration_us': np\.float64\(([\d.e+-]+)\)", row[DETAILS])
    return sum(map(float, totals))


def match(row: dict[str, str], groups: dict[Any, RooflineGroup]) -> RooflineGroup:
    types = compact(row["Input type_first"])
    strides = compact(row["Input Strides_first"])
    name = INNER.get(row["name"], row["name"])
    exact = groups.get((name, compact(row["Input Dims_first"]), f"{types} {strides}"))
    if exact is not None:
        return exact
    # A wrapper passes its arguments on in another order.
    (only,) = [
        group
        for group in groups.values()
        if group.name == name and group.calls == int(row["name_count"])
    ]
    return only


@pytest.mark.parametrize(("trace", "sheet"), CASES or [(TRACES[0], SHEETS[0])])
def test_rows(real: Real, trace: str, sheet: str) -> None:
    if not CASES:
        pytest.skip("../shared/traces/tracelens_reference is not here")
    groups = found(real, trace)
    for row in rows(trace, sheet):
        group = match(row, groups)
        check_work(row, group, sheet)
        check_time(row, group)


def check_work(row: dict[str, str], group: RooflineGroup, sheet: str) -> None:
    assert group.calls == int(row["name_count"])
    if row["name"] == "aten::copy_":
        assert group.call_flop == 0
    else:
        assert group.call_flop == pytest.approx(float(row["GFLOPS_first"]) * 1e9, rel=MILLIONTH)
    if sheet != "Reduce_fwd":
        expected = float(row["Data Moved (MB)_first"]) * 2**20
        assert group.call_bytes == pytest.approx(expected, rel=MILLIONTH)


def check_time(row: dict[str, str], group: RooflineGroup) -> None:
    total_us = kernel_time_us(row)
    assert group.device_ns / 1e3 == pytest.approx(total_us, rel=1e-9)
    if group.call_flop:
        rate = float(row["GFLOPS_first"]) * 1e9 * group.calls / (total_us / 1e6)
        assert group.achieved_flop_per_s == pytest.approx(rate, rel=MILLIONTH)
    rounding = US_RESOLUTION / (group.min_ns / 1e3)
    for ours, theirs in (
        (group.mean_of_calls_flop_per_s, row["TFLOPS/s_mean"]),
        (group.mean_of_calls_bytes_per_s, row["TB/s_mean"]),
    ):
        if ours and group.family not in {"movement", "reduction"}:
            assert ours / 1e12 == pytest.approx(float(theirs), rel=MILLIONTH + rounding)


def test_every_operator_that_launches_is_accounted(real: Real) -> None:
    """The unified table sums to the time that stepscope attributes to operators."""
    if not CASES:
        pytest.skip("../shared/traces/tracelens_reference is not here")
    for trace in TRACES:
        (one,) = show_roofline(real(f"{trace}.json.gz")).traces
        times = [float(row[KERNEL_TIME]) for row in rows(trace, "unified_perf_summary")]
        assert one.computing_ns == pytest.approx(sum(times) * 1e3, rel=1e-5)
