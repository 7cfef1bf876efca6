"""Decoders of foreign bytes, each with real content to start from.

A decoder may raise errors that its caller turns into a sentence; other exceptions are defects.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.errors import StepscopeError
from stepscope.event_records import masked_crc32c
from stepscope.importers import Importer, Refused, import_files
from stepscope.importers.content import ignore_progress
from stepscope.importers.event_files.debugger import DebuggerJob, Form
from stepscope.importers.event_files.rows import RowWriter
from stepscope.importers.event_files.tensorboard import TensorBoardRun
from stepscope.importers.gpu_samples import GpuSamplesImporter
from stepscope.importers.kineto.execution_trace import read_execution_trace
from stepscope.importers.nsys import NsysImporter
from stepscope.importers.perfetto.chrome_form import ChromeForm
from stepscope.importers.perfetto.packets import Packets
from stepscope.importers.rocprof import RocprofImporter
from stepscope.importers.smdebug.events import read_events
from stepscope.importers.smdebug.python_profiles import read_profile
from stepscope.importers.smdebug.system import SampleSorter, read_samples
from stepscope.importers.wire import DamagedMessageError, Message
from stepscope.importers.xplane.events import chunks_of
from stepscope.importers.xplane.planes import read_space
from stepscope.monitor.drain import SpoolDrain
from stepscope.schema import SCHEMA_VERSION, TABLES, ProcessInfo, RunInfo
from stepscope.spool import DropCounts, Journal, Kind, SpanLog, SpoolTree, make_meta
from stepscope.store import create_run
from stepscope.store.engine import make_batch
from stepscope.testing.importer_contract import ImporterContract
from tests.support.compiler_logs import training_log
from tests.support.debugger_files import event, sample
from tests.support.kineto_files import imported_file, pretty, trace, training
from tests.support.memory_snapshots import Allocator, train
from tests.support.nsys_files import training as nsys_training, write_export
from tests.support.perfetto_files import recording
from tests.support.xplane_files import training_space
from tests.unit.importers.test_flight_recorder import TestFlightRecorder
from tests.unit.importers.test_gpu_samples import DCGM, NVIDIA_SMI
from tests.unit.importers.test_memory_timeline import TestMemoryTimeline
from tests.unit.importers.test_nccl_inspector import TestNcclInspector
from tests.unit.importers.test_rocprof import RECORDING
from tests.unit.importers.test_stage_operations_importer import TestStageOperations

EXPECTED = (StepscopeError, OSError)
"""Errors that every command turns into one sentence."""
RUN = RunInfo(
    schema_version=SCHEMA_VERSION,
    run_id="fuzz",
    created_ns=0,
    command=[],
    working_directory="/",
    stepscope_version="0",
)
_SPOOL_LIMIT_BYTES = 64 << 20
_FOLDER = "train-1-stepstart-1600000000000000_train-2-stepend-1600000001000000"


@dataclass(frozen=True, slots=True)
class Decoder:
    """One decoder with its input."""

    file_name: str
    """Name of the file in an empty directory that gets the bytes."""
    decode: Callable[[Path], object]
    seeds: Callable[[], Sequence[bytes]]
    raises: tuple[type[Exception], ...] = EXPECTED
    quick_case_count: int = 40
    """Cases in the part that every check runs."""

    def run(self, content: bytes, directory: Path) -> None:
        """Decode some bytes in a directory, which is empty before and after.

        Raises:
            Exception: anything but an error that users see as a sentence.
        """
        path = directory / self.file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        try:
            self.decode(path)
        except self.raises:
            pass
        finally:
            shutil.rmtree(directory)
            directory.mkdir()


def _traces() -> list[bytes]:
    plain = trace(*training(), deviceProperties=[{"id": 0, "name": "A"}])
    return [plain, pretty(plain), json.dumps(json.loads(plain)["traceEvents"]).encode()]


def _packed_traces() -> list[bytes]:
    return [gzip.compress(plain, mtime=0) for plain in _traces()]


def _samples() -> list[bytes]:
    rows = [sample("CPUUtilization", "cpu0", 50, second=n / 2) for n in range(4)]
    return [b"\n".join(json.dumps({**row, "Timestamp": 1.6e9}).encode() for row in rows)]


def _events() -> list[bytes]:
    base = {"ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1_600_000_000}}
    rows = [base, event("Forward", "Net", 1_000, 500), event("Backward", "Net", 2_000, 500)]
    return [("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n").encode()]


def _profiles() -> list[bytes]:
    # Marshalled {("train.py", 3, "step"): (1, 1, 0.5, 0.5, {})}, as pstats writes it.
    key = b")\x03z\x08train.py" + b"i\x03\x00\x00\x00" + b"z\x04step"
    seconds = b"g" + np.float64(0.5).tobytes()
    value = b")\x05" + b"i\x01\x00\x00\x00" * 2 + seconds * 2 + b"{0"
    return [b"{" + key + value + b"0"]


def _call_trees() -> list[bytes]:
    leaf = {"function": "load", "time": 0.5, "file_path": "a.py", "line_no": 3, "children": []}
    root = {**leaf, "function": "main", "time": 1.0, "children": [leaf]}
    return [json.dumps({"root_frame": root}).encode()]


def _execution_traces() -> list[bytes]:
    types = ["Tensor(float)", "GenericList[Tensor(float)]", "Double", "GenericList[Int]", "None"]
    values = {"values": [1, [1], 2.0, [3], None], "shapes": [[2], [[2]], [], [], []]}
    inputs = {**values, "types": types, "strides": [[1], [[1]], [], [], []]}
    node = {"id": 4, "name": "aten::linear", "inputs": inputs, "rf_id": 2}
    older = {"inputs": [1], "input_shapes": [[2]], "input_types": ["Tensor(float)"]}
    older |= {"id": 5, "name": "aten::addmm", "attrs": [{"name": "rf_id", "value": 3}]}
    return [
        json.dumps({"schema": schema, "pid": 10, "nodes": nodes}).encode()
        for schema, nodes in (("1.1.1", [node]), ("1.0.1", [older]), ("1.1.1", [node, older]))
    ]


def _describe_operators(path: Path) -> None:
    """Read an execution trace, and import a trace of the same process with it."""
    execution_trace = read_execution_trace(path)
    beside = path.with_name("beside.json")
    beside.write_bytes(_traces()[0])
    imported_file(beside, execution_traces=(execution_trace,))


def _import_file(path: Path) -> None:
    """Import a file into a new run."""
    run = path.with_name("run")
    info = RunInfo(
        schema_version=SCHEMA_VERSION, run_id="r", created_ns=0, command=[],
        working_directory="/", stepscope_version="0",
    )  # fmt: skip
    create_run(run, info)
    import_files([path], run, "n")


def _segments() -> list[bytes]:
    with tempfile.TemporaryDirectory() as root:
        log = SpanLog(SpoolTree(root, _SPOOL_LIMIT_BYTES), root, 7, "c", DropCounts.create(root))
        for kind in (Kind.STEP, Kind.STACK, Kind.SCALAR, Kind.METRIC):
            log.write(make_meta(1, kind), 1_000, 2_000, 3)
        (path,) = Path(root).glob("*.log")
        return [path.read_bytes()]


def _journals() -> list[bytes]:
    with tempfile.TemporaryDirectory() as root:
        journal = Journal(f"{root}/journal.jsonl")
        journal.write("process", pid=7, parent_pid=1, role="main", rank=0, command=["a", "b"])
        journal.write("name", id=1, text="gpu_busy_ratio", labels='"0"')
        journal.write("fact", fact="source", file="a.py", line=3, text="x = 1")
        journal.write("note", text="a probe was switched off")
        return [Path(journal.path).read_bytes()]


def _event_files() -> list[bytes]:
    """Return an event file with all kinds of values, and one of SageMaker Debugger's tensors."""
    tensor = b"\x08\x01\x12\x06\x12\x02\x08\x02\x0a\x00" + b"\x22\x08" + bytes(8)
    histogram = b"\x11" + bytes(7) + b"\x40" + b"\x32\x08" + bytes(8) + b"\x3a\x08" + bytes(8)
    plugin = b"\x0a\x0b\x0a\x09mode_step\x0a\x09\x0a\x04mode\x12\x01\x01"
    values = [
        b"\x0a\x01a\x15" + bytes(4),
        b"\x0a\x01b\x2a" + bytes([len(histogram)]) + histogram,
        b"\x0a\x01c\x42" + bytes([len(tensor)]) + tensor + b"\x4a" + bytes([len(plugin)]) + plugin,
    ]
    summary = b"".join(b"\x0a" + bytes([len(value)]) + value for value in values)
    event = (
        b"\x09" + np.float64(1.6e9).tobytes() + b"\x10\x07\x2a" + bytes([len(summary)]) + summary
    )
    return [_record(b"\x1a\x0dbrain.Event:2") + _record(event) * 2, event]


