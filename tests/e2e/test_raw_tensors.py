"""Elements of tensors: those of the script bit by bit, read from Python, and their limit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.errors import DamagedRunError, JobEndedError, UsageError, WaitTimeoutError
from stepscope.store import open_run
from tests.support.under_stepscope import E2E, STEPSCOPE, run_under

pytestmark = pytest.mark.extended(
    "a long job; elements are in tests/unit/capture and tests/unit/monitor"
)

JOB = str(E2E / "raw_tensors_job.py")
RAW = ("--tensors-raw", "(model_input|gradient)/.*", "--tensors-raw", "layer.weight")
NO_NUMPY_TYPE = {"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    directory = tmp_path_factory.mktemp("raw")
    options = (*RAW, "--tensors-every", "1", "--window", "off")
    saved = directory / "saved.npz"
    done = run_under(directory / "run", sys.executable, JOB, str(saved), options=options)
    assert done.code == 0, done.stderr
    return done.run, dict(np.load(saved).items())


@pytest.mark.seed("DBT-07")
def test_elements_are_those_of_the_script(job: tuple[Path, dict[str, np.ndarray]]) -> None:
    torch = pytest.importorskip("torch")
    run = stepscope.open(job[0])
    names = {key.partition(" ")[2] for key in job[1]}
    assert len(names) == 22
    for name in names:
        values = run.tensors(name).values()
        assert list(values) == [0, 1, 2, 3]
        for step, value in values.items():
            expected = job[1][f"{step} {name}"]
            assert value.shape == expected.shape[:-1], name
            dtype = name.removeprefix("model_input/")
            if dtype in NO_NUMPY_TYPE:
                original = torch.from_numpy(expected).view(getattr(torch, dtype)).float()
                assert value.dtype == np.float32
                assert np.array_equal(value, original.squeeze(-1).numpy(), equal_nan=True)
            else:
                assert value.tobytes() == expected.tobytes(), name
    one = run.tensors("gradient/layer.weight").value(2)
    assert one.dtype == np.float32
    assert one.tobytes() == job[1]["2 gradient/layer.weight"].tobytes()


def test_the_files_are_numpys(job: tuple[Path, dict[str, np.ndarray]]) -> None:
    rows = open_run(job[0]).sql(
        "SELECT file, step, byte_count FROM tensor_elements WHERE tensor = 'layer.weight'"
    )
    assert len(rows["file"]) == 4
    for file, step, byte_count in zip(*(rows[name].tolist() for name in rows), strict=True):
        array = np.load(job[0] / file)
        assert (array.shape, array.nbytes) == ((2, 3), byte_count)
        assert array.tobytes() == job[1][f"{step} layer.weight"].tobytes()


def test_requests_that_cannot_be_answered(
    job: tuple[Path, dict[str, np.ndarray]], tmp_path: Path
) -> None:
    run = stepscope.open(job[0])
    with pytest.raises(UsageError, match="one tensor can be read at a time, and the pattern sel"):
        run.tensors("model_input/.*").value(0)
    with pytest.raises(UsageError, match="not recorded at step 9, only at these steps: 0, 1, 2, 3"):
        run.tensors("layer.weight").value(9)
    with pytest.raises(JobEndedError, match="has the tensors up to step 3, not yet at step 4"):
        run.tensors("layer.weight").wait_for(4)
    assert run.tensors("layer.weight").wait_for(3).steps() == [0, 1, 2, 3]
    for file in sorted((job[0] / "tensors").rglob("*.npy")):
        if np.load(file).shape == (5, 4):
            content = file.read_bytes()
            file.write_bytes(content[:-1])
            with pytest.raises(DamagedRunError, match="The elements of model_input/transposed at"):
                run.tensors("model_input/transposed").values()
            file.unlink()
            with pytest.raises(DamagedRunError, match="is missing, so the elements of a tensor"):
                run.tensors("model_input/transposed").values()
            file.write_bytes(content)
            break


def test_what_exceeds_the_limit_is_named(tmp_path: Path) -> None:
    """A weight has 24 bytes: four of them fit, and then nothing else."""
    options = ("--tensors-raw", "layer.weight", "--tensors-raw", "gradient/layer.weight",
               "--tensors-raw-limit", "100", "--tensors-every", "1", "--window", "off")  # fmt: skip
    done = run_under(tmp_path / "run", sys.executable, JOB, str(tmp_path / "s"), options=options)
    assert done.code == 0, done.stderr
    run = stepscope.open(done.run)
    assert list(run.tensors("layer.weight").values()) == [0, 1]
    assert list(run.tensors("gradient/layer.weight").values()) == [0, 1]
    assert run.tensors("layer.weight").steps() == [0, 1, 2, 3]  # statistics are all there
    notes = [note for process in open_run(done.run).processes() for note in process.notes]
    limit = "the limit of 0.0001 MB (--tensors-raw-limit) is reached"
    assert notes == [
        f"elements of {name} from step 2 on are not recorded: {limit}"
        for name in ("gradient/layer.weight", "layer.weight")
    ]


@pytest.mark.seed("DBT-07")
def test_waiting_for_a_step_of_a_running_job(tmp_path: Path) -> None:
    command = [*STEPSCOPE, "run", "--out", str(tmp_path / "run"), "--no-rules", "--window", "off",
               *RAW, "--tensors-every", "1", "--", sys.executable, JOB, str(tmp_path / "saved"),
               str(tmp_path)]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as launcher:
        try:
            run = stepscope.open(tmp_path / "run", timeout_s=120)
            weight = run.tensors("layer.weight").wait_for(1, timeout_s=120)
            assert weight.steps() == [0, 1]
            assert weight.value(1).shape == (2, 3)
            with pytest.raises(WaitTimeoutError, match="has the tensors up to step 1, not yet at"):
                weight.wait_for(3, timeout_s=0)
            Path(tmp_path, "go").touch()
            assert 3 in weight.wait_for(3, timeout_s=120).steps()
            with pytest.raises(JobEndedError):
                weight.wait_for(99, timeout_s=120)
        finally:
            Path(tmp_path, "go").touch()
            launcher.communicate(timeout=120)
