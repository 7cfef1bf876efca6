"""Every screen, tab and view in both colour schemes, and its tables at the width of a laptop."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

pytest.importorskip("playwright.sync_api")

from playwright.sync_api import Page, expect

from stepscope.quantities import percent
from tests.support.browsed import IN_A_BROWSER, SCREENS, Ui, assert_drawn, screen, settled
from tests.support.ui_runs import ALL_REDUCE, runs_below
from tests.support.under_stepscope import command_json
from tests.support.waiting import wait_until

pytestmark = [
    *IN_A_BROWSER,
    pytest.mark.extended("screens that test_ui_pages.py draws, in the dark and of another run"),
]
TRACES, JOB = "training/fixed", "training/job"
OF_BOTH = [(name, {"with": TRACES} if name == "compare" else {}) for name in SCREENS]
TABS = [
    *(("gpu", {"tab": tab}) for tab in ("metrics", "idle", "launches", "activity")),
    ("critical-path", {"tab": "what-if"}),
    ("quality", {}),
    ("recordings", {}),
]
PATHS = [
    "/",
    "/fleet",
    *(screen(name, JOB, **values) for name, values in OF_BOTH),
    *(screen(name, TRACES, **values) for name, values in (*OF_BOTH, *TABS)),
]


@pytest.fixture(scope="module")
def served(serve: Callable[..., Ui], tmp_path_factory: pytest.TempPathFactory) -> Ui:
    return serve(runs_below(tmp_path_factory.mktemp("runs")))


@pytest.mark.parametrize("path", PATHS)
def test_it_is_drawn_and_accessible_in_light_and_dark(ui: Ui, path: str) -> None:
    page = ui.open(path)
    assert_drawn(page)
    page.emulate_media(color_scheme="dark")
    assert_drawn(page, only_colors=True)


CUT = """() => [...document.querySelectorAll('main .rows')].flatMap(table => {
    const isCut = part => part.scrollWidth > part.clientWidth + 1 && part.clientWidth > 0;
    const cells = [...table.querySelectorAll('td:not(.long-name), th')];
    const parts = cells.flatMap(cell => [cell, ...cell.querySelectorAll('.name')]);
    return [table, ...parts].filter(isCut).map(part => part.innerText.slice(0, 80));
})"""
"""Tables that scroll sideways, and cells whose text is cut; long names have a title."""
LAPTOP = {"width": 1440, "height": 900}


def table(page: Page, testid: str) -> tuple[list[str], str]:
    """Return the headings of a table, and the title of the name in its first row."""
    headings = page.get_by_test_id(testid).locator("thead th").all_inner_texts()
    name = page.get_by_test_id(testid).locator("tbody .long-name").first
    return headings, name.locator("[title]").first.get_attribute("title") or ""


@pytest.mark.parametrize(
    ("name", "testid"),
    [
        ("kernels", "table-kernels"),
        ("operators", "table-operators"),
        ("modules", "table-modules"),
        ("annotations", "table-annotations"),
        ("memory", None),
        ("gpu?tab=metrics", "table-gpu-metrics"),
        ("gpu?tab=launches", None),
        ("critical-path", "table-path"),
        ("critical-path?tab=what-if", None),
        ("recordings", None),
    ],
)
def test_tables_show_numbers_first_and_cut_nothing(ui: Ui, name: str, testid: str | None) -> None:
    screen_name, _, tab = name.partition("?tab=")
    page = ui.open(screen(screen_name, TRACES, **({"tab": tab} if tab else {})))
    page.set_viewport_size(LAPTOP)  # type: ignore[arg-type]
    settled(page)
    expect(page.locator("main .rows").first).to_be_visible()
    assert page.evaluate(CUT) == []
    if testid is not None:
        headings, title = table(page, testid)
        assert re.match("(?i)kernel|operator|module|name", headings[-1])
        assert title


STORED = f"""async () => {{
    const response = await fetch('/api/name?run={JOB}');
    return Boolean((await response.json()).headline);
}}"""
"""True once the server has stored the verdict of the run that is open, in the background."""


def test_the_verdict_leads_from_every_screen_to_the_overview(ui: Ui) -> None:
    page = ui.open(screen("timeline", JOB))
    verdict = command_json("show", "overview", run=ui.root / JOB)["verdict"]
    line = page.get_by_test_id("verdict-line")
    wait_until(lambda: page.evaluate(STORED))
    page.get_by_role("navigation").get_by_role("link", name="System").click()
    share, cause = percent(verdict["share_ratio"]), verdict["cause"].replace("_", " ")
    expect(line).to_have_text(f"Bottleneck: data pipeline, {share} of step time: {cause}.")
    line.click()
    expect(page.get_by_test_id("verdict-headline")).to_contain_text(verdict["headline"][:40])
    expect(line).to_have_count(0)


def test_details_are_beside_the_table_with_the_full_name(ui: Ui) -> None:
    page = ui.open(screen("kernels", TRACES))
    page.set_viewport_size(LAPTOP)  # type: ignore[arg-type]
    settled(page)
    row = page.get_by_test_id("table-kernels").locator("tbody tr").filter(has_text="nccl")
    expect(row.locator(".long-name")).to_have_text("ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    row.get_by_role("button").click()
    details = page.locator(".selection-panel")
    expect(details).to_contain_text(ALL_REDUCE)
    table_box = page.get_by_test_id("table-kernels").bounding_box()
    box = details.bounding_box()
    assert table_box is not None
    assert box is not None
    assert box["x"] >= table_box["x"] + table_box["width"]
    assert box["y"] < table_box["y"] + table_box["height"]


def test_definitions_are_behind_a_question_mark(ui: Ui) -> None:
    page = ui.open(screen("kernels", TRACES))
    settled(page)
    definition = page.get_by_test_id("table-kernels").locator(".definition-text")
    expect(definition).to_be_hidden()
    page.get_by_role("button", name="Definition: Kernels", exact=True).click()
    expect(definition).to_be_visible()
    expect(definition).to_contain_text("Shares are of")
