"""Targets of a fix on the page: with the verdict of the slow job, and reached by the fixed one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api")

from playwright.sync_api import expect

from stepscope.testing import RunBuilder
from stepscope.testing.browser import chromium
from tests.support.browsed import IN_A_BROWSER, Ui, assert_accessible, settled
from tests.support.under_stepscope import serving

pytestmark = [
    *IN_A_BROWSER,
    pytest.mark.extended(
        "test_ui_pages.py draws these screens; targets are in tests/unit/comparison"
    ),
]
JOBS = {
    "slow": ("wait 600 | forward 120 | backward 200 | optimizer 80", 0.4),
    "fixed": ("wait 50 | forward 300 | backward 480 | optimizer 170", 0.88),
}
"""Steps of one second, and the utilization of the GPU; the fixed job waits for 5% of each."""
STEPS = 520
"""More samples are taken than LowGPUUtilization skips."""


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    root: Path = tmp_path_factory.mktemp("jobs")
    for name, (step, gpu) in JOBS.items():
        run = RunBuilder(root / name)
        run.rank(workers=2).draw(step, STEPS)
        run.metric("gpu_busy_ratio", gpu, device="0").write()
    with serving(str(root), "--port", "0") as (address, _), chromium() as browser:
        served = Ui(root, address, browser)
        yield served
        served.settle()


@pytest.mark.seed("DIAG-08")
def test_the_verdict_states_what_to_expect_after_the_fix(ui: Ui) -> None:
    page = ui.open("/overview?run=slow")
    settled(page)
    verdict = page.locator("#verdict")
    expect(verdict.get_by_role("heading", name="Expected after the fix")).to_be_visible()
    expect(verdict).to_contain_text("GPU utilization of 85% to 90% while training")
    page = ui.open("/overview?run=fixed")
    settled(page)
    expect(page.get_by_role("heading", name="Expected after the fix")).to_have_count(0)


@pytest.mark.seed("DIAG-08")
def test_the_comparison_says_which_targets_are_reached(ui: Ui) -> None:
    page = ui.open("/compare?run=fixed&with=slow")
    settled(page)
    rows = page.get_by_test_id("table-compare-targets").locator("tbody tr")
    cells = [row.locator("td, th").all_inner_texts() for row in rows.all()]
    assert [row[1:] for row in cells] == [
        ["yes", "40%", "88%"],
        ["yes", "60%", "5%"],
        ["yes", "issues found by 2 of 2", "issues found by 0 of 2"],
    ]
    assert_accessible(page)