def _record(payload: bytes) -> bytes:
    length = len(payload).to_bytes(8, "little")
    return b"".join(part + masked_crc32c(part).to_bytes(4, "little") for part in (length, payload))


class _CheckedWriter:
    """Writer that checks rows and stores nothing."""

    def append(self, table: str, columns: Mapping[str, Any]) -> int:
        return make_batch(TABLES[table], columns).row_count

    def put_process(self, info: ProcessInfo) -> None:
        msgspec.json.encode(info)

    def put_tensor(self, key: str, content: bytes) -> None:
        assert key
        assert isinstance(content, bytes)


def _read_event_file(path: Path) -> None:
    """Read an event file, and its bytes as the payload of an intact record."""
    job = TensorBoardRun(RowWriter(_CheckedWriter(), "n"), ".", "n")
    for file in (path, _as_payload(path)):
        job.read(file)
    job.finish()


def _read_debugger_tensors(path: Path) -> None:
    job = DebuggerJob(RowWriter(_CheckedWriter(), "n"), "n")
    for file in (path, _as_payload(path)):
        job.read(file, Form.EVENTS)
    job.finish()


def _as_payload(path: Path) -> Path:
    payload = path.with_name(f"1{path.name[1:]}")
    payload.write_bytes(_record(path.read_bytes()))
    return payload


