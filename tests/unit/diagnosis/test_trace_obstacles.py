"""Traces that tell too little, or what cannot be, have no verdict, and the reason comes first."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.diagnosis import diagnose
from stepscope.testing.traces import TraceJob
from tests.support.drawn_verdicts import GEMM, STEPS, Draw, compute, draw_steps, judge
from tests.support.imported_runs import import_into


def test_a_device_that_is_idle_for_unknown_reasons(tmp_path: Path) -> None:
    job = TraceJob()
    for _ in range(5):
        job.launch(GEMM, 100)
        job.python(1_000)
    job.events = [event for event in job.events if event["cat"] == "kernel"]
    verdict = judge(tmp_path, job)
    assert verdict.suspect == "insufficient_evidence"
    assert "the trace has no operators to tell why" in verdict.headline


def test_devices_that_work_in_turn_have_no_verdict(tmp_path: Path) -> None:
    job = TraceJob()
    for _ in range(6):
        with job.step():
            for device in (0, 1):
                job.launch(GEMM, 10_000)
                job.events[-1]["args"]["device"] = device
                job.events[-1]["pid"] = device
                job.wait()
    verdict = judge(tmp_path, job)
    assert verdict.suspect == "insufficient_evidence"
    assert "uses 2 GPUs, of which each works for 50% of step time" in verdict.headline


def read_at_end(job: TraceJob, severity: float) -> None:
    """Fetch for 30 ms and compute for 20 ms, of which a value is read."""
    job.fetch(30_000)
    compute(job)
    job.item()


def wait_at_end(job: TraceJob, severity: float) -> None:
    job.fetch(30_000)
    compute(job)
    job.wait("cudaDeviceSynchronize")


@pytest.mark.parametrize("draw", [read_at_end, wait_at_end])
@pytest.mark.parametrize(
    ("shift_us", "factor", "doubt", "headline"),
    [
        (0, 1, "", "data pipeline"),
        (1_000, 1, "6 of 6 waits of the host for the device end before", "data pipeline"),
        (20_000, 1, "6 of 6 waits of the host for the device end before", "20 ms, and a step"),
        (3_000_000, 1, "6 of 6 waits of the host for the device end before", "3 s, and a step"),
        (-20_000, 1, "kernels, copies and sets start before their launch", "20 ms, and a step"),
        (0, 1_000, "are on streams that would have", "durations of device work are wrong ("),
    ],
)
def test_times_of_another_clock(
    tmp_path: Path, draw: Draw, shift_us: float, factor: int, doubt: str, headline: str
) -> None:
    """Times of the device that are ahead of, or behind, those of the host by a part of a step, or
    durations of another unit, have no verdict; a small difference is a doubt."""
    job = draw_steps(draw, 1.0)
    for event in job.events:
        if event["cat"] in {"kernel", "gpu_memcpy"}:
            event["ts"] += shift_us
            event["dur"] *= factor
    verdict = judge(tmp_path, job)
    assert [text for text in verdict.doubts if doubt in text] == verdict.doubts
    assert bool(verdict.doubts) == bool(doubt)
    assert headline in verdict.headline.replace("about ", "").replace("_", " ")


@pytest.mark.parametrize(
    ("operator", "advice"),
    [
        ("aten::cudnn_convolution", "ProfilerActivity.CUDA"),
        ("aten::_mps_convolution", "torch.mps.profiler.profile()"),
        ("aten::mps_convolution_backward", "torch.mps.profiler.profile()"),
        ("torch_xla::_xla_step_marker", "torch_xla.debug.profiler does"),
        ("xla::add", "torch_xla.debug.profiler does"),
        ("hpu::cast", "ProfilerActivity.HPU"),
        ("xpu::linear", "ProfilerActivity.XPU"),
        ("npu::npu_format_cast", "torch_npu.profiler.profile stores them with"),
        ("torch_mlu::custom", "ProfilerActivity.PrivateUse1"),
        ("aten::convolution_overrideable", "with the activity of the devices, if it has one"),
        ("aten::item", "with the activity of the devices, if it has one"),
        ("aten::_local_scalar_dense", "with the activity of the devices, if it has one"),
    ],
)
def test_devices_whose_work_was_not_recorded(tmp_path: Path, operator: str, advice: str) -> None:
    """An operator of a device, or reads of a value of 6 ms: what the host waits for is unknown."""

    def draw(job: TraceJob, severity: float) -> None:
        job.operator("aten::mm", 5_000)
        job.operator(operator, 6_000)

    verdict = judge(tmp_path, draw_steps(draw, 1.0))
    assert verdict.suspect == "insufficient_evidence"
    assert re.search(rf"\((operator|waits in) {operator}\)", verdict.headline)
    assert advice in verdict.headline
    assert ("CUDA" in verdict.headline) == ("cudnn" in operator)
    assert verdict.doubts[0].startswith("The work of the devices")


@pytest.mark.parametrize(
    ("name", "duration"),
    [
        ("aten::_scaled_dot_product_flash_attention_for_cpu", 6_000),
        ("amd_loss", 6_000),
        ("ncclient", 6_000),
        ("aten::item", 900),
    ],
)
def test_operators_of_the_host_are_no_sign_of_a_device(
    tmp_path: Path, name: str, duration: float
) -> None:
    def draw(job: TraceJob, severity: float) -> None:
        job.operator("aten::mm", 5_000)
        with job.range(name):
            job.operator(name, duration)

    assert judge(tmp_path, draw_steps(draw, 1.0)).doubts == []


def test_a_read_that_calls_a_long_operator_waits_for_no_device(tmp_path: Path) -> None:
    """As that of a tensor whose collective is not done yet."""

    def draw(job: TraceJob, severity: float) -> None:
        start = job.now
        job.operator("_c10d_functional::wait_tensor", 6_000)
        end, job.now = job.now, start
        job.operator("aten::_local_scalar_dense", end - start + 10)

    assert judge(tmp_path, draw_steps(draw, 1.0)).doubts == []


@pytest.mark.parametrize("lost", [0, 1, 2, 20])
@pytest.mark.parametrize("time", ["1,5", "99999999999999.0"])
def test_device_work_without_a_possible_time_was_recorded(
    tmp_path: Path, lost: int, time: str
) -> None:
    """Of a kernel of 20 per step, beside 400 operators, the first ones have a time that cannot be:
    above a tenth of the device's work there is no verdict, and none says that it is not there."""

    def draw(job: TraceJob, severity: float) -> None:
        for _ in range(400):
            job.operator("aten::view", 10)
        compute(job)
        for event in [e for e in job.events if e["cat"] == "kernel"][-20:][:lost]:
            event["ts"] = time

    verdict = judge(tmp_path, draw_steps(draw, 1.0))
    assert (verdict.suspect == "insufficient_evidence") == (lost > 2)
    assert bool(verdict.doubts) == bool(lost)
    if lost == 20:
        total = f"{20 * STEPS} of {20 * STEPS}"
        assert verdict.headline.endswith(f"{total} kernels, copies and sets have no possible time.")
        (sentence,) = verdict.doubts
        assert "events have no possible time, and are in no figure" in sentence


