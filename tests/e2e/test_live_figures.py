"""Figures of a job that still trains: they follow its newest data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api")

import stepscope
from stepscope.errors import NotARunError
from tests.support.browsed import IN_A_BROWSER, Ui, settled
from tests.support.under_stepscope import JOB_TIMEOUT_S, command_json, training
from tests.support.waiting import wait_until

pytestmark = [*IN_A_BROWSER, pytest.mark.extended("test_ui_live.py sees a job grow on the page")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Provide the run of a job that trains until the tests have ended."""
    directory = tmp_path_factory.mktemp("live")
    path = directory / "runs" / "job"
    path.parent.mkdir()
    with training(path, directory) as launcher:
        yield path
        (directory / "until").touch()
        launcher.communicate(timeout=JOB_TIMEOUT_S)


@pytest.fixture(scope="module")
def served(run: Path, serve: Callable[..., Ui]) -> Ui:
    wait_until((run / "tables" / "spans").is_dir, timeout_s=JOB_TIMEOUT_S)
    return serve(run.parent)


def sample_count(run: Path) -> int:
    try:
        histogram = stepscope.open(run).metrics_histogram("cpu_busy_ratio")
    except NotARunError:
        return 0
    return sum(series.histogram.count for series in histogram.series)


@pytest.mark.seed("DBU-04")
def test_histogram_of_a_growing_run(run: Path) -> None:
    first = wait_until(lambda: sample_count(run), timeout_s=JOB_TIMEOUT_S)
    wait_until(lambda: sample_count(run) > first, timeout_s=JOB_TIMEOUT_S)


@pytest.mark.seed("SMP-10")
def test_charts_of_a_growing_run(ui: Ui, run: Path) -> None:
    """Steps that came after the page was opened are on it, without a reload."""

    def step_count() -> int:
        steps = command_json("show", "timeline", run=run)["steps"]
        return max((len(rank["numbers"]) for rank in steps), default=0)

    wait_until(lambda: step_count() > 30, timeout_s=JOB_TIMEOUT_S)
    charts = ui.open("/overview?run=job#details")
    settled(charts)
    charts.evaluate("window.__opened = true")
    histogram = charts.get_by_test_id("step-histogram").get_by_role("img")
    before = histogram.get_attribute("aria-label")
    later = step_count() + 20
    wait_until(lambda: step_count() > later, timeout_s=JOB_TIMEOUT_S)
    wait_until(lambda: histogram.get_attribute("aria-label") != before, timeout_s=JOB_TIMEOUT_S)
    assert charts.evaluate("window.__opened")


@pytest.mark.seed("SMP-10")
def test_timeline_of_a_growing_run(ui: Ui) -> None:
    """A step that came after the page was opened can be shown, without a reload."""
    page = ui.open("/timeline?run=job")
    settled(page)
    page.evaluate("window.__opened = true")
    box = page.get_by_test_id("timeline-jump")

    def last_step() -> int:
        return int((box.count() and box.get_attribute("max")) or 0)

    later = last_step() + 20
    wait_until(lambda: last_step() >= later, timeout_s=JOB_TIMEOUT_S)
    box.fill(str(later))
    box.press("Enter")
    page.wait_for_url("**t0=**", timeout=1000 * JOB_TIMEOUT_S)
    assert page.evaluate("window.__opened")