def _read_xplane(path: Path) -> None:
    for plane in read_space(path.read_bytes()).planes:
        for _ in chunks_of(plane):
            pass


def _read_perfetto(path: Path) -> None:
    packets = Packets(Message(path.read_bytes()))
    try:
        packets.read()
    except DamagedMessageError as error:
        packets.damage = error
    if packets.event_count:
        ChromeForm(packets).write(BytesIO())


def _exports() -> list[bytes]:
    """Return exports of Nsight Systems, one of them with most of its rows on several pages."""
    with tempfile.TemporaryDirectory() as root:
        paths = [
            write_export(Path(root, f"{steps}.sqlite"), nsys_training(steps)) for steps in (1, 60)
        ]
        return [path.read_bytes() for path in paths]


def _import_export(path: Path) -> None:
    run = path.with_name("run")
    create_run(run, RUN)
    (result,) = NsysImporter().import_files([path], run, "n", lambda _index, _share: None)
    for one in result if isinstance(result, list) else [result]:
        assert not isinstance(one, Refused) or "\n" not in one.reason


def _drain(path: Path) -> None:
    """Drain the spool around a file, and check that its rows can be stored."""
    root = path.parents[1]
    if path.name == "journal.jsonl":
        (path.parent / "7c-0.log").write_bytes(_SEGMENT)
    drain = SpoolDrain(
        SpoolTree(str(root), _SPOOL_LIMIT_BYTES), node="n", epoch_offset_ns=0, stored=_none_stored
    )
    for table, records in drain.collect(final=True).items():
        if records:
            make_batch(TABLES[table], drain.columns(table, records))
            drain.commit(records)


