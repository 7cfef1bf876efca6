"""Stack samples and operators for speedscope and pprof: the sums are those of the tables."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from stepscope import exporters
from stepscope.cli import root
from stepscope.errors import UsageError
from stepscope.exporters import ExportOptions
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from tests.support.chrome_files import import_into
from tests.support.kineto_files import MANY_KINDS_HEADER, kernel, launch, many_kinds, op, trace
from tests.support.pprof_files import Stacks, read_pprof

MS = 10**6
INDEX = {"type": "integer", "minimum": 0}
NUMBER = {"type": "number", "minimum": 0}
# After https://github.com/jlfwong/speedscope/blob/main/src/lib/file-format-spec.ts
SPEEDSCOPE_SCHEMA = {
    "type": "object",
    "required": ["$schema", "shared", "profiles"],
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "name": {"type": "string"},
        "exporter": {"type": "string"},
        "shared": {
            "type": "object",
            "required": ["frames"],
            "properties": {
                "frames": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "additionalProperties": False,
                        "properties": {"name": {"type": "string"}, "file": {"type": "string"}},
                    },
                }
            },
        },
        "profiles": {
            "type": "array",
            "items": {
                "type": "object",
                "required": [
                    "type", "name", "unit", "startValue", "endValue", "samples", "weights"
                ],
                "properties": {
                    "type": {"const": "sampled"},
                    "name": {"type": "string"},
                    "unit": {"const": "nanoseconds"},
                    "startValue": NUMBER,
                    "endValue": NUMBER,
                    "samples": {"type": "array", "items": {"type": "array", "items": INDEX}},
                    "weights": {"type": "array", "items": NUMBER},
                },
            },
        },
    },
}  # fmt: skip


def read_speedscope(path: Path) -> dict[str, Stacks]:
    content = json.loads(path.read_text())
    jsonschema.validate(content, SPEEDSCOPE_SCHEMA)
    frames = [frame["name"] for frame in content["shared"]["frames"]]
    profiles = {}
    for profile in content["profiles"]:
        stacks = [tuple(frames[index] for index in sample) for sample in profile["samples"]]
        weights = dict(zip(stacks, profile["weights"], strict=True))
        assert sum(weights.values()) == profile["endValue"]
        profiles[profile["name"]] = weights
    return profiles


def exported(run: Run, tmp_path: Path, **options: Any) -> dict[str, Stacks]:
    """Export in both forms, which have to agree."""
    for form in ("speedscope", "pprof"):
        exporters.export(run, form, str(tmp_path / form), ExportOptions(**options))
    profiles = read_speedscope(tmp_path / "speedscope")
    assert profiles == {
        name: stacks for (_, name), stacks in read_pprof(tmp_path / "pprof").items()
    }
    return profiles


def test_stack_samples(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run", code={"work": "main > work", "load": "main > load"})
    for number in range(2):
        builder.rank(number).draw("wait=0 50 | do:work 8 | do:load 20", 10)
    run = builder.open()
    profiles = exported(run, tmp_path)
    assert len(profiles) == 2
    samples = run.reader.table("stacks")
    assert sum(sum(s.values()) for s in profiles.values()) == len(samples["t_ns"]) * MS
    expected = Counter(
        tuple(frame.split("|")[0] for frame in text.split(";"))
        for text in samples["stack"].tolist()
    )
    stacks = sum((Counter(weights) for weights in profiles.values()), Counter())
    assert stacks == Counter({stack: count * MS for stack, count in expected.items()})
    assert {name.partition(":")[0] for name in profiles} == {"rank 0", "rank 1"}
    (only,) = exported(run, tmp_path, rank=1)
    assert only.startswith("rank 1: stack samples of main thread ")


def traced(tmp_path: Path) -> Run:
    events = [
        op("outer", 0, 1_000),
        op("inner", 100, 400),
        launch(150, 60, 1),
        op("inner", 600, 300),
        launch(650, 50, 2),
        launch(950, 20, 3),
        op("outer", 2_000, 100),
        op("inner", 3_000, 10),
        kernel(300, 1_000, 1),
        kernel(1_400, 200, 2, name="add"),
        kernel(1_700, 30, 3),
        kernel(1_800, 7, None, name="before"),
        kernel(1_900, 5, 2, {"bytes": 64}, category="gpu_memcpy", name="Memcpy HtoD"),
    ]
    path = tmp_path / "rank0.json"
    path.write_bytes(trace(*events))
    return Run(open_run(import_into(tmp_path / "traced", path)))


def test_operators_and_kernels(tmp_path: Path) -> None:
    run = traced(tmp_path)
    assert exported(run, tmp_path) == {
        "rank 0: operators": {
            ("outer",): 1_100 - 700 - 20,
            ("outer", "runtime calls"): 20,
            ("outer", "inner"): 700 - 60 - 50,
            ("outer", "inner", "runtime calls"): 60 + 50,
            ("inner",): 10,
        },
        "rank 0: device time": {
            ("outer", "inner", "gemm"): 1_000,
            ("outer", "inner", "add"): 200,
            ("outer", "inner", "Memcpy HtoD"): 5,
            ("outer", "gemm"): 30,
            ("not launched by an operator", "before"): 7,
        },
    }


def test_sums_are_those_of_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "rank1.json"
    path.write_bytes(trace(*many_kinds(), **MANY_KINDS_HEADER))
    run = Run(open_run(import_into(tmp_path / "run", path)))
    sums = {name: sum(stacks.values()) for name, stacks in exported(run, tmp_path).items()}
    host = "SELECT CAST(sum(duration_ns) AS BIGINT) AS n FROM operators WHERE parent IS NULL"
    device = (
        "SELECT CAST(sum(duration_ns) AS BIGINT) AS n FROM "
        "(SELECT duration_ns FROM kernels UNION ALL SELECT duration_ns FROM copies)"
    )
    assert sums == {
        "rank 1: operators": run.reader.sql(host)["n"][0],
        "rank 1: device time": run.reader.sql(device)["n"][0],
    }


def test_nothing_to_export(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run").open()
    for form in ("speedscope", "pprof"):
        with pytest.raises(UsageError, match="Nothing to export: the run has no stack samples"):
            exporters.export(run, form, str(tmp_path / "f"), ExportOptions())


def test_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traced(tmp_path)
    command = ["export", str(tmp_path / "traced"), "--to"]
    root.main([*command, "pprof", "-o", str(tmp_path / "f")], standalone_mode=False)
    assert "f: 2 profiles, 10 stacks" in capsys.readouterr().out
    with pytest.raises(UsageError, match="No trace is called no; available: "):
        root.main(
            [*command, "pprof", "-o", str(tmp_path / "f"), "--trace", "no"], standalone_mode=False
        )
