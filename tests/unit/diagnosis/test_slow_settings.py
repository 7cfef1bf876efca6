"""Settings that may slow operators down, on drawn jobs. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.diagnosis import diagnose
from stepscope.testing import RunBuilder

RunMaker = Callable[..., RunBuilder]
STEP = "forward 40 | backward 50 | optimizer 10"
SETTINGS: dict[str, object] = {
    "step_count": 1,
    "anomaly_detection": False,
    "deterministic_algorithms": False,
    "cudnn_benchmark": True,
    "float32_matmul_precision": "highest",
    "intra_op_threads": 8,
    "inter_op_threads": 1,
    "trace_function": None,
    "profile_function": None,
    "traces_allocations": False,
    "variables": {},
}


def list_notes(
    run: RunBuilder,
    *,
    step: str = STEP,
    device: str = "cpu",
    job_cores: float = 1.0,
    **settings: object,
) -> list[str]:
    process = run.rank().draw(step, 30)
    process.fact("settings", **{**SETTINGS, **settings})
    process.fact(
        "optimizer",
        name="SGD",
        parameter_count=10,
        tensor_count=1,
        devices=[device],
        dtypes=["float32"],
        foreach=None,
        fused=None,
        intra_op_threads=1,
    )
    process.fact(
        "model",
        model=1,
        parameter_count=10,
        tensor_count=1,
        dtypes=["float32"],
        module_types=["Conv2d"],
    )
    run.metric("job_cpu_cores", job_cores).metric("outside_cpu_cores", 0.0)
    return diagnose(run.open()).notes


def test_one_thread_beside_idle_cores(new_run: RunMaker) -> None:
    notes = list_notes(new_run(cores=8), intra_op_threads=1)
    assert any("7 cores of 8 stayed idle" in n and "intra_op_threads=8" in n for n in notes)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"intra_op_threads": 8}, id="threads"),
        pytest.param({"intra_op_threads": 1, "job_cores": 8.0}, id="no idle core"),
        pytest.param({"intra_op_threads": 1, "device": "cuda"}, id="a GPU computes"),
        pytest.param(
            {"intra_op_threads": 1, "step": "wait 80 | forward 20 | optimizer 5"}, id="waits"
        ),
    ],
)
def test_threads_are_not_noted_elsewhere(new_run: RunMaker, changes: dict[str, object]) -> None:
    assert not any("one thread" in n for n in list_notes(new_run(cores=8), **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_convolutions_on_a_gpu_without_a_search(new_run: RunMaker, device: str) -> None:
    notes = list_notes(new_run(cores=8), device=device, cudnn_benchmark=False)
    assert any("cuDNN" in note for note in notes) == (device == "cuda")


def test_deterministic_algorithms(new_run: RunMaker) -> None:
    notes = list_notes(new_run(cores=8), deterministic_algorithms=True)
    assert any("Deterministic algorithms are on" in note for note in notes)