def test_a_host_of_xla_without_operators(tmp_path: Path) -> None:
    """The file of the same recording that holds more is named; the device works for 10 ms of 40."""
    names = {1: "/device:GPU:0", 2: "/host:CPU"}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
        for pid, name in names.items()
    ]
    events.append(
        {"ph": "M", "pid": 1, "tid": 3, "name": "thread_name", "args": {"name": "Stream #3"}}
    )
    for n in range(5):
        times = {"ph": "X", "ts": 1e9 + 40_000 * n}
        events.append({"name": "gemm", "pid": 1, "tid": 3, "dur": 10_000} | times)
        step = {"name": "train", "pid": 2, "tid": 4, "dur": 39_999, "args": {"step_num": str(n)}}
        events.append(step | times)
    path = tmp_path / "0.json"
    path.write_bytes(msgspec.json.encode(events))
    verdict = diagnose(import_into(tmp_path / "run", path))
    assert "no operators to tell why (the file *.xplane.pb of the recording holds" in (
        verdict.headline
    )


def launch_with_gaps(job: TraceJob, gap: float) -> None:
    """Launch all kernels at once; the device leaves a gap after each, two thirds of its time."""
    for _ in range(100):
        job.launch(GEMM, 1.5 * gap)
        job.free[7] += gap
    job.wait()


def wait_beside_others(job: TraceJob, _: float) -> None:
    """Wait for what another process does on the device."""
    compute(job, 10_000, 10)
    job.allocate(10_000, "cudaDeviceSynchronize")


def copy_after_others(job: TraceJob, _: float) -> None:
    """Copy a few bytes in a call that first waits for what another process does on the device."""
    compute(job, 10_000, 10)
    job.wait()
    job.now += 10_000
    job.copy(5, route="HtoD (Host -> Device)")
    call, copy = job.events[-2:]
    call["ts"], call["dur"] = call["ts"] - 10_000, call["dur"] + 10_000
    copy["args"]["bytes"] = 704


def test_short_gaps_before_queued_work_are_the_device_s(tmp_path: Path) -> None:
    verdict = judge(tmp_path, draw_steps(launch_with_gaps, 40))
    assert verdict.suspect == "healthy"
    assert verdict.share_ratio == pytest.approx(0.6, abs=0.02)
    assert "although its next work is queued" in " ".join(verdict.notes)


@pytest.mark.parametrize(
    ("draw", "share", "call"),
    [
        (launch_with_gaps, "40%", ""),
        (wait_beside_others, "50%", "(cudaDeviceSynchronize 10 ms per step)"),
        (copy_after_others, "50%", "(cudaMemcpyAsync 10 ms per step)"),
    ],
)
def test_waits_for_what_is_not_in_the_trace_have_no_verdict(
    tmp_path: Path, draw: Draw, share: str, call: str
) -> None:
    """Neither the copy, nor the host, nor the model takes that time."""
    verdict = judge(tmp_path, draw_steps(draw, 400))
    assert verdict.suspect == "insufficient_evidence"
    assert f"for {share} of step time the device, or the host in a call, waits" in verdict.headline
    assert call in verdict.headline


def test_a_trace_of_first_uses_has_no_verdict(tmp_path: Path) -> None:
    job = TraceJob()
    with job.step():
        job.allocate(30_000, "cudaStreamCreateWithFlags")
        compute(job, 10_000, 10)
        job.wait()
    verdict = judge(tmp_path, job)
    assert "at their first use have 75% of the only step" in verdict.headline
    assert "(cudaStreamCreateWithFlags 30 ms): it is start-up" in verdict.headline
