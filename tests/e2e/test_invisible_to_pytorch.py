"""Transparency of the adapters: graphs, results, messages and pickles of a job do not change."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

pytestmark = pytest.mark.extended(
    "compiles graphs in three processes; test_bit_identical.py compares results"
)

SCRIPT = Path(__file__).parent / "transparency" / "invisible.py"


@pytest.fixture(scope="module")
def output(module_spool: Any) -> dict[str, Any]:
    """Output of the script: plain, under the bootstrap, and activated late; run concurrently."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("STEPSCOPE")}
    recorded = module_spool.environment()
    late = {**recorded, "PYTHONPATH": plain.get("PYTHONPATH", "")}
    variants = {
        "plain": (plain, []),
        "adapted": (recorded, []),
        "late": (late, ["--compiler-first", "--activate"]),
    }
    running = {
        name: subprocess.Popen(
            [sys.executable, str(SCRIPT), *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, (environment, arguments) in variants.items()
    }
    outputs = {name: process.communicate(timeout=300) for name, process in running.items()}
    for name, (_, err) in outputs.items():
        assert running[name].returncode == 0, err
    return {name: json.loads(out.splitlines()[-1]) for name, (out, _) in outputs.items()}


@pytest.mark.parametrize("variant", ["adapted", "late"])
@pytest.mark.parametrize(
    "part", ["signatures", "pickled", "random_numbers", "errors", "graphs", "compiler"]
)
def test_the_output_is_the_same_as_without_adapters(
    output: dict[str, Any], part: str, variant: str
) -> None:
    assert output[variant][part] == output["plain"][part]


def test_the_compared_output_is_not_trivial(output: dict[str, Any], module_spool: Any) -> None:
    compiler = output["plain"]["compiler"]
    assert compiler["model"]["stats"]["unique_graphs"] == 2
    assert sum(compiler["breaks"]["breaks"].values()) == 2
    assert compiler["annotated"]["breaks"] == {}
    recorded = module_spool.drain()
    assert len({r.process for r in recorded.of("forward")}) == 2, "both variants were watched"
    assert recorded.notes == []
