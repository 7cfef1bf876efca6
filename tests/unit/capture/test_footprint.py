"""Import cost of stepscope in a process that does not use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

MAY_BE_LOADED = {
    "__future__", "_collections", "_functools", "_operator", "_struct", "_weakrefset", "atexit",
    "collections", "errno", "functools", "gc", "itertools", "keyword", "mmap", "operator",
    "reprlib", "struct", "threading", "types",
}  # fmt: skip
"""Small modules of the standard library; some builds of Python load several of them at start-up."""
HEAVY = {"torch", "numpy", "duckdb", "msgspec", "psutil", "json", "re", "inspect", "typing"}


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; a = set(sys.modules); {statement}; print(sorted(set(sys.modules) - a))"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STEPSCOPE")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    return set(json.loads(done.stdout.replace("'", '"')))


@pytest.mark.parametrize("statement", ["import stepscope", "import stepscope.capture.bootstrap"])
def test_importing_loads_few_modules(statement: str) -> None:
    modules = {name for name in loaded_by(statement) if not name.startswith("stepscope")}
    assert not modules & HEAVY
    assert modules <= MAY_BE_LOADED


def test_importing_loads_only_the_marks_of_stepscope() -> None:
    modules = {name for name in loaded_by("import stepscope") if name.startswith("stepscope")}
    assert {name.split(".")[1] for name in modules if "." in name} == {
        "_version", "capture", "errors", "job_environment", "spool",
    }  # fmt: skip
    assert not {name for name in modules if "frameworks" in name or "stacks" in name}


def test_watching_for_frameworks_loads_few_modules() -> None:
    statement = "from stepscope.capture.bootstrap import activate; activate()"
    assert not loaded_by(statement) & (HEAVY | {"importlib.abc", "tempfile", "random", "shutil"})


def test_the_table_of_changes_is_read_without_torch() -> None:
    assert "torch" not in loaded_by("import stepscope.capture.trial")
