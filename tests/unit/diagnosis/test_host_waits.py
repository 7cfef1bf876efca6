"""Verdicts on drawn traces of hosts that wait, of compiled models, and of devices of all makers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from stepscope.diagnosis import diagnose
from stepscope.testing.traces import DEVICE, TraceJob
from stepscope.views import VIEWS
from tests.support.drawn_verdicts import ELEMENTWISE, Draw, compute, draw_steps, judge
from tests.support.imported_runs import import_into


def test_a_wait_saves_at_most_its_own_time(tmp_path: Path) -> None:
    """The host needs 50 ms for itself: without the wait of 5 ms it still does."""
    job = TraceJob()
    for _ in range(6):
        with job.step():
            compute(job, 5_000, 5)
            job.item()
            for _ in range(50):
                job.python(985)
                job.operator("aten::empty", 15)
            with job.optimizer():
                pass
    verdict = judge(tmp_path, job)
    shares = {cause.cause: cause.share_ratio for cause in verdict.also}
    assert verdict.suspect == "framework_overhead"
    assert verdict.cause != "host_sync"
    assert shares["host_sync"] == pytest.approx(5 / 55, abs=0.01)


def test_long_python_is_no_wait(tmp_path: Path) -> None:
    """After a read Python runs for 20 ms: the device waits for Python."""
    job = TraceJob()
    for _ in range(6):
        with job.step():
            compute(job, 30_000, 30)
            job.item()
            job.python(20_000)
            with job.optimizer():
                pass
    verdict = judge(tmp_path, job)
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "unknown")
    assert verdict.share_ratio == pytest.approx(20 / 50, abs=0.01)
    assert "with_stack=True" in verdict.headline


def test_selected_rows_make_the_host_wait(tmp_path: Path) -> None:
    """A mask needs a wait, a short kernel follows it, and then the device has no work."""
    job = TraceJob()
    for _ in range(6):
        with job.step():
            compute(job, 8_000, 8)
            for _ in range(20):
                job.operator("aten::nonzero", 4, kernel=("DeviceSelectSweepKernel", 6))
                job.wait()
                job.operator("aten::index", 4, kernel=("index_elementwise_kernel", 8))
                job.python(400)
                compute(job, 300, 1)
            with job.optimizer():
                pass
    verdict = judge(tmp_path, job)
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "host_sync")
    assert verdict.share_ratio == pytest.approx(8 / 22, abs=0.05)


REQUESTS = 8


def serve(job: TraceJob, waiting: float) -> None:
    """Answer requests that take 20 ms of the device, with a read of the result, then wait."""
    for number in range(REQUESTS):
        with job.range(f"request {number}"):
            compute(job)
            job.item()
        job.python(waiting)


def serve_with_stacks(job: TraceJob, waiting: float, function: str) -> None:
    """The same where Python functions were recorded."""
    with job.function("server.py(12): main"):
        for number in range(REQUESTS):
            with job.range(f"request {number}"), job.function("server.py(30): answer"):
                compute(job)
                job.item()
            with job.function(function):
                job.python(1)
                with job.function(
                    f"<built-in method acquire of _thread.lock object at {number:#x}>"
                ):
                    job.python(waiting)


@pytest.mark.parametrize("waiting", [12_000, 200_000])
def test_a_server_that_waits(tmp_path: Path, waiting: float) -> None:
    """The host waits for the device for 20 ms of each request, and then for the next request; the
    last one may not count. Only stacks tell that."""
    jobs = [TraceJob(), TraceJob()]
    serve(jobs[0], waiting)
    serve_with_stacks(jobs[1], waiting, "queue.py(154): get")
    verdicts = []
    for number, job in enumerate(jobs):
        (tmp_path / str(number)).mkdir()
        verdicts.append(judge(tmp_path / str(number), job))
    without, with_stacks = verdicts
    assert without.suspect == "insufficient_evidence"
    (share,) = re.findall(r"for (\d+)% of the time the device has no work", without.headline)
    shares = [n * waiting / (n * waiting + REQUESTS * 20_000) for n in (REQUESTS - 1, REQUESTS)]
    assert shares[0] - 0.005 <= int(share) / 100 <= shares[1] + 0.005
    assert "with_stack=True" in without.headline
    assert (with_stacks.suspect, with_stacks.cause) == ("healthy", "none")
    assert with_stacks.share_ratio == pytest.approx(waiting / (waiting + 20_000), abs=0.01)
    assert "while the host waits in queue.py(154): get" in with_stacks.headline
    assert not with_stacks.also


def test_a_server_whose_thread_runs_python_is_not_waiting(tmp_path: Path) -> None:
    job = TraceJob()
    with job.function("server.py(12): main"):
        for number in range(REQUESTS):
            with job.range(f"request {number}"), job.function("server.py(30): answer"):
                compute(job)
                job.item()
            with job.function("server.py(50): write_answer"):
                job.python(100_000)
    verdict = judge(tmp_path, job)
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "python_overhead")


def test_a_server_that_waits_while_another_thread_computes(tmp_path: Path) -> None:
    """Two threads answer in turn: while one waits for its queue, the other runs Python."""
    jobs = [TraceJob(), TraceJob()]
    serve_with_stacks(jobs[0], 30_000, "queue.py(154): get")
    with jobs[1].function("server.py(60): tokenize"):
        jobs[1].operator("aten::empty", 5)
        jobs[1].python(jobs[0].now)
    for event in jobs[1].events:
        jobs[0].events.append(event | {"tid": 101})
    verdict = judge(tmp_path, jobs[0])
    assert verdict.suspect == "framework_overhead"


@pytest.mark.parametrize("waiting", [0, 3_000])
def test_a_server_that_is_busy_is_healthy(tmp_path: Path, waiting: float) -> None:
    job = TraceJob()
    serve(job, waiting)
    assert judge(tmp_path, job).suspect == "healthy"


def test_a_server_without_a_device_that_waits(tmp_path: Path) -> None:
    job = TraceJob()
    for number in range(REQUESTS):
        with job.range(f"request {number}"):
            job.operator("aten::mm", 20_000)
        job.python(40_000)
    assert judge(tmp_path, job).suspect == "insufficient_evidence"


def test_ranks_of_a_server_wait_for_the_one_that_takes_requests(tmp_path: Path) -> None:
    """Rank 0 waits for a request, and rank 1 in the broadcast of it."""
    jobs = [TraceJob(rank=rank, world_size=2) for rank in range(2)]
    for rank, job in enumerate(jobs):
        with job.function("server.py(12): main"):
            for _ in range(REQUESTS):
                with job.step():
                    if not rank:
                        with job.function("queue.py(154): get"):
                            job.python(30_000)
                    job.collective("Broadcast", 30_200 if rank else 200)
                    job.join()
                    compute(job)
                    job.item()
    verdict = judge(tmp_path, *jobs)
    assert (verdict.suspect, verdict.cause) == ("healthy", "none")
    assert "queue.py(154): get" in verdict.headline
    assert verdict.share_ratio == pytest.approx(30 / 50, abs=0.02)


def test_a_server_that_calls_many_operators_is_told_from_one_that_waits(tmp_path: Path) -> None:
    """A request is 1,500 calls of tiny operators, 30 ms; the wait for the next takes 6 ms."""
    job = TraceJob()
    for number in range(REQUESTS):
        with job.range(f"request {number}"):
            for _ in range(1_500):
                job.operator("aten::add", 15, kernel=(ELEMENTWISE, 3))
            job.item()
        job.python(6_000)
    verdict = judge(tmp_path, job)
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "tiny_operators")


def compiled_graph(job: TraceJob, severity: float) -> None:
    """Half of the step is code of the compiled graph itself, and half is tiny operators."""
    start = job.now
    job.now += 10_000
    job.operator("aten::addmm", 10)
    job._host("cpu_op", "## Call CompiledFxGraph fnawr7 ##", start, job.now - start)
    for _ in range(round(500 * severity)):
        job.operator("aten::add", 15)


def test_a_compiled_graph_computes(tmp_path: Path) -> None:
    verdict = judge(tmp_path, draw_steps(compiled_graph, 0.0))
    assert verdict.suspect == "healthy"
    assert verdict.share_ratio == pytest.approx(1, abs=0.05)


def test_nobody_is_told_to_compile_a_compiled_model(tmp_path: Path) -> None:
    verdict = judge(tmp_path, draw_steps(compiled_graph, 2.0))
    assert verdict.suspect == "framework_overhead"
    assert verdict.fixes
    assert not any("compile" in fix.title + fix.instructions for fix in verdict.fixes)


def launch_tiny_kernels(job: TraceJob, severity: float) -> None:
    for _ in range(round(300 * severity)):
        job.operator("aten::add", 15, kernel=(ELEMENTWISE, 3))
    job.wait()


def launch_on(category: str) -> Draw:
    def draw(job: TraceJob, severity: float) -> None:
        launch_tiny_kernels(job, severity)
        for event in job.events:
            if event.get("cat") == "kernel":
                event["cat"] = category

    return draw


def test_advice_for_another_maker(tmp_path: Path) -> None:
    verdict = judge(tmp_path, draw_steps(launch_on("hpu_op"), 1.0))
    (tmp_path / "usual").mkdir()
    usual = judge(tmp_path / "usual", draw_steps(launch_tiny_kernels, 1.0))
    assert (verdict.suspect, verdict.cause) == (usual.suspect, usual.cause)
    assert verdict.share_ratio == usual.share_ratio
    assert any("CUDA" in fix.instructions for fix in usual.fixes)
    assert not any("CUDA" in fix.instructions for fix in verdict.fixes)


def test_advice_for_a_private_backend(tmp_path: Path) -> None:
    """As of Moore Threads: no name of a call is CUDA's."""
    job = draw_steps(launch_tiny_kernels, 1.0)
    for event in job.events:
        if event.get("cat") == "cuda_runtime":
            event |= {"cat": "privateuse1_runtime", "name": event["name"].replace("cuda", "musa")}
    verdict = judge(tmp_path, job)
    assert verdict.cause == "tiny_operators"
    assert not any("CUDA" in fix.instructions for fix in verdict.fixes)


