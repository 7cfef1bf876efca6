"""Views of devices and steps: drawn recordings, so that every figure can be counted by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pytest

from stepscope.cli import root
from stepscope.errors import UsageError
from stepscope.run import Run
from stepscope.views import VIEWS, ViewOptions
from stepscope.views.devices.gpu_metrics import EMPTY_RANGE, show_gpu_metrics
from stepscope.views.devices.gpu_time import show_activity, show_gpu_time, show_idle
from stepscope.views.devices.kernels import show_kernels, show_launches
from stepscope.views.job.overview import show_overview
from stepscope.views.options import COMMUNICATION_OF
from stepscope.views.steps.distributed import show_distributed
from stepscope.views.steps.steps import show_steps
from tests.support.drawn_trace import (
    Event,
    copy,
    distributed,
    event,
    kernel,
    launch,
    step,
    training,
)
from tests.support.printed import print_text

Imported = Callable[..., Run]
US = 1_000
OF_RECORDINGS = [name for name, view in VIEWS.items() if "trace" in view.uses]
KEYS = (
    "total_ns",
    "busy_ns",
    "idle_ns",
    "compute_ns",
    "memset_ns",
    "comm_ns",
    "exposed_comm_ns",
    "exposed_memcpy_ns",
    "same_stream_overlap_count",
    "gpu_event_count",
)
DRAWN = {
    "training": training(),
    "host": [event("cpu_op", "aten::add", 0, 10), event("cpu_op", "aten::mul", 20, 10)],
    "device": [
        kernel("gemm", 0, 10, 1),
        kernel("gemm", 5, 10, 2),
        copy("Memset (Device)", 9, 9, 3, 8),
    ],
    "nothing_of_note": [event("something", "else", 0, 10)],
}


@pytest.mark.parametrize("drawn", DRAWN)
def test_json_and_back_and_text(imported: Imported, drawn: str) -> None:
    for view in OF_RECORDINGS:
        payload = VIEWS[view](imported(**{drawn: DRAWN[drawn]}))
        encoded = msgspec.json.encode(payload)
        assert msgspec.json.decode(encoded, type=type(payload)) == payload, view
        assert print_text(payload), view


def test_a_device_that_is_partly_understood_is_not_idle(imported: Imported) -> None:
    """Kernels of a category that nothing explains, beside copies that are understood."""
    events = [
        {**event, "cat": "mtia_ccp_events", "args": {}} if event.get("cat") == "kernel" else event
        for event in training()
    ]
    run = imported(a=events)
    assert len(run.traces[0].columns("copies", ("id",))["id"])
    (gpu_time,), (idle,) = show_gpu_time(run).traces, show_idle(run).traces
    assert (gpu_time.busy_ns, gpu_time.idle_ns, gpu_time.devices, idle.streams) == (
        None,
        None,
        [],
        [],
    )
    assert "not understood (category mtia_ccp_events" in (gpu_time.missing or "")
    assert show_overview(run).gpu_busy_ratio is None


def test_gpu_time(imported: Imported) -> None:
    (payload,) = show_gpu_time(imported(a=training())).traces
    figures = {key: getattr(payload, key) for key in KEYS}
    assert figures == {
        "total_ns": 147 * US,
        "busy_ns": 2 * (5 + 40) * US,
        "idle_ns": (147 - 90) * US,
        "compute_ns": 2 * 20 * US,
        "memset_ns": 0,
        "comm_ns": 2 * 30 * US,
        "exposed_comm_ns": 2 * 20 * US,
        "exposed_memcpy_ns": 2 * 5 * US,
        "same_stream_overlap_count": 0,
        "gpu_event_count": 6,
    }
    assert payload.shares is not None
    assert payload.shares.compute_ratio == pytest.approx(40 / 147)
    assert payload.comm_hidden_ratio == pytest.approx(1 / 3)
    assert payload.sentence == (
        "The devices are idle for 39% of the time, 57 µs of 147 µs: Idle time shows what they "
        "wait for."
    )
    (device,) = payload.devices
    assert {key: getattr(device, key) for key in KEYS} == figures


def collectives_of_today() -> list[Event]:
    """Draw kernels of 10 us that operators of collectives launch, beside a product of 20 us."""
    launches = [
        ("aten::mm", "ampere_fp16_s16816gemm", 20),
        ("symm_mem::one_shot_all_reduce", "my_barrier", 10),
        ("c10d::allreduce_", "void at::native::vectorized_elementwise_kernel<4>", 10),
        ("record_param_comms", "my_reduce", 10),
        ("aten::add", "multimem_all_reduce_kernel<c10::BFloat16, 16>", 10),
    ]
    events = []
    for index, (operator, name, duration) in enumerate(launches):
        at = 40 * index
        events += [event("cpu_op", operator, at, 10), launch(index + 1, at + 2)]
        events.append(kernel(name, at + 15, duration, index + 1))
    return events


@pytest.mark.parametrize(("definition", "comm_us"), [("wide", 30), ("narrow", 0)])
def test_communication_by_operator_and_by_name(
    imported: Imported, definition: Literal["wide", "narrow"], comm_us: int
) -> None:
    """Of operators of collectives, all kernels but those of at::native."""
    run = imported(a=collectives_of_today())
    options = ViewOptions(communication=definition)
    time = show_gpu_time(run, options)
    assert time.communication_of == COMMUNICATION_OF[definition]
    assert time.traces[0].comm_ns == comm_us * US
    assert time.traces[0].compute_ns == (60 - comm_us) * US
    kernels = show_kernels(run, options)
    assert kernels.communication_of == COMMUNICATION_OF[definition]
    assert kernels.traces[0].communication_ratio == pytest.approx(comm_us / 60)
    ranks = show_distributed(run, options)
    assert ranks.communication_of == COMMUNICATION_OF[definition]
    assert ranks.windows[0].ranks[0].communication_ns == comm_us * US
    assert ranks.windows[0].ranks[0].collective_count == comm_us // 10


def test_work_launched_before_the_window(imported: Imported) -> None:
    before = [kernel("gemm", -50, 20, 901), kernel("gemm", -25, 20, 902)]
    run = imported(a=[*before, *training()])
    (complete,) = show_gpu_time(run).traces
    (dropped,) = show_gpu_time(run, ViewOptions(carry_over="drop")).traces
    assert (complete.gpu_event_count, complete.total_ns) == (8, (180 + 50) * US)
    assert (dropped.gpu_event_count, dropped.total_ns) == (6, 147 * US)
    (issue,) = (note for note in complete.quality if note.check == "carry_over")
    assert issue.count == 2
    assert "before the window" in issue.sentence


def test_overlap_on_one_stream_is_said_beside_the_numbers(imported: Imported) -> None:
    run = imported(a=DRAWN["device"])
    (payload,) = show_gpu_time(run).traces
    assert (payload.same_stream_overlap_count, payload.busy_ns) == (2, 18 * US)
    assert "same_stream_overlap" in {note.check for note in payload.quality}
    assert "2 of 3: device work that starts before earlier" in print_text(show_gpu_time(run))


@pytest.mark.seed("PTP-03")
def test_steps(imported: Imported) -> None:
    (payload,) = show_steps(imported(a=training())).traces
    assert [one.step for one in payload.steps] == ["1", "2"]
    first = payload.steps[0]
    # Fetch 2 to 20; operator 25 to 55 with calls at 30, 34 and 38, each of 2; copy 33 to 38,
    # which hides the second call; kernel 40 to 60; all-reduce 50 to 80.
    assert {name: getattr(first, name) / US for name in first.__struct_fields__[1:-1]} == {
        "wall_ns": 100,
        "kernel_ns": 20,
        "memcpy_ns": 5,
        "memset_ns": 0,
        "communication_ns": 20,
        "runtime_ns": 4,
        "data_loader_ns": 18,
        "cpu_exec_ns": 30 - 5 - 4 - 15,
        "other_ns": 27,
    }
    assert first.device_work_count == 3
    host = payload.host_steps[0]
    assert (host.computation_ns, host.communication_ns) == (20 * US, 30 * US)
    assert (host.overlap_ns, host.neither_ns) == (10 * US, 60 * US)
    shares = [one.share_ratio for one in payload.categories]
    assert sum(share for share in shares if share is not None) == pytest.approx(1)


def test_the_shadow_of_a_step_on_a_device_is_no_step(imported: Imported) -> None:
    shadow = event("gpu_user_annotation", "ProfilerStep#1", 33, 47, thread=7, pid=0)
    (payload,) = show_steps(imported(a=[*training(), shadow])).traces
    assert payload.step_count == 2


def test_a_recording_without_steps_or_devices(imported: Imported) -> None:
    (payload,) = show_steps(imported(a=DRAWN["host"])).traces
    (only,) = payload.steps
    assert (only.step, only.wall_ns) == ("0", 30 * US)
    assert (only.cpu_exec_ns, only.other_ns) == (20 * US, 10 * US)
    assert (only.kernel_ns, only.runtime_ns) == (None, None)
    assert payload.host_steps == []
    assert len(payload.notes) == 2
    assert payload.categories[0].mean_ns is None


def test_a_recording_of_devices_alone_says_nothing_of_the_host(imported: Imported) -> None:
    (payload,) = show_steps(imported(a=[*DRAWN["device"], launch(1, -9)])).traces
    (only,) = payload.steps
    assert (only.kernel_ns, only.memset_ns, only.runtime_ns) == (15 * US, 3 * US, 2 * US)
    assert (only.data_loader_ns, only.cpu_exec_ns) == (None, None)
    assert any("CPU activities" in note for note in payload.notes)


def test_gloo_communicates_on_the_host(imported: Imported) -> None:
    (payload,) = show_steps(
        imported(
            a=[
                step(1, 0, 100),
                event("user_annotation", "gloo:all_reduce", 10, 50),
                event("user_annotation", "nccl:all_reduce", 70, 20),
            ]
        )
    ).traces
    (only,) = payload.steps
    assert (only.communication_ns, only.cpu_exec_ns, only.other_ns) == (50 * US, 20 * US, 30 * US)


def test_nccl_on_the_host_does_not_say_how_long_communication_took(imported: Imported) -> None:
    (payload,) = show_steps(
        imported(a=[step(1, 0, 100), event("user_annotation", "nccl:all_to_all", 10, 50)])
    ).traces
    (only,) = payload.steps
    assert (only.communication_ns, only.cpu_exec_ns, only.other_ns) == (None, 50 * US, 50 * US)
    (share,) = (one for one in payload.categories if one.category == "communication")
    assert (share.mean_ns, share.share_ratio) == (None, None)


def test_idle(imported: Imported) -> None:
    (payload,) = show_idle(imported(a=training())).traces
    streams = {one.stream: one for one in payload.streams}
    assert set(streams) == {7, 20}
    compute = streams[7]
    # Gaps of the compute stream: twice 38 to 40, launched before; 60 to 133, launched at 130.
    assert (compute.kernel_wait_ns, compute.host_wait_ns) == (4 * US, 73 * US)
    assert compute.host_wait_ratio == pytest.approx(73 / 77)


@pytest.mark.seed("SMP-27", "SMP-29")
def test_launches(imported: Imported) -> None:
    (payload,) = show_launches(imported(a=training()), ViewOptions(bucket_ns=10 * US)).traces
    assert [one.call for one in payload.calls] == ["all", "cudaLaunchKernel"]
    all_calls = payload.calls[0]
    assert (all_calls.launch_count, all_calls.short_count, all_calls.long_delay_count) == (6, 0, 0)
    assert all_calls.delay_max_ns == 10 * US  # the all-reduce: launched until 40, begun at 50
    queues = {one.stream: one for one in payload.queues}
    assert queues[7].largest_depth == 1  # each began before the next was launched
    assert payload.bucket_ns == 10 * US
    assert len(queues[7].depth_curve) == 20


@pytest.mark.seed("PTP-15")
def test_gpu_metrics(imported: Imported) -> None:
    properties = {"id": 0, "name": "NVIDIA A100", "totalGlobalMem": 80 << 30, "numSms": 100}
    properties |= {"computeMajor": 8, "computeMinor": 0, "warpSize": 32}
    recording = {"deviceProperties": [properties], "traceEvents": training()}
    (payload,) = show_gpu_metrics(imported(a=recording)).traces
    (device,) = payload.devices
    assert (device.device_name, device.compute_capability) == ("NVIDIA A100", "8.0")
    assert payload.range_ns == 200 * US
    assert device.utilization_ratio == pytest.approx(2 * 40 / 200)
    assert payload.sentence == (
        "GPU 0 runs kernels 40% of the time and fills an estimated 11% of its SMs: Idle time shows "
        "what it waits for."
    )
    # Both all-reduces, of 30 us each, have no grid, and begin 10 us before the products end.
    assert device.est_sm_efficiency_ratio == pytest.approx(0.8 * 2 * 10 / (200 - 2 * 30))
    assert device.unknown_grid_ratio == pytest.approx(60 / 100)
    assert (device.unknown_tensor_core_ratio, device.unknown_occupancy_ratio) == (0, 1)
    assert device.tensor_core_ratio == pytest.approx(40 / 100)
    assert device.est_achieved_occupancy_ratio is None
    assert any("guessed" in note for note in payload.notes)
    assert any("SM efficiency leaves out 60.0%" in note for note in payload.notes)
    assert any("occupancy leaves out 100.0%" in note for note in payload.notes)


def test_curves_with_unknown_values_are_written(imported: Imported) -> None:
    """A kernel without a grid fills the first half of the curve."""
    drawn = [step(1, 0, 100), kernel("mine", 0, 50, 1), kernel("gemm", 60, 10, 2)]
    drawn[-1]["args"]["blocks per SM"] = 0.5
    view = show_gpu_metrics(imported(a=drawn), ViewOptions(bucket_ns=25 * US))
    (device,) = view.traces[0].devices
    assert device.est_sm_efficiency_curve_ratio == pytest.approx([None, None, 0.2, 0])
    assert device.unknown_tensor_core_ratio == 1
    assert "est. SM efficiency over time    █·  up to 20.0%" in print_text(view)


def test_gpu_metrics_of_steps_that_take_no_time(imported: Imported) -> None:
    (payload,) = show_gpu_metrics(imported(a=[step(1, 0, 0), kernel("gemm", 5, 10, 1)])).traces
    (device,) = payload.devices
    assert (payload.range_ns, device.utilization_ratio, payload.sentence) == (0, None, "")
    assert payload.notes == [EMPTY_RANGE]


@pytest.mark.seed("SMP-29")
def test_activity(imported: Imported) -> None:
    (payload,) = show_activity(imported(a=training())).traces
    times = {one.kind: one.total_ns for one in payload.activities}
    assert times == {
        "compute": 40 * US,
        "communication": 60 * US,
        "memcpy": 10 * US,
        "memset": 0,
        "synchronization": 0,
    }
    (copies,) = payload.copies
    assert (copies.direction, copies.source, copies.count) == ("HtoD", "pinned", 2)
    assert copies.achieved_bytes_per_s == pytest.approx(1e9)  # 5,000 bytes in 5 us


# --- which recordings ----------------------------------------------------------------------------


@pytest.fixture
def two_ranks(imported: Imported) -> Run:
    return imported(
        second=distributed(training(), 1, 2), first=distributed([launch(99, 0), *training()], 0, 2)
    )


def test_recordings_come_by_rank(two_ranks: Run) -> None:
    assert [trace.rank for trace in show_gpu_time(two_ranks).traces] == [0, 1]
    (only,) = show_gpu_time(two_ranks, ViewOptions(rank=1)).traces
    assert only.rank == 1
    (selected,) = show_gpu_time(two_ranks, ViewOptions(trace=only.trace)).traces
    assert selected == only


def test_a_recording_that_there_is_not(two_ranks: Run) -> None:
    for view in OF_RECORDINGS:
        with pytest.raises(UsageError, match="no rank 7; the run has ranks 0, 1"):
            VIEWS[view](two_ranks, ViewOptions(rank=7))
        with pytest.raises(UsageError, match="No trace is called other; available:"):
            VIEWS[view](two_ranks, ViewOptions(trace="other"))


def test_ranks_of_which_nothing_is_here(imported: Imported) -> None:
    run = imported(a=distributed(training(), 2, 6), b=distributed(training(), 1, 6))
    for view in (*OF_RECORDINGS, "overview"):
        payload: Any = VIEWS[view](run)
        (absent,) = (note for note in payload.quality if note.check == "missing_rank")
        assert (absent.count, absent.of_count) == (4, 6)
        assert "0, 3 to 5; whether the others wait" in absent.sentence
        text = print_text(payload).replace("\n", " ")
        assert "! The run has no trace of ranks 0, 3 to 5; whether" in text, view


def test_clocks_that_may_not_agree(imported: Imported) -> None:
    stated = distributed(training(), 1, 2) | {"baseTimeNanoseconds": 1_000_000_000}
    run = imported(a=distributed(training(), 0, 2), b=stated)
    (note,) = show_gpu_time(run).quality
    assert (note.check, note.count, note.of_count) == ("clock_base", 1, 2)
    assert note.sentence.endswith("a.json.")
    assert show_gpu_time(run, ViewOptions(rank=0)).quality == []
    bases = {trace.name: trace.clock_base_ns for trace in show_overview(run).recordings}
    assert bases == {"a.json": None, "b.json": 1_000_000_000}


@pytest.mark.seed("PTP-18")
def test_what_cannot_be_shown_says_what_is_missing(imported: Imported) -> None:
    run = imported(a=DRAWN["host"])
    for view in (show_gpu_time, show_idle, show_launches, show_gpu_metrics, show_activity):
        (payload,) = view(run).traces
        assert "activities" in (payload.missing or "")
    (figures,) = show_gpu_time(run).traces
    assert figures.total_ns is None


def test_device_work_without_launches(imported: Imported) -> None:
    (payload,) = show_launches(imported(a=DRAWN["device"])).traces
    assert "launched" in (payload.missing or "")


def test_buckets_that_would_be_too_many(imported: Imported) -> None:
    with pytest.raises(UsageError, match="Choose wider buckets"):
        show_launches(imported(a=training()), ViewOptions(bucket_ns=1))


# --- the command ---------------------------------------------------------------------------------


def test_options_of_the_command_reach_the_view(
    imported: Imported, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = imported(a=[kernel("gemm", -50, 20, 901), *training()]).reader.location
    capsys.readouterr()
    for arguments, count in ([], 7), (["--carry-over", "drop"], 6), (["--trace", "a.json"], 7):
        root.main(["show", builder, "gpu-time", *arguments, "--json"], standalone_mode=False)
        (payload,) = json.loads(capsys.readouterr().out)["traces"]
        assert payload["gpu_event_count"] == count
    root.main(["show", builder, "launches", "--bucket", "20us"], standalone_mode=False)
    assert "bucket  20 µs" in capsys.readouterr().out
    with pytest.raises(UsageError, match="does not accept --top"):
        root.main(["show", builder, "launches", "--top", "3"], standalone_mode=False)