def _none_stored(*_: object) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.empty(0, dtype=np.int64)


_SEGMENT = _segments()[0]


def _import_by(importer: type[Importer]) -> Callable[[Path], object]:
    """Return a function that imports a file into a new run by one importer."""

    def run(path: Path) -> object:
        directory = path.parent / "run"
        create_run(directory, RUN)
        return importer().import_files([path], directory, "n", ignore_progress)

    return run


def _by_contract(contract: type[ImporterContract], name: str) -> Decoder:
    """Return the decoder of an importer, with the file that its contract writes."""

    def seeds() -> list[bytes]:
        with tempfile.TemporaryDirectory() as root:
            return [contract().write(Path(root)).read_bytes()]

    return Decoder(name, _import_by(contract.importer), seeds)


DECODERS = {
    "kineto": Decoder("trace.json", imported_file, _traces),
    "kineto-gzip": Decoder("trace.json.gz", imported_file, _packed_traces),
    "execution-trace": Decoder("trace.json", _describe_operators, _execution_traces),
    "smdebug-samples": Decoder(
        "1.algo-1.json", lambda path: SampleSorter().by_node(read_samples(path).samples), _samples
    ),
    "smdebug-events": Decoder("1600000000_7-algo-1_pythontimeline.json", read_events, _events),
    "cprofile": Decoder(
        f"7-a/{_FOLDER}/python_stats", read_profile, _profiles, (*EXPECTED, ValueError)
    ),
    "pyinstrument": Decoder(
        f"7-a/{_FOLDER}/python_stats.json", read_profile, _call_trees, (*EXPECTED, ValueError)
    ),
    "spool": Decoder("p-7-1-0/7c-0.log", _drain, lambda: [_SEGMENT]),
    "event-file": Decoder(
        "events.out.tfevents.1.host.7.0", _read_event_file, _event_files, quick_case_count=500
    ),
    "smdebug-tensors": Decoder(
        "000000000007_worker_0.tfevents", _read_debugger_tensors, _event_files, quick_case_count=500
    ),
    "xplane": Decoder(
        "a.xplane.pb",
        _read_xplane,
        lambda: [training_space().SerializeToString()],
        (*EXPECTED, DamagedMessageError),
        quick_case_count=500,
    ),
    "perfetto": Decoder(
        "a.pftrace",
        _read_perfetto,
        lambda: [recording().trace.SerializeToString()],
        quick_case_count=500,
    ),
    "gpu-samples": Decoder(
        "gpus.csv", _import_by(GpuSamplesImporter), lambda: [NVIDIA_SMI.encode(), DCGM.encode()]
    ),
    "rocprof": Decoder(
        "r.json", _import_by(RocprofImporter), lambda: [json.dumps(RECORDING).encode()]
    ),
    "flight-recorder": _by_contract(TestFlightRecorder, "nccl_trace_rank_0"),
    "nccl-inspector": _by_contract(TestNcclInspector, "gpu01-pid7.log"),
    "memory-timeline": _by_contract(TestMemoryTimeline, "m.raw.json"),
    "stage-operations": _by_contract(TestStageOperations, "job.parquet"),
    "nsys": Decoder("a.sqlite", _import_export, _exports, quick_case_count=200),
    "memory-snapshot": Decoder(
        "a.pickle",
        _import_file,
        lambda: [train(Allocator(), 20).dump(protocol) for protocol in (2, 4)],
    ),
    "torch-trace": Decoder("a.log", _import_file, lambda: [training_log()]),
    "journal": Decoder("p-7-1-0/journal.jsonl", _drain, _journals),
}