def test_no_verdict_on_devices_that_are_not_understood(tmp_path: Path) -> None:
    job = draw_steps(launch_tiny_kernels, 1.0)
    for event in job.events:
        if event.get("cat") == "kernel":
            event["cat"] = "hpu_op"
            event["args"] = {}
    verdict = judge(tmp_path, job)
    assert verdict.suspect == "insufficient_evidence"
    assert "the time of the device is not understood (category hpu_op: " in verdict.headline


@pytest.mark.parametrize(
    ("sign", "name"),
    [
        ({"deviceProperties": [DEVICE]}, DEVICE["name"]),
        ({"distributedInfo": {"backend": "nccl"}}, "backend nccl"),
        ({"traceEvents": {"name": "nccl:all_reduce"}}, "operator nccl:all_reduce"),
        ({"traceEvents": {"name": "aten::cudnn_convolution"}}, "operator aten::cudnn_convolution"),
        ({"traceEvents": {"cat": "cuda_runtime", "name": "cudaFree"}}, "cudaFree"),
        ({"distributedInfo": {"backend": "gloo"}}, None),
        ({}, None),
    ],
)
def test_devices_whose_work_was_not_recorded(
    tmp_path: Path, sign: dict[str, Any], name: str | None
) -> None:
    """The host alone shows its fetches: 20 ms of each step of 40 ms, with 20 ms of operators."""
    job = draw_steps(lambda job, _: (job.fetch(20_000), job.operator("aten::mm", 20_000)), 1.0)
    document = json.loads(job.encode())
    events = document["traceEvents"]
    event = {**events[0], "cat": "cpu_op", "dur": 1, **sign.pop("traceEvents", {"name": "aten::t"})}
    file = tmp_path / "0.json"
    file.write_text(json.dumps(document | sign | {"traceEvents": [*events, event]}))
    run = import_into(tmp_path / "run", file)
    verdict = diagnose(run)
    if name is None:
        assert (verdict.suspect, verdict.doubts) == ("data_pipeline", [])
        return
    assert verdict.suspect == "insufficient_evidence"
    assert f"the work of the devices ({name}" in verdict.headline
    assert "fetches batches for 50% of step time" in verdict.notes[0]
    payload = VIEWS["distributed"](run)
    assert payload.doubts == verdict.doubts
    assert f"({name}" in payload.doubts[0]
    assert payload.windows[0].ranks[0].communication_ratio is None
