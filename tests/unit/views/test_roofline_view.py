"""`roofline` on a drawn recording: one device, one step, times in microseconds."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from rich.console import Console

from stepscope.cli.writers import write
from stepscope.run import Run
from stepscope.views import ViewOptions
from stepscope.views.roofline import NO_OPERATORS, NO_SHAPES, roofline
from stepscope.views.roofline_payload import TraceRoofline

Event = dict[str, Any]
Imported = Callable[..., Run]
H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000, "numSms": 132}


def event(category: str, name: str, start: float, duration: float, **about: Any) -> Event:
    device = category in {"kernel", "gpu_memcpy", "gpu_memset"}
    return {
        "ph": "X", "cat": category, "name": name, "ts": start, "dur": duration,
        "pid": 0 if device else 100, "tid": 7 if device else 100,
        "args": about | ({"device": 0, "stream": 7} if device else {}),
    }  # fmt: skip


def call(
    name: str, start: float, kernel: float, *, number: int, dims: Any = None, types: Any = None
) -> list[Event]:
    """An operator of 10 us and the kernel that it launches."""
    shapes = {"Input Dims": dims, "Input type": types, "Concrete Inputs": [""] * len(types)}
    about = {"External id": number} | (shapes if dims else {})
    return [
        event("cpu_op", name, start, 10, **about),
        event("cuda_runtime", "cudaLaunchKernel", start + 2, 5, correlation=number,
              **{"External id": number}),
        event("kernel", f"{name} kernel", start + 20, kernel, correlation=number,
              **{"External id": number}),
    ]  # fmt: skip


def mm(start: float, kernel: float, number: int, size: int = 1024) -> list[Event]:
    square = [size, size]
    return call(
        "aten::mm", start, kernel, number=number, dims=[square, square],
        types=["c10::BFloat16", "c10::BFloat16"],
    )  # fmt: skip


def recording(*parts: list[Event], device: dict[str, Any] | None = None) -> dict[str, Any]:
    step = event("user_annotation", "ProfilerStep#3", 0, 200)
    events = [step, *(each for part in parts for each in part)]
    return {"traceEvents": events, "deviceProperties": [device or H100]}


def only(run: Run, **options: Any) -> TraceRoofline:
    payload = roofline(run, ViewOptions(**options))
    assert msgspec.json.decode(msgspec.json.encode(payload), type=type(payload)) == payload
    (found,) = payload.traces
    return found


def test_a_product_against_the_peaks_of_its_device(imported: Imported) -> None:
    found = only(imported(one=recording(mm(10, 4, 1), mm(50, 6, 2))))
    assert found.missing is None
    assert found.hardware is not None
    assert found.hardware.peaks_of == "H100 SXM"
    assert "datasheet" in (found.hardware.source or "")
    assert found.computing_ns == found.modelled_ns == 10_000
    (group,) = found.groups
    flops = 2 * 1024**3
    assert (group.calls, group.call_flop, group.call_bytes) == (2, flops, 3 * 2 * 1024**2)
    assert group.achieved_flop_per_s == pytest.approx(2 * flops / 10e-6)
    assert group.bound == "compute"
    assert group.roofline_ratio == pytest.approx(2 * flops / 989.4e12 / 10e-6)
    assert group.time_ratio == 1
    assert group.anomaly is None
    (gap,) = found.gaps
    assert gap.saved_ratio == pytest.approx(1 - (group.roofline_ratio or 0))


def test_utilisation_of_the_step(imported: Imported) -> None:
    found = only(imported(one=recording(mm(10, 4, 1), mm(50, 6, 2))))
    assert found.utilization is not None
    (step,) = found.utilization.steps
    assert (step.step, step.step_ns, step.matrix_flop) == ("3", 200_000, 4 * 1024**3)
    assert step.mfu_ratio == pytest.approx(4 * 1024**3 / 200e-6 / 989.4e12)
    assert found.utilization.mean_mfu_ratio == pytest.approx(step.mfu_ratio)
    assert found.utilization.precision == "bf16"
    assert "recomputed" in found.utilization.notes[0]


def test_impossible_speed_is_shown_and_said(imported: Imported) -> None:
    found = only(imported(one=recording(mm(10, 1, 1))))
    (group,) = found.groups
    assert group.roofline_ratio is not None
    assert group.roofline_ratio > 1.1
    assert group.anomaly is not None
    assert any("above the roofline" in note for note in found.notes)
    assert found.gaps == []


def test_an_unknown_device_has_no_shares_and_says_so(imported: Imported) -> None:
    found = only(imported(one=recording(mm(10, 4, 1), device=H100 | {"name": "Abacus 9"})))
    assert found.hardware is not None
    assert found.hardware.peaks_of is None
    (group,) = found.groups
    assert group.achieved_flop_per_s is not None
    assert (group.roofline_ratio, group.bound) == (None, None)
    assert found.utilization is not None
    assert found.utilization.mean_mfu_ratio is None
    assert any("Abacus 9" in note for note in found.notes)


def test_operators_without_a_model_have_reasons(imported: Imported) -> None:
    sort = call("aten::sort", 60, 30, number=2, dims=[[9]], types=["float"])
    found = only(imported(one=recording(mm(10, 10, 1), sort)))
    assert found.modelled_ratio == pytest.approx(0.25)
    reasons = {group.name: group.reason for group in found.groups}
    assert reasons == {"aten::sort": "the operator has no model", "aten::mm": None}
    families = {each.family: each for each in found.families}
    assert families["without a model"].total_flop is None
    assert families["gemm"].total_flop == 2 * 1024**3


def test_mostly_unknown_products_give_no_utilisation(imported: Imported) -> None:
    blind = call("aten::cudnn_convolution", 60, 100, number=2, dims=[[9], [9]],
                 types=["float", "float"])  # fmt: skip
    found = only(imported(one=recording(mm(10, 4, 1), blind)))
    assert found.utilization is not None
    assert found.utilization.mean_mfu_ratio is None
    assert [step.mfu_ratio for step in found.utilization.steps] == [None]
    assert "no utilisation" in found.utilization.notes[0]


def test_top_cuts_the_list_but_not_the_sums(imported: Imported) -> None:
    run = imported(one=recording(mm(10, 4, 1), mm(50, 9, 2, size=512)))
    found = only(run, top=1)
    (group,) = found.groups
    assert group.device_ns == 9_000
    assert (found.group_count, found.computing_ns) == (2, 13_000)
    assert len(only(run, top=0).groups) == 2


def test_shapes_that_were_not_recorded(imported: Imported) -> None:
    bare = call("aten::mm", 10, 4, number=1, types=[])
    found = only(imported(one=recording(bare)))
    assert found.missing == f"{NO_SHAPES}: record it with record_shapes=True"
    assert found.groups == []
    assert found.computing_ns is None


def test_no_operator_with_work_on_a_device(imported: Imported) -> None:
    idle = event("cpu_op", "aten::view", 10, 5, **{"Input Dims": [[4]], "Input type": ["float"]})
    waiting = event("cuda_runtime", "cudaDeviceSynchronize", 20, 5, correlation=1)
    found = only(
        imported(one=recording([event("kernel", "k", 1, 5, correlation=99), idle, waiting]))
    )
    assert found.missing == NO_OPERATORS
    assert found.computing_ns is None


def test_a_cpu_alone(imported: Imported) -> None:
    product = mm(10, 4, 1)[:1]
    found = only(imported(one={"traceEvents": product}))
    assert found.share_of is not None
    assert "host time" in found.share_of
    (group,) = found.groups
    assert group.device_ns == 10_000
    assert group.roofline_ratio is None
    assert "nothing is known of the CPU" in found.notes[0]


@pytest.mark.parametrize(
    ("name", "peaks", "modelled"),
    [
        ("qwen_0_5b.h100.json.gz", "H100 SXM", 0.999),
        ("resnet_checkpointing_8ranks.mi300x.json.gz", "MI300X", 0.98),
        ("torch_compile_triton.mi300x.json.gz", "MI300X", 0.999),
    ],
)
def test_real_recordings_are_nearly_all_modelled(
    real: Callable[[str], Run], name: str, peaks: str, modelled: float
) -> None:
    found = only(real(name), top=0)
    assert found.hardware is not None
    assert found.hardware.peaks_of == peaks
    assert found.modelled_ratio is not None
    assert modelled <= found.modelled_ratio <= 1
    assert sum(each.time_ratio for each in found.families) <= 1 + 1e-9
    assert not [group for group in found.groups if group.anomaly and group.family == "gemm"]
    shares = [step.mfu_ratio for step in found.utilization.steps] if found.utilization else []
    assert all(share is not None and 0 < share < 1 for share in shares)


def test_arguments_that_are_none(imported: Imported) -> None:
    odd = call("aten::mm", 10, 4, number=1, dims="x", types=["float", "float"])
    large = [10**30, 1]
    huge = call("aten::mm", 40, 4, number=2, dims=[large, large], types=["float", "float"])
    found = only(imported(one=recording(odd, huge)))
    assert {group.call_flop for group in found.groups} == {None}
    assert {group.reason for group in found.groups} == {
        "its recorded arguments cannot be read",
        "the recorded shape is not valid for a tensor",
    }


def test_the_text_of_a_group_fits_in_a_line(imported: Imported) -> None:
    stream = io.StringIO()
    payload = roofline(imported(one=recording(mm(10, 40, 1))))
    write(Console(file=stream, width=100, highlight=False), payload)
    _, _, below = stream.getvalue().partition("\ngroups\n")
    rows, _, _ = below.partition("\ngaps\n")
    (row,) = (line for line in rows.splitlines() if line.startswith("aten::mm"))
    assert "compute" in row
