"""Report payload: sections, figures, and reasons for missing data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from stepscope.rules.profiler import RULES
from stepscope.run import Run
from stepscope.schema import RuleStatus
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.views.profiling_report import (
    Block,
    Report,
    Section,
    choose_report_rules,
    make_report,
    make_report_facts,
)
from stepscope.views.profiling_report.blocks import (
    Boxes,
    Check,
    Heatmap,
    Histogram,
    Listing,
    Pie,
    Table,
    Text,
)
from tests.support.known_statistics import FIGURES, OPERATORS, TABLE
from tests.support.report_runs import JOB_S, RunFiles, many_gpus


def build_report(path: Path, *rules: str, settings: tuple[str, ...] = ()) -> Report:
    return make_report(Run(open_run(path)), choose_report_rules(rules, settings=settings))


def walk_sections(sections: list[Section]) -> Iterator[Section]:
    for section in sections:
        yield section
        yield from walk_sections(section.sections)


def section(report: Report, name: str) -> Section:
    return next(item for item in walk_sections(report.sections) if item.id == name)


def blocks(report: Report) -> list[Block]:
    return [block for item in walk_sections(report.sections) for block in item.blocks]


def select_blocks(kind: type, part: Section) -> list:
    return [block for block in part.blocks if isinstance(block, kind)]


def text(part: Section) -> str:
    sentences = [b.text for b in part.blocks if isinstance(b, Text)]
    sentences += [item for b in select_blocks(Listing, part) for item in b.items]
    return " ".join(sentences)


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return build_report(many_gpus(tmp_path_factory.mktemp("gpus") / "run"))


# --- sections -------------------------------------------------------------------------------------

ORDER = ["job", "job-time", "system", "framework", "rules", "training"]
LOOP = [
    "steps",
    "gpus",
    "dataloading",
    "batch-size",
    "cpu-bottlenecks",
    "io-bottlenecks",
    "gpu-memory",
    "further",
]


def test_sections_are_complete_and_in_order(known_report: Report, gpus: Report) -> None:
    for report in (known_report, gpus):
        assert [item.id for item in report.sections] == ORDER
        assert [item.id for item in section(report, "training").sections] == LOOP
        framework = [item.id for item in section(report, "framework").sections]
        assert framework == ["cpu-operators", "gpu-operators", "collectives"]
        assert [item.id for item in section(report, "gpus").sections] == ["gpu-usage", "balance"]


def test_rules_have_a_check_except_those_that_summarize(known_report: Report) -> None:
    checks = [block.rule for block in blocks(known_report) if isinstance(block, Check)]
    assert sorted(checks) == sorted(
        rule.__name__ for rule in RULES if not rule.__name__.startswith("Overall")
    )


def test_shares_name_their_total(known_report: Report, gpus: Report) -> None:
    for block in [*blocks(known_report), *blocks(gpus)]:
        if isinstance(block, Pie):
            assert block.share_of
            assert sum(part.share_ratio for part in block.slices) == pytest.approx(1, abs=1e-4)
        if isinstance(block, Table) and any(column.unit == "%" for column in block.columns):
            assert block.share_of


@pytest.mark.seed("DBR-04")
def test_long_initialization_has_a_section(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank(0).pause(25 * 60_000).draw("forward 300 | backward 500 | optimizer 100", 120)
    run.metric("cpu_busy_ratio", 0.5)
    report = build_report(run.write())
    assert [item.id for item in report.sections] == [*ORDER[:5], "initialization", "training"]
    assert "First training step after 25 min" in text(section(report, "initialization"))
    assert "longer than training" in text(section(report, "job"))


# --- the numbers of the known report --------------------------------------------------------------


@pytest.mark.seed("DBR-04")
def test_the_job(known_report: Report) -> None:
    job = section(known_report, "job")
    assert "2021-12-26 at 02:26:57 UTC" in text(job)
    assert "ran for 30 min 2 s" in text(job)


@pytest.mark.seed("DBR-05")
def test_the_system_table(known_report: Report) -> None:
    [table] = select_blocks(Table, section(known_report, "system"))
    assert [column.label for column in table.columns] == ["node", "metric", "unit", *FIGURES]
    expected = ("network_bytes_per_s", "cpu_percent", "memory_percent", "io_wait_percent")
    assert [row[3:] for row in table.rows] == [list(TABLE[row]) for row in expected]
    assert [row[1] for row in table.rows] == ["Network", "CPU", "CPU memory", "I/O wait"]
    assert "p95 68.2%" in text(section(known_report, "system"))
    assert "No GPU was sampled on algo-1" in text(section(known_report, "system"))


@pytest.mark.seed("DBR-07")
def test_the_operators(known_report: Report) -> None:
    operators = section(known_report, "cpu-operators")
    [table] = select_blocks(Table, operators)
    assert [[row[3], row[2], row[1]] for row in table.rows] == [
        [name, us, percent] for name, (us, percent) in OPERATORS.items()
    ]
    assert "most expensive CPU operator was aten::conv2d with 19%" in text(operators)
    assert [part.name for part in select_blocks(Pie, operators)[0].slices] == list(OPERATORS)


@pytest.mark.seed("DBR-08")
def test_the_rules(known_report: Report) -> None:
    [table] = select_blocks(Table, section(known_report, "rules"))
    rows_by_rule = {row[0]: row for row in table.rows}
    assert [row[0] for row in table.rows][:2] == ["StepOutlier", "Dataloader"]
    figures = {name: (row[2], row[3]) for name, row in rows_by_rule.items()}
    assert figures["StepOutlier"] == (15, 2111)
    assert figures["Dataloader"] == (1, 118)
    assert figures["CPUBottleneck"] == figures["IOBottleneck"] == (0, 3608)
    assert figures["BatchSize"] == (0, 3605)
    assert figures["MaxInitializationTime"] == (0, 2111)
    for rule in ("LowGPUUtilization", "LoadBalancing", "GPUMemoryIncrease"):
        assert figures[rule] == (0, 0)
    assert not {"OverallSystemUsage", "OverallFrameworkMetrics"} & rows_by_rule.keys()
    assert "StepOutlier triggered most often: 15 times for 2,111 datapoints." in text(
        section(known_report, "rules")
    )


@pytest.mark.seed("DBR-09")
def test_the_steps(known_report: Report) -> None:
    steps = section(known_report, "steps")
    [table] = select_blocks(Table, steps)
    assert table.title == "Step durations in [s]"
    assert [round(number, 2) for number in table.rows[0][1:7]] == [
        0.68,
        2.53,
        0.86,
        0.80,
        0.67,
        0.36,
    ]
    assert table.rows[0][7:] == [11, 2111]
    assert "11 steps took longer than 1.07 s" in text(steps)
    assert "standard deviations of 129 ms" in text(steps)
    [check] = select_blocks(Check, steps)
    assert (check.triggered, check.violations, check.datapoints) == (15, 11, 2111)
    assert check.last_at is not None
    durations, normal = select_blocks(Histogram, steps)
    assert sum(durations.series[0].counts) + durations.series[0].above_count == 2111
    assert sum(normal.series[0].counts) == 2100


@pytest.mark.seed("DBR-12")
def test_loading(known_report: Report) -> None:
    loading = section(known_report, "dataloading")
    [histogram] = select_blocks(Histogram, loading)
    marks = {mark.name: mark.value for mark in histogram.marks}
    assert marks["p25"] == pytest.approx(27.3181, rel=1e-4)
    assert marks["p50"] == pytest.approx(28.4398, rel=1e-4)
    assert marks["p95"] == pytest.approx(163.573, rel=1e-4)
    assert sum(histogram.series[0].counts) == 118
    assert "4 loader processes for 8 available cores" in text(loading)
    assert "pin_memory=True" in text(loading)


def test_job_without_gpus_names_the_missing_data(known_report: Report) -> None:
    for name in ("gpu-usage", "balance", "batch-size", "cpu-bottlenecks", "gpu-memory"):
        part = section(known_report, name)
        assert any(block.tone == "missing" for block in select_blocks(Text, part))
        assert not [b for b in part.blocks if isinstance(b, Pie | Boxes | Histogram)]
    assert "stepscope capture RUN" in text(section(known_report, "gpu-operators"))


# --- a job with GPUs ------------------------------------------------------------------------------


@pytest.mark.seed("DBR-10", "DBR-11", "DBR-13")
def test_gpus_have_boxes_and_histograms(gpus: Report) -> None:
    usage = select_blocks(Boxes, section(gpus, "gpu-usage"))
    assert [chart.title for chart in usage] == [
        "GPU utilization of node-0",
        "GPU utilization of node-1",
    ]
    assert list(usage[0].boxes) == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]
    for box in usage[0].boxes.values():
        assert box.min <= box.whisker_low <= box.p25 <= box.p50 <= box.p75 <= box.whisker_high
    balance = section(gpus, "balance")
    assert sum(select_blocks(Histogram, balance)[0].series[0].counts) == 3000
    distances = [row[2] for row in select_blocks(Table, balance)[0].rows]
    assert distances == sorted(distances, reverse=True)
    assert select_blocks(Table, balance)[0].more == "and 8 more pairs with smaller distances"
    boxes = select_blocks(Boxes, section(gpus, "batch-size"))[0]
    assert next(iter(boxes.boxes)) == "CPU"
    assert [mark.name for mark in boxes.marks] == ["p95 of CPU, GPU, memory"]


@pytest.mark.seed("DBP-13", "DBR-14")
def test_bottlenecks_are_shares_of_all_snapshots(gpus: Report) -> None:
    bottlenecks = section(gpus, "cpu-bottlenecks")
    pies = select_blocks(Pie, bottlenecks)
    assert pies[0].share_of == "all 6,000 snapshots"
    assert len(pies) == 4
    assert {slice_.name: slice_.share_ratio for slice_ in pies[1].slices} == pytest.approx(
        {"TRAIN": 0.5, "others": 0.5}, abs=1e-3
    )


def test_heat_map_shows_gpus_first(gpus: Report) -> None:
    heat = select_blocks(Heatmap, section(gpus, "system"))
    assert len(heat) == 2
    names = [row.name for row in heat[0].rows]
    assert names[0] == "GPU 0 utilisation"
    assert names.index("GPU 0 memory") < names.index("core 0") < names.index("memory")
    assert {len(row.shade_ratio) for row in heat[0].rows} == {240}
    [cpu] = [row for row in heat[0].rows if row.name == "core 0"]
    assert np.mean([value for value in cpu.shade_ratio if value is not None]) == pytest.approx(
        0.85, abs=0.02
    )


# --- limits, running jobs, selected rules ---------------------------------------------------------


@pytest.mark.extended("a large run; the width of heat maps is tested with eight GPUs")
def test_report_of_hours_on_64_gpus_is_small(tmp_path: Path) -> None:
    """Charts have as many points as those of a short run: only the number of devices counts."""
    many_gpus(tmp_path / "run", nodes=8, gpus=8, seconds=6 * 3600, every_s=60)
    report = build_report(tmp_path / "run")
    size = len(msgspec.json.encode(report))
    assert size < 2_000_000
    assert (
        max(
            len(row.shade_ratio) for b in blocks(report) if isinstance(b, Heatmap) for row in b.rows
        )
        <= 240
    )
    [table] = select_blocks(Table, section(report, "steps"))
    assert len(table.rows) == 64
    over = next(
        b for b in select_blocks(Histogram, section(report, "steps")) if b.title.endswith("by rank")
    )
    assert len(over.series) == 16
    assert over.more == "and 48 more ranks"


def test_report_of_a_running_job_states_the_end_of_its_data(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run")
    run.node("n0", cores=2, seconds=100, done=False)
    run.samples("n0", {("cpu_busy_ratio", ""): np.full(200, 0.5)})
    report = build_report(tmp_path / "run")
    assert report.in_progress
    assert report.until == "2021-12-26 02:28:36 UTC"
    assert "has run for 100 s" in text(section(report, "job"))
    assert "stepscope recover" in report.notes[0]  # its last heartbeat is years old
    checks = {b.rule: b.status for b in blocks(report) if isinstance(b, Check)}
    assert set(checks.values()) == {RuleStatus.IN_PROGRESS}


def test_empty_run_has_all_sections_and_no_zeros(tmp_path: Path) -> None:
    report = build_report(RunBuilder(tmp_path / "run").write())
    assert [item.id for item in report.sections] == ORDER
    assert not [b for b in blocks(report) if isinstance(b, Pie | Histogram | Boxes | Heatmap)]
    assert "no training step was recorded" in text(section(report, "job"))
    assert "stepscope run" in text(section(report, "system"))


def test_report_of_selected_rules(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank(0).draw("forward 300 | backward 500 | optimizer 100", 120)
    run.metric("cpu_busy_ratio", 0.5)
    settings = ("StepOutlier.stddev=2",)
    report = build_report(run.write(), "StepOutlier", settings=settings)
    assert [row[0] for row in select_blocks(Table, section(report, "rules"))[0].rows] == [
        "StepOutlier"
    ]
    [check] = select_blocks(Check, section(report, "steps"))
    assert check.parameters["stddev"] == "2"
    assert "it was not selected" in text(section(report, "dataloading"))
    assert select_blocks(
        Table, section(report, "system")
    )  # rules that summarize are always evaluated


def test_failed_rule_is_reported_in_its_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = choose_report_rules()
    broken = next(rule for rule in rules if rule.name == "Dataloader")
    monkeypatch.setattr(type(broken), "decide", lambda self, state: 1 / 0)
    report = make_report(Run(open_run(RunBuilder(tmp_path / "run").write())), rules)
    [check] = select_blocks(Check, section(report, "dataloading"))
    assert check.status is RuleStatus.ERROR
    assert "Dataloader failed: ZeroDivisionError" in text(section(report, "dataloading"))


# --- for machines ---------------------------------------------------------------------------------


def test_facts_use_the_names_of_debugger(known_path: Path) -> None:
    facts = make_report_facts(Run(open_run(known_path)), choose_report_rules())
    payload = msgspec.json.decode(msgspec.json.encode(facts))
    assert payload["summary"]["duration_ns"] == JOB_S * 10**9
    outlier = payload["rules"]["StepOutlier"]
    assert outlier["RuleTriggered"] == 15
    assert outlier["Violations"] == 11
    assert outlier["Datapoints"] == 2111
    assert outlier["RuleParameters"].splitlines()[0] == "stddev:3"
    assert outlier["Details"]["ranks"]
    assert payload["verdict"]["headline"]
    assert list(payload["rules"]) == [rule.__name__ for rule in RULES]
