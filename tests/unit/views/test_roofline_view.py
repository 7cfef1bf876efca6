"""`roofline` on a drawn recording: one device, one step, times in microseconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stepscope.run import Run
from stepscope.views import ViewOptions
from stepscope.views.operators.operators import NO_INPUT_SHAPES
from stepscope.views.operators.roofline import NO_OPERATORS, TraceRoofline, show_roofline
from tests.support.printed import print_text

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
    """Return an operator of 10 us and the kernel that it launches."""
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
    events = [step, *(event for part in parts for event in part)]
    return {"traceEvents": events, "deviceProperties": [device or H100]}


def only(run: Run, **options: Any) -> TraceRoofline:
    payload = show_roofline(run, ViewOptions(**options))
    assert msgspec.json.decode(msgspec.json.encode(payload), type=type(payload)) == payload
    (trace,) = payload.traces
    return trace


def test_a_product_against_the_peaks_of_its_device(imported: Imported) -> None:
    payload = only(imported(one=recording(mm(10, 4, 1), mm(50, 6, 2))))
    assert payload.missing is None
    assert payload.hardware is not None
    assert payload.hardware.peaks_of == "H100 SXM"
    assert "datasheet" in (payload.hardware.source or "")
    assert payload.computing_ns == payload.modelled_ns == 10_000
    (group,) = payload.groups
    flops = 2 * 1024**3
    assert (group.calls, group.call_flop, group.call_bytes) == (2, flops, 3 * 2 * 1024**2)
    assert group.achieved_flop_per_s == pytest.approx(2 * flops / 10e-6)
    assert group.bound == "compute"
    assert group.roofline_ratio == pytest.approx(2 * flops / 989.4e12 / 10e-6)
    assert group.time_ratio == 1
    assert group.anomaly is None
    (gap,) = payload.gaps
    assert gap.saved_ratio == pytest.approx(1 - (group.roofline_ratio or 0))


def attention(start: float, number: int) -> list[Event]:
    q, k = [4, 2, 8], [4, 1, 8]
    return call(
        "vllm::unified_attention_with_output", start, 10, number=number, dims=[q, k, k, q, []],
        types=["c10::BFloat16"] * 4 + [""],
    )  # fmt: skip


def test_annotations_of_a_server_hold_the_lengths_of_its_sequences(imported: Imported) -> None:
    """The same call for one sequence of 4 new tokens, for 4 of 1, and without lengths."""
    sums = {
        10: "execute_4_context_1(sq4sk6sqsq16sqsk24)_generation_0(sq0sk0sqsq0sqsk0)",
        50: "execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq4sk40sqsq4sqsk40)",
        90: "execute_context_1(4)_generation_0(0)",
    }
    parts = [[event("user_annotation", name, start, 30)] for start, name in sums.items()]
    parts += [attention(start + 5, number) for number, start in enumerate(sums, 1)]
    payload = only(imported(one=recording(*parts)), top=0)
    works = {group.call_flop: group.reason for group in payload.groups}
    assert works.keys() == {2 * (2 * 24 - 16) * 16, 2 * (2 * 40 - 4) * 16, None}
    assert (payload.computing_ns, payload.modelled_ns) == (30_000, 20_000)
    assert [note for note in payload.notes if note.startswith("no model")] == [
        f"no model of vllm::unified_attention_with_output (33%): {works[None]}"
    ]


def test_replayed_graphs_have_no_model(imported: Imported) -> None:
    replay = event("kernel", "gemm", 100, 30)
    payload = only(imported(one=recording(mm(10, 10, 1), [replay])))
    (note,) = (note for note in payload.notes if note.startswith("no model"))
    assert payload.modelled_ratio == pytest.approx(0.25)
    assert note.startswith("no model of 75%: no operator")


def test_utilisation_of_the_step(imported: Imported) -> None:
    payload = only(imported(one=recording(mm(10, 4, 1), mm(50, 6, 2))))
    assert payload.utilization is not None
    (step,) = payload.utilization.steps
    assert (step.step, step.step_ns, step.matrix_flop) == ("3", 200_000, 4 * 1024**3)
    assert step.mfu_ratio == pytest.approx(4 * 1024**3 / 200e-6 / 989.4e12)
    assert payload.utilization.mean_mfu_ratio == pytest.approx(step.mfu_ratio)
    assert payload.utilization.precision == "bf16"
    assert "recomputed" in payload.utilization.notes[0]


def test_impossible_speed_is_shown_and_said(imported: Imported) -> None:
    payload = only(imported(one=recording(mm(10, 1, 1))))
    (group,) = payload.groups
    assert group.roofline_ratio is not None
    assert group.roofline_ratio > 1.1
    assert group.anomaly is not None
    assert any("of the roofline" in note for note in payload.notes)
    assert payload.gaps == []


def test_an_unknown_device_has_no_shares_and_says_so(imported: Imported) -> None:
    payload = only(imported(one=recording(mm(10, 4, 1), device=H100 | {"name": "Abacus 9"})))
    assert payload.hardware is not None
    assert payload.hardware.peaks_of is None
    (group,) = payload.groups
    assert group.achieved_flop_per_s is not None
    assert (group.roofline_ratio, group.bound) == (None, None)
    assert payload.utilization is not None
    assert payload.utilization.mean_mfu_ratio is None
    assert any("Abacus 9" in note for note in payload.notes)


def test_operators_without_a_model_have_reasons(imported: Imported) -> None:
    sort = call("aten::sort", 60, 30, number=2, dims=[[9]], types=["float"])
    payload = only(imported(one=recording(mm(10, 10, 1), sort)))
    assert payload.modelled_ratio == pytest.approx(0.25)
    reasons = {group.name: group.reason for group in payload.groups}
    assert reasons == {"aten::sort": "the operator has no model", "aten::mm": None}
    families = {family.family: family for family in payload.families}
    assert families["without a model"].total_flop is None
    assert families["gemm"].total_flop == 2 * 1024**3


def test_mostly_unknown_products_give_no_utilisation(imported: Imported) -> None:
    blind = call("aten::cudnn_convolution", 60, 100, number=2, dims=[[9], [9]],
                 types=["float", "float"])  # fmt: skip
    payload = only(imported(one=recording(mm(10, 4, 1), blind)))
    assert payload.utilization is not None
    assert payload.utilization.mean_mfu_ratio is None
    assert [step.mfu_ratio for step in payload.utilization.steps] == [None]
    assert "no utilization" in payload.utilization.notes[0]


def test_top_cuts_the_list_but_not_the_sums(imported: Imported) -> None:
    builder = imported(one=recording(mm(10, 4, 1), mm(50, 9, 2, size=512)))
    payload = only(builder, top=1)
    (group,) = payload.groups
    assert group.device_ns == 9_000
    assert (payload.group_count, payload.computing_ns) == (2, 13_000)
    assert len(only(builder, top=0).groups) == 2


def test_shapes_that_were_not_recorded(imported: Imported) -> None:
    bare = call("aten::mm", 10, 4, number=1, types=[])
    payload = only(imported(one=recording(bare)))
    assert (
        payload.missing == f"{NO_INPUT_SHAPES}: torch.profiler stores them with record_shapes=True"
    )
    assert payload.groups == []
    assert payload.computing_ns is None


def test_no_operator_with_work_on_a_device(imported: Imported) -> None:
    idle = event("cpu_op", "aten::view", 10, 5, **{"Input Dims": [[4]], "Input type": ["float"]})
    waiting = event("cuda_runtime", "cudaDeviceSynchronize", 20, 5, correlation=1)
    payload = only(
        imported(one=recording([event("kernel", "k", 1, 5, correlation=99), idle, waiting]))
    )
    assert payload.missing == NO_OPERATORS
    assert payload.computing_ns is None


def test_a_cpu_alone(imported: Imported) -> None:
    product = mm(10, 4, 1)[:1]
    payload = only(imported(one={"traceEvents": product}))
    assert payload.share_of is not None
    assert "on the host" in payload.share_of
    (group,) = payload.groups
    assert group.device_ns == 10_000
    assert group.roofline_ratio is None
    assert "the model of the CPU is unknown" in payload.notes[0]


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
    payload = only(real(name), top=0)
    assert payload.hardware is not None
    assert payload.hardware.peaks_of == peaks
    assert payload.modelled_ratio is not None
    assert modelled <= payload.modelled_ratio <= 1
    assert sum(family.time_ratio for family in payload.families) <= 1 + 1e-9
    assert not [group for group in payload.groups if group.anomaly and group.family == "gemm"]
    shares = [step.mfu_ratio for step in payload.utilization.steps] if payload.utilization else []
    assert all(share is not None and 0 < share < 1 for share in shares)


def test_arguments_that_are_none(imported: Imported) -> None:
    odd = call("aten::mm", 10, 4, number=1, dims="x", types=["float", "float"])
    large = [10**30, 1]
    huge = call("aten::mm", 40, 4, number=2, dims=[large, large], types=["float", "float"])
    payload = only(imported(one=recording(odd, huge)))
    assert {group.call_flop for group in payload.groups} == {None}
    assert {group.reason for group in payload.groups} == {
        "its recorded arguments cannot be read",
        "the recorded shape is not valid for a tensor",
    }


def test_the_text_of_a_group_fits_in_a_line(imported: Imported) -> None:
    text = print_text(show_roofline(imported(one=recording(mm(10, 40, 1)))))
    _, _, below = text.partition("\ngroups\n")
    rows, _, _ = below.partition("\ngaps\n")
    (row,) = (line for line in rows.splitlines() if line.startswith("aten::mm"))
    assert "compute" in row
