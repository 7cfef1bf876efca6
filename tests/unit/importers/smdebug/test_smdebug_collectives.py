"""Collectives in the timeline of SageMaker's data-parallel library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepscope.views.steps.steps import show_steps
from tests.support.debugger_files import EPOCH_NS, DebuggerOutput, event, rows, step

US = 10**3


@pytest.mark.seed("DBP-08")
def test_all_reduces_of_the_library(tmp_path: Path) -> None:
    output = DebuggerOutput(tmp_path / "profiler-output")
    training, reductions = [], []
    for number in range(30):
        at = 1000 * number
        training += [
            event("Forward", "Net", at, 300),
            event("Backward(post-forward)", "Net", at + 300, 600),
            step(number, at, 900),
        ]
        reductions.append(event("kAllReduce", "kAllReduce", at + 500, 200, step_num=str(number)))
    output.events("77-algo-1", training)
    output.events("77-algo-1", reductions, suffix="smdataparallel_timeline")
    run = output.imported()
    collectives = rows(run, kind="communication")
    assert {row["name"] for row in collectives} == {"kAllReduce"}
    assert [(row["start_ns"], row["end_ns"]) for row in collectives] == [
        (EPOCH_NS + (1000 * n + 500) * US, EPOCH_NS + (1000 * n + 700) * US) for n in range(30)
    ]
    assert {json.loads(str(row["labels"]))["tensor"] for row in collectives} == {"kAllReduce"}
    assert show_steps(run).ranks[0].step_count == 30
