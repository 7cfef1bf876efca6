"""`usage`: the figures of the report on the page, of jobs with known statistics."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stepscope.rule_feed import RULES_DOCUMENT, check_rules, choose_rules
from stepscope.run import Run
from stepscope.schema import RuleRecord
from stepscope.store import RunWriter, open_run
from stepscope.testing import RunBuilder
from stepscope.views import VIEWS
from stepscope.views.profiling_report import Listing, Pie, Section, choose_report_rules, make_report
from stepscope.views.profiling_report.usage import UsageShares, show_usage
from tests.support.debugger_files import DebuggerOutput, event, kernel, operator, sample, step
from tests.support.known_statistics import FIGURES, TABLE
from tests.support.printed import print_text
from tests.support.report_runs import JOB_S, two_gpus
from tests.support.shared_folder import SharedFolder

MS = 1_000
"""Microseconds."""


def shares(charts: list[UsageShares]) -> dict[str, dict[str, float | None]]:
    return {chart.title: {part.name: part.share_ratio for part in chart.parts} for chart in charts}


@pytest.mark.seed("DBI-02", "DBI-09")
def test_job_nodes_and_operators_of_a_known_job(known_path: Path) -> None:
    payload = show_usage(Run(open_run(known_path)))
    job = payload.job
    assert (job["Job name"], job["Status"], job["Machines"]) == (known_path.name, "Completed", "1")
    assert job["Job duration (s)"] == f"{JOB_S:,.2f}"
    assert job["Start time"] == "2021-12-26 02:26:57 UTC"
    rows = {row.metric: [getattr(row, figure) for figure in FIGURES] for row in payload.nodes}
    assert rows == {
        "Network": list(TABLE["network_bytes_per_s"]),
        "CPU": list(TABLE["cpu_percent"]),
        "CPU memory": list(TABLE["memory_percent"]),
        "I/O wait": list(TABLE["io_wait_percent"]),
    }
    assert payload.node_notes[0].startswith("algo-1: median CPU utilization")
    assert "The most expensive CPU operator was aten::conv2d with 19%." in payload.framework_notes


@pytest.mark.seed("DBI-09")
def test_debugger_files_have_modes_passes_and_operators_of_both_processors(tmp_path: Path) -> None:
    """Of 40 s, 24 s are steps of training, 8 s of evaluation; GPUs run kernels for a third of the
    time of operators."""
    output = DebuggerOutput(tmp_path / "profiler-output")
    for node, busy in (("algo-1", 20), ("algo-2", 90)):
        cores = [sample("CPUUtilization", "cpu0", 40, second=s, node=node) for s in range(40)]
        gpus = [sample("GPUUtilization", "gpu0", busy, second=s, node=node) for s in range(40)]
        output.system(node, cores + gpus)
    events = []
    for number in range(40):
        start = number * 1_000 * MS
        mode = "EVAL" if number % 4 == 3 else "TRAIN"
        events.append(step(number, start, 800 * MS, mode))
        if mode == "TRAIN":
            events.append(event("Forward-node", "Net_0", start, 200 * MS))
            events.append(event("Backward-node", "Net_0", start + 200 * MS, 600 * MS))
    events += [operator("aten::mm", 100 * MS, 60 * MS, step=0)]
    events += [kernel("volta_sgemm", 100 * MS, 30 * MS, step=0)]
    output.events("77-algo-1", events)
    payload = show_usage(output.imported(tmp_path / "run"))
    charts = shares(payload.framework)
    assert charts["Forward and backward"] == {
        "backward": pytest.approx(0.75, abs=0.01),
        "forward": pytest.approx(0.25, abs=0.01),
    }
    assert charts["Operators on the CPU and kernels on GPUs"] == {
        "CPU operators": pytest.approx(2 / 3, abs=1e-6),
        "GPU kernels": pytest.approx(1 / 3, abs=1e-6),
    }
    modes = charts["TRAIN, EVAL and others"]
    assert modes["TRAIN"] == pytest.approx(24 / 40, abs=0.02)
    assert modes["EVAL"] == pytest.approx(8 / 40, abs=0.02)
    assert "67% of the recorded time of operators and kernels is CPU operators." in (
        payload.framework_notes
    )
    first, second = payload.node_notes
    assert first == (
        "algo-1 is underutilized: p95 of GPU utilization 20.0%, of CPU utilization 40.0%. "
        "Consider a smaller machine."
    )
    assert second == "algo-2 is well utilized: median GPU utilization 90.0%."


@pytest.fixture(scope="module")
def gpus_path(shared_folder: SharedFolder) -> Path:
    return shared_folder.make("reported-gpus", two_gpus)


def test_sentences_and_shares_are_those_of_the_report(gpus_path: Path) -> None:
    run = Run(open_run(gpus_path))
    payload, sections = show_usage(run), make_report(run, choose_report_rules()).sections
    by_id: dict[str, Section] = {section.id: section for section in sections}
    (listing,) = [block for block in by_id["system"].blocks if isinstance(block, Listing)]
    assert payload.node_notes == listing.items
    drawn = [
        *by_id["framework"].blocks,
        *(b for s in by_id["framework"].sections for b in s.blocks),
    ]
    pies = [block for block in drawn if isinstance(block, Pie)]
    assert [(chart.title, chart.share_of) for chart in payload.framework] == [
        (pie.title, pie.share_of) for pie in pies
    ]
    assert shares(payload.framework) == {
        pie.title: {part.name: part.share_ratio for part in pie.slices} for pie in pies
    }


def test_findings_that_were_recorded_are_not_evaluated_again(
    gpus_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shutil.copytree(gpus_path, tmp_path / "run")
    evaluated = show_usage(Run(open_run(path)))
    checked = check_rules(open_run(path), choose_rules())
    record = RuleRecord(
        progress="ended", end_ns=checked.end_ns, scan_ns=1, written_ns=1, findings=checked.findings
    )
    with RunWriter(path, "node-0") as writer:
        writer.put_document("findings", RULES_DOCUMENT, record)
    monkeypatch.setattr("stepscope.rule_feed.check_rules", None)
    assert show_usage(Run(open_run(path))) == evaluated


def test_a_run_without_samples_steps_and_traces_says_what_is_missing(tmp_path: Path) -> None:
    payload = show_usage(Run(open_run(RunBuilder(tmp_path / "run").write())))
    assert (payload.nodes, payload.framework, payload.job_parts) == ([], [], None)
    assert any("stepscope run" in note for note in payload.node_notes)
    assert payload.framework_notes == []


def test_text(known_path: Path) -> None:
    text = print_text(VIEWS["usage"](Run(open_run(known_path))))
    assert "algo-1: median CPU utilization" in text
    assert "Forward and backward: backward 67%, forward 33%" in text
