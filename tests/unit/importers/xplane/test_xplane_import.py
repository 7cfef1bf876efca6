"""XPlane files as runs: kernels, copies, calls, operators, functions, steps."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from stepscope.store import RunReader, open_run
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
