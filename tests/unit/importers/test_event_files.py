"""Import of TensorBoard's event files and of the tensors of SageMaker Debugger.

Files are written by the package `tensorboard`; its messages are those that Debugger writes, too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DataType
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c as reference_crc
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto

import stepscope
from stepscope.cli import root
from stepscope.event_records import masked_crc32c
from stepscope.importers.event_files import DebuggerTensorImporter, TensorBoardImporter
from stepscope.store import open_run
from stepscope.testing.importer_contract import ImporterContract

START_S = 1_700_000_000.0
HISTOGRAM = HistogramProto(
    min=-2, max=3, num=6, sum=3, sum_squares=19.5, bucket_limit=[-1, 0, 1e308], bucket=[2, 0, 4]
)


def imported(source: Path, run: Path) -> Path:
    root.main(["import", str(source), "-o", str(run)], standalone_mode=False)
    return run


def rows(run: Path, table: str) -> list[dict[str, Any]]:
    columns = open_run(run).table(table, order_by="process, seq")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def tensor_value(tag: str, values: Any, plugin: str = "scalars") -> Summary.Value:
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin))
    return Summary.Value(tag=tag, tensor=make_tensor_proto(values), metadata=metadata)


def write_events(directory: Path, *steps: list[Summary.Value]) -> Path:
    writer = EventFileWriter(str(directory))
    for step, values in enumerate(steps):
        event = Event(wall_time=START_S + step, step=step, summary=Summary(value=values))
        writer.add_event(event)
    writer.close()
    (path,) = directory.glob("events.out.tfevents.*")
    return path


@pytest.mark.parametrize("size", [0, 1, 8, 255, 256, 257, 5_000, (1 << 20) + 77])
def test_checksums(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert masked_crc32c(data) == int(reference_crc(data))


def test_scalars_and_histograms_of_tensorboard(tmp_path: Path) -> None:
    buckets = np.array([[-1.0, 0.0, 3.0], [0.0, 1.0, 0.0], [1.0, 2.0, 2.0]])
    write_events(
        tmp_path / "logs" / "train",
        [Summary.Value(tag="loss", simple_value=0.5), Summary.Value(tag="w", histo=HISTOGRAM)],
        [tensor_value("loss", 0.25), tensor_value("v", buckets, "histograms")],
        [tensor_value("_hparams_/experiment", 1.0, "hparams"), tensor_value("note", "a", "text")],
    )
    write_events(tmp_path / "logs" / "validation", [Summary.Value(tag="loss", simple_value=0.75)])
    run = imported(tmp_path / "logs", tmp_path / "run")
    scalars = [
        (row["name"], row["step"], row["value"], row["t_ns"]) for row in rows(run, "scalars")
    ]
    assert sorted(scalars) == [
        ("train/loss", 0, 0.5, START_S * 1e9),
        ("train/loss", 1, 0.25, (START_S + 1) * 1e9),
        ("validation/loss", 0, 0.75, START_S * 1e9),
    ]
    tensors = stepscope.open(str(run)).tensors()
    assert tensors.names == ["v", "w"]
    expected = {
        "element_count": 6,
        "min": -2,
        "max": 3,
        "mean": 0.5,
        "std": 3**0.5,
        "l2": 19.5**0.5,
    }
    for name, value in expected.items():
        assert tensors.array("w", name).tolist() == pytest.approx([value])
    for name in ("nan_count", "zero_count", "l1"):
        assert np.isnan(tensors.array("w", name)).all()
    assert tensors.array("v", "element_count").tolist() == [5]
    assert np.isnan(tensors.array("v", "mean")).all()
    bins = [(r["tensor"], r["low"], r["high"], r["count"]) for r in rows(run, "tensor_histograms")]
    assert bins == [("w", -2, -1, 2), ("w", 0, 3, 4), ("v", -1, 0, 3), ("v", 1, 2, 2)]


def test_the_view_of_an_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_events(tmp_path / "logs", [Summary.Value(tag="w", histo=HISTOGRAM)])
    run = imported(tmp_path / "logs", tmp_path / "run")
    assert "1 file of tensors and scalars, 1 value in" in capsys.readouterr().out
    root.main(["show", str(run), "tensors", "--json"], standalone_mode=False)
    (tensor,) = json.loads(capsys.readouterr().out)["tensors"]
    assert (tensor["name"], tensor["non_finite_count"], tensor["mean"]) == ("w", None, 0.5)


@pytest.mark.parametrize("damage", ["truncated", "changed"])
def test_records_before_the_damage_are_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    values = [[Summary.Value(tag="loss", simple_value=n)] for n in range(4)]
    path = write_events(tmp_path / "logs", *values)
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        del content[-5:]
    else:
        content[-6] ^= 1
    path.write_bytes(content)
    run = imported(tmp_path / "logs", tmp_path / "run")
    assert [row["value"] for row in rows(run, "scalars")] == [0, 1, 2]
    messages = capsys.readouterr().err
    start = "ends in the middle of a record at byte" if damage == "truncated" else "is damaged from"
    assert f"{path.name} was only partly imported: it {start}" in messages


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "it is empty"), (b"what is this? " * 9, "it is damaged from byte 0 on")],
)
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(content)
    with pytest.raises(stepscope.errors.UnreadableTraceError) as raised:
        imported(path, tmp_path / "run")
    assert str(raised.value) == f"{path} has no events: {reason}."


# --- SageMaker Debugger -------------------------------------------------------------------------

DTYPES = {
    "float32": DataType.DT_FLOAT,
    "float64": DataType.DT_DOUBLE,
    "int64": DataType.DT_INT64,
    "complex64": DataType.DT_COMPLEX64,
    "bool": DataType.DT_BOOL,
    "float16": DataType.DT_INT32,  # as Debugger does
}


def debugger_value(tag: str, array: np.ndarray, mode: int, step: int) -> Any:

    # Debugger's metadata has two plugins, and messages that follow each other are merged by names.
    first = SummaryMetadata(plugin_data={"plugin_name": "mode_step", "content": b"%d" % step})
    second = SummaryMetadata(plugin_data={"plugin_name": "mode", "content": b"%d" % mode})
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in array.shape])
    tensor = TensorProto(
        dtype=DTYPES[array.dtype.name], tensor_shape=shape, tensor_content=array.tobytes()
    )
    value = Summary.Value(tag=tag, tensor=tensor)
    field = b"\x4a"  # metadata, twice: the reader takes over the plugins of both
    parts = [
        field + bytes([part.ByteSize()]) + part.SerializeToString() for part in (first, second)
    ]
    return value.SerializeToString(), b"".join(parts)


def write_step(job: Path, step: int, values: list[Any], worker: str = "worker_0") -> None:
    path = job / "events" / f"{step:012}" / f"{step:012}_{worker}.tfevents"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = b""
    for message, metadata in values:
        value = message + metadata
        summary = b"\x0a" + _varint(len(value)) + value
        event = Event(wall_time=START_S + step, step=step).SerializeToString()
        event += b"\x2a" + _varint(len(summary)) + summary
        length = len(event).to_bytes(8, "little")
        # Debugger's checksum of a payload is that of a constant.
        content += length + _checksum(length) + event + _checksum(b"0x12345678")
    path.write_bytes(content)


def _varint(value: int) -> bytes:
    text = b""
    while value > 127:
        text += bytes([value & 127 | 128])
        value >>= 7
    return text + bytes([value])


def _checksum(data: bytes) -> bytes:
    return int(reference_crc(data)).to_bytes(4, "little")


TRAIN, EVAL, GLOBAL = 1, 2, 4


@pytest.mark.parametrize("dtype", DTYPES)
def test_statistics_of_whole_tensors_equal_numpy(tmp_path: Path, dtype: str) -> None:
    chance = np.random.default_rng(1)
    array = (chance.normal(size=(40, 50)) * 3).astype(dtype)
    if array.dtype.kind == "f":
        array[0, :4] = np.nan, np.inf, 0, -np.inf
    write_step(tmp_path / "job", 7, [debugger_value("gradient/fc.weight", array, TRAIN, 7)])
    tensors = stepscope.open(str(imported(tmp_path / "job", tmp_path / "run"))).tensors()
    values = np.abs(array) if array.dtype.kind == "c" else array
    finite = values[np.isfinite(values)].astype(np.float64)
    expected = {
        "element_count": 2000,
        "nan_count": np.isnan(values).sum(),
        "infinite_count": np.isinf(values).sum(),
        "zero_count": (values == 0).sum(),
        "min": finite.min(),
        "max": finite.max(),
        "mean": finite.mean(),
        "std": finite.std(),
        "l1": np.abs(finite).sum(),
        "l2": np.sqrt((finite**2).sum()),
    }
    for name, value in expected.items():
        assert tensors.array("gradient/fc.weight", name) == pytest.approx([value], rel=1e-12), name
    (series,) = rows(tmp_path / "run", "tensor_statistics")
    assert (series["collection"], series["shape"]) == ("gradients", "40x50")
    assert (series["dtype"], series["step"], series["mode"]) == (dtype, 7, "TRAIN")
    value = tensors.value(7)
    assert (value.shape, value.tobytes()) == (array.shape, array.tobytes())


def test_elements_beyond_the_limit_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepscope.spool.DEFAULT_RAW_LIMIT_BYTES", 100)
    array = np.arange(10, dtype=np.float32)
    for step in range(4):
        write_step(tmp_path / "job", step, [debugger_value("conv", array, TRAIN, step)])
    run = imported(tmp_path / "job", tmp_path / "run")
    assert list(stepscope.open(str(run)).tensors("conv").values()) == [0, 1]
    (process,) = open_run(run).processes()
    assert process.notes == ["elements of 2 tensors are beyond 0 MB and were not imported"]


def test_reductions_collections_modes_and_workers(tmp_path: Path) -> None:
    job, number = tmp_path / "job", lambda value: np.array([value], dtype=np.float32)
    for rank in (0, 1):
        write_step(
            job,
            10,
            [
                debugger_value("smdebug/reductions/mean/conv", number(2), TRAIN, 10),
                debugger_value("smdebug/reductions/abs_mean/conv", number(3), TRAIN, 10),
                debugger_value("smdebug/reductions/variance/conv", number(4), TRAIN, 10),
                debugger_value("smdebug/reductions/median/conv", number(5), TRAIN, 10),
            ],
            f"worker_{rank}",
        )
    write_step(job, 11, [debugger_value("NLLLoss_output_0", number(0.5), GLOBAL, 11)])
    write_step(job, 12, [debugger_value("NLLLoss_output_0", number(0.75), EVAL, 3)])
    index = job / "index" / "000000000" / "000000000010_worker_0.json"
    index.parent.mkdir(parents=True)
    shapes = [{"tensorname": "conv", "originalname": "conv", "shape": [2, 5]}]
    index.write_text(json.dumps({"meta": {}, "tensor_payload": [], "shape_payload": shapes}))
    collections = job / "collections" / "000000000" / "worker_0_collections.json"
    collections.parent.mkdir(parents=True)
    sets = {"all": {"tensor_names": ["conv"]}, "custom": {"tensor_names": ["conv"]}}
    collections.write_text(json.dumps({"collections": sets, "_meta": {"num_workers": 2}}))
    run = imported(job, tmp_path / "run")
    opened = stepscope.open(str(run))
    conv = opened.tensors("conv", rank=0)
    expected = {"mean": 2, "std": 2, "l1": 30, "abs_mean": np.nan, "element_count": 10}
    for name, value in expected.items():
        assert conv.array("conv", name).tolist() == pytest.approx([value], nan_ok=True), name
    assert np.isnan(conv.array("conv", "min")).all()
    assert opened.tensors(collection="custom").ranks == [0, 1]
    # Without the shape, the sum of the absolute values is unknown.
    assert np.isnan(opened.tensors("conv", rank=1).array("conv", "l1", rank=1)).all()
    scalars = [(row["name"], row["step"], row["value"]) for row in rows(run, "scalars")]
    assert sorted(scalars) == [("NLLLoss_output_0", 11, 0.5), ("eval/NLLLoss_output_0", 3, 0.75)]


class TestTensorBoard(ImporterContract):
    importer = TensorBoardImporter
    is_compressible = False

    def write(self, directory: Path) -> Path:
        return write_events(directory, [tensor_value("loss", 0.5)], [tensor_value("loss", 0.25)])


class TestDebuggerTensors(ImporterContract):
    importer = DebuggerTensorImporter
    is_compressible = False

    def write(self, directory: Path) -> Path:
        values = [debugger_value("layer0_weight", np.arange(6.0), TRAIN, step) for step in (0, 1)]
        write_step(directory, 0, values)
        (path,) = directory.rglob("*.tfevents")
        return path
