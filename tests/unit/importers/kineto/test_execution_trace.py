"""Execution traces beside a trace: operators get what `record_shapes=True` would have recorded."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli import root
from stepscope.errors import UnreadableTraceError
from stepscope.run import Run
from stepscope.views import VIEWS, ViewOptions
from tests.support.imported_runs import import_into
from tests.support.kineto_files import op, trace

SHAPES = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
COLUMNS = ("name", "input_dims", "input_types", "input_strides", "concrete_inputs", "args")
TENSOR = [1, 2, 0, 8, 4, "cpu"]


def node(number: int, name: str, record_function: int, **inputs: Any) -> dict[str, Any]:
    attributes = [{"name": "rf_id", "type": "uint64", "value": record_function}]
    return {"id": number, "name": name, "inputs": inputs, "attrs": attributes}


MM = node(
    15,
    "aten::mm",
    7,
    values=[TENSOR, TENSOR, 3, "<None>", [1, 2], False],
    shapes=[[2, 4], [4, 8], [], [], [[], []], []],
    types=["Tensor(float)", "Tensor(c10::Half)", "Int", "None", "GenericList[Int,Int]", "Bool"],
    strides=[[4, 1], [8, 1], [], [], [[], []], []],
)


def write(path: Path, *nodes: Any, pid: int = 10) -> Path:
    content = {"schema": "1.1.1-chakra.0.0.4", "pid": pid, "start_ts": 1, "nodes": nodes}
    text = json.dumps(content).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def operator(number: int, name: str = "aten::mm", **args: Any) -> Any:
    return op(name, number * 1_000, 900, {"Record function id": number, **args})


def operators_of(run: Run) -> list[tuple[Any, ...]]:
    columns = run.traces[0].columns("operators", COLUMNS)
    return list(zip(*(columns[name].decode() for name in COLUMNS), strict=True))


def described(path: Path, events: list[Any], *nodes: Any, **options: Any) -> list[tuple[Any, ...]]:
    (path / "trace.json").write_bytes(trace(*events))
    file = write(path / "et.json.gz", *nodes, **options)
    return operators_of(import_into(path / "run", path / "trace.json", file))


def test_inputs_as_kineto_writes_them(tmp_path: Path) -> None:
    (row,) = described(tmp_path, [operator(7)], MM)
    assert row[1:] == (
        "[[2,4],[4,8],[],[],[],[]]",
        '["float","c10::Half","Scalar","","ScalarList","Scalar"]',
        "[[4,1],[8,1],[],[],[],[]]",
        '["","","3","","[1, 2]","False"]',
        '{"Execution trace node":15}',
    )


def test_recorded_inputs_are_kept(tmp_path: Path) -> None:
    events = [operator(7, **{"Input Dims": [[9, 9]], "unknown": 1}), operator(8)]
    first, second = described(tmp_path, events, MM)
    assert first[1] == "[[9,9]]"
    assert first[2] is not None
    assert json.loads(first[5]) == {"unknown": 1, "Execution trace node": 15}
    assert second[1:] == (None,) * 5


def test_older_schema_and_trace(tmp_path: Path) -> None:
    """Schema 1.0 has its lists beside each other; such traces have only an External id."""
    older = {
        "id": 4,
        "name": "aten::mm",
        "rf_id": 2,
        "inputs": [TENSOR, 1.5],
        "input_shapes": [[3, 3], []],
        "input_types": ["Tensor(float)", "Double"],
    }
    (row,) = described(tmp_path, [op("aten::mm", 0, 900, external=2)], older)
    assert row[1:5] == ("[[3,3],[]]", '["float","Scalar"]', None, '["","1.5"]')


@pytest.mark.parametrize(
    ("event", "pid"),
    [(operator(7, name="aten::add"), 10), (operator(6), 10), (operator(7), 11)],
    ids=["name", "number", "process"],
)
def test_execution_traces_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], event: Any, pid: int
) -> None:
    (row,) = described(tmp_path, [event], MM, pid=pid)
    assert row[1:] == (None,) * 5
    message = capsys.readouterr().err
    assert "et.json.gz is an execution trace: it has no times, and describes" in message
    assert "No trace of the same process and time is imported with it: record one with" in message


def test_each_rank_has_its_own(tmp_path: Path) -> None:
    files = []
    for rank in range(2):
        file = tmp_path / f"rank{rank}.json"
        file.write_bytes(trace(operator(7) | {"pid": 50 + rank}, distributedInfo={"rank": rank}))
        inputs = {"shapes": [[rank]], "types": ["Tensor(float)"]}
        execution = node(rank, "aten::mm", 7, **inputs)
        files += [file, write(tmp_path / f"et{rank}.json", execution, pid=50 + rank)]
    run = import_into(tmp_path / "run", *files)
    shapes = [trace.columns("operators", ("input_dims",))["input_dims"] for trace in run.traces]
    assert [column.decode().tolist() for column in shapes] == [["[[0]]"], ["[[1]]"]]


@pytest.mark.extended("records with PyTorch; files by hand are read above")
def test_files_of_torch(tmp_path: Path) -> None:
    """A trace with shapes, and the same trace without them beside its execution trace."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, stride=2), torch.nn.ReLU(), torch.nn.Flatten()
    )
    observer = torch.profiler.ExecutionTraceObserver()
    observer.register_callback(str(tmp_path / "et.json"))
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        record_shapes=True,
        execution_trace_observer=observer,
    ) as profiler:
        outputs = model(torch.randn(2, 3, 8, 8))
        torch.cat([outputs, outputs.double()]).sum().backward()
    profiler.export_chrome_trace(str(tmp_path / "shapes.json"))
    content = json.loads((tmp_path / "shapes.json").read_bytes())
    for event in content["traceEvents"]:
        for key in SHAPES:
            event.get("args", {}).pop(key, None)
    (tmp_path / "bare.json").write_text(json.dumps(content))
    expected = operators_of(import_into(tmp_path / "expected", tmp_path / "shapes.json"))
    run = import_into(tmp_path / "run", tmp_path / "bare.json", tmp_path / "et.json")
    rows = operators_of(run)
    assert run.traces[0].has_shapes
    assert len(rows) == len(expected) > 20
    assert [row[:5] for row in rows] == [row[:5] for row in expected]
    (shown,) = VIEWS["operators"](run, ViewOptions(by="shape")).traces  # type: ignore[attr-defined]
    assert any(row.input_dims.startswith("[[2,3,8,8],[4,3,3,3]") for row in shown.shapes)


def test_alone(tmp_path: Path) -> None:
    with pytest.raises(UnreadableTraceError, match="is an execution trace: it has no times"):
        import_into(tmp_path / "run", write(tmp_path / "et.json", MM))


def test_truncated(tmp_path: Path) -> None:
    file = write(tmp_path / "et.json", MM)
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(UnreadableTraceError, match="is no complete execution trace"):
        import_into(tmp_path / "run", file)


def test_damaged(tmp_path: Path) -> None:
    file = write(tmp_path / "et.json", MM)
    file.write_bytes(file.read_bytes().replace(b"aten", b"at\xffn"))
    with pytest.raises(UnreadableTraceError, match="is no complete execution trace"):
        import_into(tmp_path / "run", file)


def test_report_of_the_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "trace.json").write_bytes(trace(operator(7), operator(8)))
    files = [str(tmp_path / "trace.json"), str(write(tmp_path / "et.json", MM))]
    root.main(["import", *files, "-o", str(tmp_path / "run")], standalone_mode=False)
    assert "1 execution trace with the inputs of 1 operator\n" in capsys.readouterr().out
