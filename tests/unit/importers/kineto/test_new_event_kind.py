"""A new kind of event takes one entry and one schema file, as CONTRIBUTING says.

The test adds both to a copy of the package and imports, draws and exports a trace with it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stepscope
from tests.support.kineto_files import kernel, launch, op, span, trace

TABLE = """
from __future__ import annotations

from stepscope.schema.tables.trace_events import (
    ARGS, DURATION_NS, EVENT_ID, NAME, START_NS, TRACE, TRACK
)
from stepscope.schema.table import Table, column

OVERHEADS = Table(
    name="overheads",
    doc="One row per overhead of the profiler.",
    key=("trace", "id"),
    columns=(
        TRACE,
        EVENT_ID,
        TRACK,
        NAME,
        START_NS,
        DURATION_NS,
        column("delayed_stream", "BIGINT NULL", "Stream that waits."),
        column("reason", "VARCHAR NULL", "Reason."),
        column("operator", "BIGINT NULL", "Innermost enclosing operator."),
        ARGS,
    ),
)
"""
ENTRY = """
    event_declaration.EventKind(
        name="overhead",
        categories=("overhead", "delay"),
        table=OVERHEADS,
        linking="enclosing",
        drawing="nested",
        arguments=(
            _integer("stream", "delayed_stream"),
            event_declaration.Argument(key="reason", type="string", column="reason"),
        ),
        export=("stream", "reason", _exported("Ev Idx", "number", "id")),
    ),
"""
IMPORT = "from stepscope.schema.tables.overheads import OVERHEADS\n"
LAST_IMPORT = "from stepscope.schema.tables.metrics import METRICS\n"
END_OF_KINDS = ')  # fmt: skip\n"""All kinds.'
SCRIPT = """
import json, sys, pathlib
from stepscope.exporters import export_chrome
from stepscope.importers.kineto import Identity, import_trace
from stepscope.run import Run
from stepscope.schema import SCHEMA_VERSION, RunInfo
from stepscope.store import RunWriter, create_run, open_run
from stepscope.timeline import find_event, track_id

create_run("run", RunInfo(schema_version=SCHEMA_VERSION, run_id="r", created_ns=0, command=[],
                          working_directory="/", stepscope_version="0"))
with RunWriter("run", "n") as writer:
    import_trace(pathlib.Path("trace.json"), writer, Identity(name="t"), scratch=pathlib.Path("."))
run = Run(open_run("run"))
(trace,) = run.traces
exported = export_chrome([trace], pathlib.Path("exported.json"))
rows = run.reader.table("overheads")
levels = run.reader.sql("SELECT sum(count) AS n FROM timeline GROUP BY level ORDER BY level")
event = find_event(run, track_id("trace", trace.trace, 0), 2)
print(json.dumps({
    "rows": {name: values.tolist() for name, values in rows.items() if name != "trace"},
    "summarised": int(levels["n"][0]),
    "kind": event.kind,
    "others": run.reader.row_count("other_events"),
}))
"""


@pytest.fixture
def changed_package(tmp_path: Path) -> Path:
    """Copy of the package with the new kind."""
    source = Path(stepscope.__file__).parent
    package = tmp_path / "changed" / "stepscope"
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__", "assets"))
    (package / "assets").mkdir()
    shutil.copy(source / "assets" / "__init__.py", package / "assets")
    (package / "schema" / "tables" / "overheads.py").write_text(TABLE)
    kinds = package / "schema" / "event_kinds.py"
    text = kinds.read_text()
    assert text.count(LAST_IMPORT) == text.count(END_OF_KINDS) == 1
    text = text.replace(LAST_IMPORT, LAST_IMPORT + IMPORT)
    kinds.write_text(text.replace(END_OF_KINDS, ENTRY + END_OF_KINDS))
    return package.parent


def python(package: Path, directory: Path, code: str) -> Any:
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.extended("copies the package; the declarations are checked in tests/unit/schema")
def test_a_new_kind_is_imported_drawn_and_exported(tmp_path: Path, changed_package: Path) -> None:
    events = [
        op("aten::item", 0, 9_000, external=1),
        launch(100, 50, 1, external=1),
        span("overhead", "Flush", 2_000, 5_000, args={"stream": 7, "reason": "item"}),
        span("Delay", "Resize", 3_000, 1_000, args={"stream": 20, "priority": 3}),
        kernel(400, 900, 1),
    ]
    (tmp_path / "trace.json").write_bytes(trace(*events))
    result = python(changed_package, tmp_path, SCRIPT)
    assert result["others"] == 0
    rows = result["rows"]
    assert rows["name"] == ["Flush", "Resize"]
    assert rows["delayed_stream"] == [7, 20]
    assert rows["reason"] == ["item", None]
    assert rows["operator"] == [0, 0]
    assert rows["args"] == [None, '{"priority":3}']
    assert result["summarised"] == len(events)
    assert result["kind"] == "overheads"
    written = json.loads((tmp_path / "exported.json").read_text())["traceEvents"]
    first, second = (event for event in written if event.get("cat") == "overhead")
    assert first["args"] == {"stream": 7, "reason": "item", "Ev Idx": 2}
    assert second["args"] == {"stream": 20, "Ev Idx": 3, "priority": 3}
