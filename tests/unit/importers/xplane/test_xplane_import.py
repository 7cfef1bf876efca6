"""XPlane files as runs: kernels, copies, calls, operators, functions, steps."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.importers.xplane import XPlaneImporter
from stepscope.store import RunReader, open_run
from stepscope.testing.importer_contract import ImporterContract
from tests.support.command import run_command
from tests.support.xplane_files import START_NS, STEPS, PlaneWriter, XSpace, training_space


def import_file(directory: Path, content: bytes, name: str = "a.xplane.pb") -> RunReader:
    """Import a file as a user does."""
    path = directory / name
    path.write_bytes(content)
    done = run_command(directory, "import", str(path), "-o", "run")
    assert done.returncode == 0, done.stderr
    return open_run(directory / "run")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("xplane")


@pytest.fixture(scope="module")
def reader(directory: Path) -> RunReader:
    return import_file(directory, training_space().SerializeToString())


def test_kernels_belong_to_their_calls(reader: RunReader) -> None:
    kernels = reader.table("kernels", ["name", "start_ns", "duration_ns", "launch", "device"])
    calls = reader.table("runtime_calls", ["id", "start_ns"])
    assert set(kernels["name"]) == {"loop_fusion"}
    order = np.argsort(kernels["start_ns"])
    assert kernels["duration_ns"].tolist() == [300_000] * STEPS
    starts = dict(zip(calls["id"].tolist(), calls["start_ns"].tolist(), strict=True))
    launched = [starts[launch] for launch in kernels["launch"][order].tolist()]
    assert launched == [START_NS + 1_000_000 * step + 10_000 for step in range(STEPS)]
    assert (kernels["start_ns"][order] - launched).tolist() == [90_000] * STEPS


def test_launch_configuration_and_operation(reader: RunReader) -> None:
    names = ["registers_per_thread", "shared_memory_bytes", "occupancy_percent", "args"]
    kernels = reader.table("kernels", [*names, "grid_x", "grid_y", "block_x"])
    assert set(kernels["registers_per_thread"].tolist()) == {32}
    assert set(kernels["shared_memory_bytes"].tolist()) == {20}
    assert set(kernels["occupancy_percent"].tolist()) == {50.0}
    streams = reader.table("tracks", ["stream", "kind"])
    assert streams["stream"][streams["kind"] == "device"].tolist() == [7]
    assert {kernels[name][0] for name in ("grid_x", "grid_y", "block_x")} == {4, 2, 256}
    assert json.loads(kernels["args"][0]) == {"hlo_op": "fusion.3"}


def test_copies_have_a_direction_and_a_size(reader: RunReader) -> None:
    copies = reader.table("copies", ["name", "bytes", "kind"])
    assert copies["name"].tolist() == ["Memcpy HtoD"] * (STEPS // 2)
    assert copies["bytes"].tolist() == [4096] * (STEPS // 2)


def test_host_events_by_kind(reader: RunReader) -> None:
    annotations = reader.table("annotations", ["name", "start_ns", "duration_ns"])
    steps = [name for name in annotations["name"] if name.startswith("ProfilerStep#")]
    assert sorted(steps) == sorted(f"ProfilerStep#{step}" for step in range(STEPS))
    loads = annotations["duration_ns"][annotations["name"] == "load"]
    assert loads.tolist() == [3000] * STEPS
    functions = reader.table("python_functions", ["name"])["name"]
    assert set(functions) == {"train.py(12): step"}
    operators = reader.table("operators", ["name"])["name"]
    assert operators.tolist() == ["MatMul"] * STEPS
    other_events = reader.table("other_events", ["name", "category"])
    assert set(other_events["name"]) == {"ExecutorDoneCallback"}
    assert set(other_events["category"]) == {"trace_me"}


def test_node_device_and_verdict(reader: RunReader, directory: Path) -> None:
    (node,) = reader.table("traces", ["node"])["node"]
    assert node == "node-7"
    devices = reader.table("devices", ["name", "memory_bytes", "multiprocessor_count"])
    assert [devices[name][0] for name in devices] == ["A100", 2**35, 108]
    verdict = json.loads(run_command(directory, "diagnose", "run", "--json").stdout)
    assert verdict["step_count"] == STEPS


def test_steps_of_evaluation_are_no_training_steps(tmp_path: Path) -> None:
    space = XSpace()
    host = PlaneWriter(space, "/host:CPU")
    line = host.line("python")
    for step in range(3):
        host.event(line, "test", 100 * step, 50, step_num=step)
    names = import_file(tmp_path, space.SerializeToString()).table("annotations", ["name"])["name"]
    assert names.tolist() == ["test 0", "test 1", "test 2"]


def test_times_since_the_epoch_need_no_start(tmp_path: Path) -> None:
    space = XSpace()
    tpu = PlaneWriter(space, "/device:TPU:0")
    line = tpu.line("XLA Ops", 1, timestamp_ns=START_NS)
    tpu.event(line, "fusion", 1000.6, 2000.4)
    tpu.event(tpu.line("Steps", 2, timestamp_ns=START_NS), "0", 0, 5000)
    kernels = import_file(tmp_path, space.SerializeToString()).table(
        "kernels", ["start_ns", "duration_ns", "name"]
    )
    assert [kernels[name][0] for name in kernels] == [START_NS + 1001, 2000, "fusion"]


def test_a_compressed_file(tmp_path: Path) -> None:
    reader = import_file(tmp_path, gzip.compress(training_space().SerializeToString()), "a.pb.gz")
    assert len(reader.table("kernels", ["id"])["id"]) == STEPS


def test_a_cut_file_is_imported_up_to_the_cut(tmp_path: Path) -> None:
    content = training_space().SerializeToString()
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(content[: len(content) // 2])
    done = run_command(tmp_path, "import", str(path), "-o", "run")
    assert done.returncode == 0, done.stderr
    assert "the file is truncated" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            b"\x0a\x20\x12\x09/host:CPU\x1a\xff\xff\xff\xff" + bytes(40),
            "are no XPlane. Copy the file again, as binary data",
        ),
        (XSpace().SerializeToString() + b"\x0a\x0b\x12\x09/host:CPU", "its planes have no events"),
        (
            b"\x0a\x12\x12\x10Task Environment",
            "has nothing to import: it has no plane of a host or device",
        ),
    ],
)
def test_files_without_content(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(content)
    done = run_command(tmp_path, "import", str(path), "-o", "run")
    assert done.returncode != 0
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_stages_of_tf_data_are_without_the_stages_that_they_call(tmp_path: Path) -> None:
    space = XSpace()
    host = PlaneWriter(space, "/host:CPU")
    python, worker = host.line("python", 1), host.line("tf_data_iterator_resource/2", 2)
    for step in range(3):
        start = 1000 * step
        host.event(python, "Iterator::Prefetch", start, 100)
        host.event(worker, "Iterator::BatchV2", start, 400)
        for sample in range(4):
            host.event(worker, "Iterator::BatchV2::Map", start + 10 + 90 * sample, 80)
            host.event(worker, "other", start + 10 + 90 * sample, 5)
    import_file(tmp_path, space.SerializeToString())
    done = run_command(tmp_path, "show", "run", "input-pipeline", "--json")
    rows = json.loads(done.stdout)["tf_data"]
    stages = [(row["name"], row["total_ns"], row["call_count"], row["call_ns"]) for row in rows]
    assert stages == [
        ("BatchV2::Map", 960, 12, 80),
        ("Prefetch", 300, 3, 100),
        ("BatchV2", 240, 3, 80),
    ]
    text = run_command(tmp_path, "show", "run", "input-pipeline").stdout
    assert "without stages called in the same thread, with waits for other threads" in text


BATCHES = 10


def keras_space(*, evaluate: bool = False) -> Any:
    """Write `fit` of Keras 3 with a slow generator: in each call of the train function another
    thread waits for the batch; the last call finds the data at its end.

    Args:
        evaluate: write an evaluation between the batches 4 and 5, too.
    """
    space = XSpace()
    host = PlaneWriter(space, "/host:CPU")
    python, compute = host.line("python", 1), host.line("tf_Compute/2", 2)
    waiting, making = (
        host.line("tf_data_iterator_get_next/3", 3),
        host.line("tf_data_iterator_resource/4", 4),
    )

    def call(start: int, number: int, operator_count: int) -> None:
        name = "multi_step_on_iterator"
        host.event(python, name, start, 900_000)
        host.event(python, "EagerExecute", start + 1000, 890_000)
        host.event(python, f"EagerLocalExecute: __inference_{name}_{number}", start + 2000, 880_000)
        host.event(waiting, "IteratorGetNextOp::DoCompute", start + 10_000, 700_000)
        host.event(making, "Iterator::Generator", start + 10_000, 690_000)
        for operator in range(operator_count):
            host.event(compute, "MatMul", start + 720_000 + 30_000 * operator, 25_000)

    for batch in range(BATCHES):
        start = 1_000_000 * batch + 3_000_000 * (evaluate and batch > 4)
        call(start, 466, 5)
        host.event(python, "EagerExecute", start + 910_000, 50_000)
        if evaluate and batch == 4:
            for delay in range(1, 4):
                call(start + 1_000_000 * delay, 901, 3)
    call(1_000_000 * BATCHES + 3_000_000 * evaluate, 466, 0)
    return space


def diagnose(directory: Path, space: Any) -> dict[str, Any]:
    """Import a file, and return its verdict; no sentence is in terms of PyTorch."""
    import_file(directory, space.SerializeToString())
    text = run_command(directory, "diagnose", "run", "--json").stdout
    assert not re.search(r"torch|with_stack|CUDA|DataLoader", text)
    return json.loads(text)


@pytest.mark.parametrize("evaluate", [False, True])
def test_batches_of_keras_wait_for_tf_data(tmp_path: Path, *, evaluate: bool) -> None:
    verdict = diagnose(tmp_path, keras_space(evaluate=evaluate))
    assert verdict["step_count"] == BATCHES
    assert verdict["mean_step_ns"] == 1_000_000
    assert verdict["suspect"] == "data_pipeline"
    assert verdict["share_ratio"] == pytest.approx(0.7)
    assert "Generator takes longest" in verdict["evidence"][2]["text"]
    assert "num_parallel_calls=tf.data.AUTOTUNE" in str(verdict["fixes"][0])
    assert any("“multi_step_on_iterator”" in note for note in verdict["notes"])


@pytest.mark.parametrize("are_marked", [True, False])
def test_a_batch_that_is_fetched_before_a_step_belongs_to_it(
    tmp_path: Path, *, are_marked: bool
) -> None:
    space = XSpace()
    host = PlaneWriter(space, "/host:CPU")
    python, compute = host.line("python", 1), host.line("tf_Compute/2", 2)
    for batch in range(BATCHES + 1):
        start = 1_000_000 * batch
        host.event(python, "EagerExecute", start, 950_000)
        host.event(python, "IteratorGetNextOp::DoCompute", start, 950_000)
        if batch < BATCHES:
            if are_marked:
                host.event(python, "train", start + 960_000, 40_000, step_num=batch)
            host.event(python, "EagerLocalExecute: __inference_step_47", start + 960_000, 40_000)
            host.event(compute, "MatMul", start + 965_000, 30_000)
    verdict = diagnose(tmp_path, space)
    assert (verdict["step_count"], verdict["mean_step_ns"]) == (BATCHES, 1_000_000)
    assert verdict["suspect"] == "data_pipeline"
    assert verdict["share_ratio"] == pytest.approx(0.95)


def test_operators_without_functions_are_divided_by_fetches(tmp_path: Path) -> None:
    space = XSpace()
    host = PlaneWriter(space, "/host:CPU")
    python = host.line("python", 1)
    for batch in range(BATCHES + 1):
        host.event(python, "IteratorGetNextOp::DoCompute", 1_000_000 * batch, 600_000)
        for operator in range(3):
            start = 1_000_000 * batch + 610_000 + 100_000 * operator
            host.event(python, "EagerExecute", start, 90_000)
            host.event(python, "EagerLocalExecute: MatMul", start + 1000, 80_000)
            host.event(python, "loss/MatMul:MatMul", start + 2000, 70_000)
    assert diagnose(tmp_path, space)["step_count"] == BATCHES


def test_python_functions_of_jax_tell_what_a_step_waits_for(tmp_path: Path) -> None:
    space = XSpace()
    PlaneWriter(space, "/host:metadata", jax_version="0.10.2").line("")
    host = PlaneWriter(space, "/host:CPU")
    python, worker = host.line("python", 1), host.line("tf_XLAPjRtCpuClient/2", 2)
    for step in range(20):
        start = 1_000_000 * step
        host.event(python, "train", start, 950_000, step_num=10 + step)
        host.event(python, "$time sleep", start + 1000, 600_000)
        host.event(python, "PjitFunction(step)", start + 610_000, 10_000)
        host.event(worker, "dot", start + 620_000, 300_000, hlo_op="dot.1")
    verdict = diagnose(tmp_path, space)
    assert (verdict["step_count"], verdict["cause"]) == (20, "python_overhead")
    (text,) = (one["text"] for one in verdict["evidence"] if "Python functions" in one["text"])
    assert "<built-in function sleep of time> 600 µs" in text
    assert verdict["fixes"][0]["title"] == "Do not wait in the training thread"
    steps = json.loads(run_command(tmp_path, "show", "run", "steps", "--json").stdout)
    assert [step["step"] for step in steps["traces"][0]["steps"]] == [
        str(10 + i) for i in range(20)
    ]
    text = run_command(tmp_path, "show", "run", "kernels", "--json").stdout
    assert "jax.profiler stores it on a machine with a GPU or TPU" in text
    assert "torch" not in text


class TestXPlane(ImporterContract):
    importer = XPlaneImporter

    def write(self, directory: Path) -> Path:
        path = directory / "a.xplane.pb"
        path.write_bytes(training_space().SerializeToString())
        return path
