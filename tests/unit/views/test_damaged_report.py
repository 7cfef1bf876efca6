"""Reports on runs of which one table after the other is truncated."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.rule_feed import UNREADABLE_INPUTS
from stepscope.run import Run
from stepscope.schema import RuleStatus
from stepscope.store import open_run
from stepscope.views import VIEWS
from stepscope.views.job.insights import InsightsView
from stepscope.views.options import UNREADABLE
from stepscope.views.profiling_report import (
    Block,
    Report,
    ReportFacts,
    Section,
    choose_report_rules,
    make_report,
    make_report_facts,
)
from stepscope.views.profiling_report.blocks import Boxes, Heatmap, Listing, Pie, Table, Text
from tests.support.report_runs import JOB_S, known_job, two_gpus
from tests.support.shared_folder import SharedFolder

PERCENTAGE = re.compile(r"\d%")
WITHHELD_SECTIONS = {
    "metrics": {"system", "gpu-usage", "batch-size", "cpu-bottlenecks"},
    "spans": {"job", "framework", "steps", "dataloading"},
    "operators": {"framework", "cpu-operators"},
    "traces": {"job", "framework", "cpu-operators"},
}
"""Sections with shares of a table, where the run has any; others may have some as well."""
FIRST, ALL = slice(0, 1), slice(None)
"""Segments of a table."""


RUNS = {"known": known_job, "gpus": two_gpus}
OTHERS = pytest.mark.extended("other tables are truncated")
TRUNCATED = [
    ("known", "metrics", FIRST),
    ("known", "spans", FIRST),
    ("gpus", "spans", ALL),
    pytest.param("gpus", "metrics", ALL, marks=OTHERS),
    pytest.param("known", "operators", ALL, marks=OTHERS),
    pytest.param("known", "traces", ALL, marks=OTHERS),
]
"""A run, a table of it, and the truncated segments."""
UNRELATED = {"job", "framework", "steps", "dataloading"}
"""Sections that do not read metrics."""


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest, shared_folder: SharedFolder) -> Path:
    name = getattr(request, "param", "known")
    return shared_folder.make(f"reported-{name}", RUNS[name])


@pytest.fixture(scope="module")
def without_samples(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy a run with a truncated segment of its metrics."""
    damaged = tmp_path_factory.mktemp("damaged") / "run"
    truncate(run, damaged, "metrics", FIRST)
    return damaged


@pytest.fixture(scope="module")
def facts(without_samples: Path) -> ReportFacts:
    return build_facts(without_samples)


@pytest.fixture(scope="module")
def healthy(run: Path) -> dict[str, Section]:
    return sections_by_id(build_report(run))


def build_report(path: Path) -> Report:
    return make_report(Run(open_run(path)), choose_report_rules())


def build_facts(path: Path) -> ReportFacts:
    return make_report_facts(Run(open_run(path)), choose_report_rules())


def walk_sections(sections: list[Section]) -> Iterator[Section]:
    for section in sections:
        yield section
        yield from walk_sections(section.sections)


def sections_by_id(report: Report) -> dict[str, Section]:
    return {section.id: section for section in walk_sections(report.sections)}


def truncate(run: Path, copy: Path, table: str, part: slice) -> list[Path]:
    """Truncate segments of a table in a copy of a run; returns them."""
    shutil.copytree(run, copy)
    segments = sorted((copy / "tables").glob(f"{table}/*/*.parquet"))[part]
    for segment in segments:
        segment.write_bytes(segment.read_bytes()[: segment.stat().st_size // 2])
    return segments


def list_texts(section: Section) -> list[str]:
    texts = [block.text for block in section.blocks if isinstance(block, Text)]
    return texts + [
        item for block in section.blocks if isinstance(block, Listing) for item in block.items
    ]


def shows_shares(block: Block) -> bool:
    if isinstance(block, Table):
        is_percent = any(column.unit == "%" for column in block.columns)
        cells = [cell for row in block.rows for cell in row if isinstance(cell, str)]
        return is_percent or any(cell == "percent" or cell.endswith("(%)") for cell in cells)
    return isinstance(block, Pie | Boxes | Heatmap)


def has_shares(section: Section) -> bool:
    is_stated = any(PERCENTAGE.search(text) for text in list_texts(section))
    return is_stated or any(shows_shares(block) for block in section.blocks)


@pytest.mark.parametrize(("run", "table", "part"), TRUNCATED, indirect=["run"], scope="module")
def test_a_section_shows_no_shares_of_a_truncated_table(
    run: Path, healthy: dict[str, Section], tmp_path: Path, table: str, part: slice
) -> None:
    segments = truncate(run, tmp_path / "run", table, part)
    report = build_report(tmp_path / "run")
    assert any(segments[0].name in note for note in report.notes)
    sections = sections_by_id(report)
    withheld = {name for name, before in healthy.items() if sections.get(name) != before}
    for name in withheld & {*sections}:
        assert not has_shares(sections[name]), name
    with_shares = {name for name, section in healthy.items() if has_shares(section)}
    assert with_shares & WITHHELD_SECTIONS[table] <= withheld
    assert table != "metrics" or not withheld & UNRELATED
    for name in with_shares & withheld & {*sections}:
        texts = list_texts(sections[name])
        assert any("cannot be read" in text for text in texts), (name, texts)
        assert not any("stepscope run" in text for text in texts), (name, texts)


def test_rules_that_read_a_truncated_table_have_no_figures(run: Path, facts: ReportFacts) -> None:
    before = build_facts(run).rules
    assert facts.damage
    withheld = {name for name, item in facts.rules.items() if item.missing == UNREADABLE_INPUTS}
    assert {"OverallSystemUsage", "LowGPUUtilization", "CPUBottleneck"} <= withheld
    for name, finding in facts.rules.items():
        if name in withheld:
            assert (finding.details, finding.sentences) == ({}, [])
            assert finding.status is not RuleStatus.NO_ISSUES_FOUND
        else:
            assert finding == before[name]


@pytest.mark.extended("makes two reports; other pages withhold theirs alike")
def test_the_page_of_the_rules_withholds_the_same_figures(
    without_samples: Path, facts: ReportFacts
) -> None:
    payload = VIEWS["insights"](Run(open_run(without_samples)))
    assert isinstance(payload, InsightsView)
    shown = {insight.rule: insight for insight in payload.rules}
    for name, finding in facts.rules.items():
        assert (shown[name].details, shown[name].sentences) == (finding.details, finding.sentences)
        if finding.missing == UNREADABLE_INPUTS:
            assert shown[name].missing == UNREADABLE


def test_parts_of_the_job_are_unknown_without_all_of_its_steps(run: Path, tmp_path: Path) -> None:
    truncate(run, tmp_path / "run", "spans", FIRST)
    job = build_facts(tmp_path / "run").summary
    assert job.duration_ns == JOB_S * 10**9
    assert (job.initialization_ns, job.training_ns, job.finalization_ns) == (None, None, None)
