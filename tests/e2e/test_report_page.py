"""The report's page in a real browser, from disk: drawn without an error or a request, and with the
numbers of its payload."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import msgspec
import pytest

from tests.support.boosted_runs import draw_boosted
from tests.support.report_runs import known_job, many_gpus

pytest.importorskip("playwright.sync_api")

from playwright.sync_api import Browser, Page

from stepscope.report.html import render_html
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing.browser import collect_problems
from stepscope.views.profiling_report import Report, Section, choose_report_rules, make_report
from stepscope.views.profiling_report.blocks import Cell, Chart, Table
from tests.support.browsed import IN_A_BROWSER
from tests.support.tiers import extend_all_but

EVIL = "<img src=x onerror=document.title='owned'></script><script>document.title='owned'</script>"
pytestmark = IN_A_BROWSER


@pytest.fixture(
    scope="module",
    params=extend_all_but({"known"}, ["known", "gpus", "boosted"], "the same page of other runs"),
)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    path = tmp_path_factory.mktemp(request.param) / "run"
    draw = {"known": known_job, "gpus": many_gpus, "boosted": lambda path: draw_boosted(path).path}
    return make_report(Run(open_run(draw[request.param](path))), choose_report_rules())


class Opened:
    """A page with everything that went wrong on it."""

    def __init__(self, browser: Browser, path: Path, report: Report, scheme: str = "light") -> None:
        path.write_text(render_html(report))
        self.page: Page = browser.new_page(color_scheme=scheme)  # type: ignore[arg-type]
        address = path.as_uri()
        self.problems = collect_problems(self.page, lambda request: request.url == address)
        self.page.goto(address)
        self.page.wait_for_selector("main footer")


@pytest.fixture
def opened(browser: Browser, report: Report, tmp_path: Path) -> Iterator[Opened]:
    opened = Opened(browser, tmp_path / "report.html", report)
    yield opened
    opened.page.close()
    assert not opened.problems


def every(sections: list[Section]) -> Iterator[Section]:
    for section in sections:
        yield section
        yield from every(section.sections)


def of(kind: type, report: Report) -> list:
    blocks = (block for section in every(report.sections) for block in section.blocks)
    return [block for block in blocks if isinstance(block, kind)]


def test_everything_is_drawn(opened: Opened, report: Report) -> None:
    page = opened.page
    headings = page.eval_on_selector_all("main h2, main h3, main h4", "all => all.map(h => h.id)")
    ids = [f"{section.id}-title" for section in every(report.sections)]
    assert [heading for heading in headings if heading in ids] == ids
    assert page.inner_text("#verdict-title") == report.verdict.headline
    charts = of(Chart, report)
    assert page.locator("figure").count() == len(charts)
    shown = page.locator("figure .chart svg, figure .chart canvas:first-child")
    assert shown.count() == len(charts)
    labels = page.eval_on_selector_all(
        ".chart", "all => all.map(c => c.getAttribute('aria-label'))"
    )
    for chart, label in zip(charts, labels, strict=True):
        assert chart.title in label


def as_shown(cell: Cell, digits: int | None) -> str:
    """Return a cell as the page shows it: a half is rounded up, as in decimal notation; what would
    be 0 has three significant digits."""
    if isinstance(cell, str) or cell is None:
        return cell or "n/a"
    step = Decimal(1).scaleb(-(digits or 0))
    rounded = Decimal(repr(cell)).quantize(step, ROUND_HALF_UP)
    return f"{rounded:,}" if rounded or not cell else f"{cell:.3g}"


def test_numbers_on_the_page_are_those_of_the_payload(opened: Opened, report: Report) -> None:
    tables = of(Table, report)
    shown = opened.page.eval_on_selector_all(
        ".blocks > .table table",
        "all => all.map(t => [...t.tBodies[0].rows]"
        ".map(r => [...r.cells].map(c => c.textContent)))",
    )
    assert len(shown) == len(tables)
    for table, rows in zip(tables, shown, strict=True):
        for cells, texts in zip(table.rows, rows, strict=True):
            for cell, column, text in zip(cells, table.columns, texts, strict=True):
                assert text == as_shown(cell, column.digits)


def test_tables_sort_by_click_and_by_key(opened: Opened) -> None:
    table = opened.page.locator("#rules table")
    header = table.locator("th").filter(has_text="Number of datapoints")
    header.get_by_role("button").focus()
    opened.page.keyboard.press("Enter")
    assert header.get_attribute("aria-sort") == "descending"
    cells = table.locator("tbody td:nth-child(4)").all_inner_texts()
    numbers = [int(cell.replace(",", "")) for cell in cells]
    assert numbers == sorted(numbers, reverse=True)
    header.get_by_role("button").click()
    assert header.get_attribute("aria-sort") == "ascending"


def test_a_chart_shows_its_numbers(opened: Opened) -> None:
    figure = opened.page.locator("#job figure.pie")
    assert figure.locator("table").count() == 0
    figure.locator("summary").click()
    assert "Training loop" in figure.locator("table").inner_text()
    box = figure.locator(".chart").bounding_box()
    assert box is not None
    ring = 0.51 * min(box["width"], box["height"]) / 2
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 0.45 * box["height"] + ring)
    figure.locator(".chart").get_by_text("% of the job's duration").wait_for()


def test_the_theme_follows_the_system_until_it_is_chosen(
    browser: Browser, report: Report, tmp_path: Path
) -> None:
    opened = Opened(browser, tmp_path / "report.html", report, scheme="dark")
    page = opened.page
    colour = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    dark = page.evaluate(colour)
    page.get_by_role("button", name="Light theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert page.evaluate(colour) != dark
    page.close()
    assert not opened.problems


def test_it_prints_in_light_on_paper(opened: Opened, tmp_path: Path) -> None:
    page = opened.page
    page.get_by_role("button", name="Dark theme").click()
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert not page.locator(".contents").is_visible()
    assert not page.locator(".tools").is_visible()
    wide = "[...document.querySelectorAll('main .table, main figure')].map(e => e.scrollWidth)"
    assert max(page.evaluate(wide)) <= 700
    for paper in page.locator(".print-copy canvas").all():
        assert paper.is_visible()
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert len(page.pdf()) > 50_000


def test_everything_is_reached_by_the_keyboard(opened: Opened) -> None:
    page = opened.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the verdict"
    unnamed = page.eval_on_selector_all(
        "button, a, [role=region], nav, [role=img]",
        "all => all.filter(e => !(e.textContent.trim() || e.getAttribute('aria-label'))).length",
    )
    assert unnamed == 0
    assert page.locator("[tabindex]:not([tabindex='0'])").count() == 0


def test_names_with_markup_stay_names(browser: Browser, report: Report, tmp_path: Path) -> None:
    text = msgspec.json.encode(report).decode()
    name = "algo-1" if "algo-1" in text else "node-0"
    evil = msgspec.json.decode(
        text.replace(name, msgspec.json.encode(EVIL).decode()[1:-1]), type=Report
    )
    evil = msgspec.structs.replace(evil, run_id=EVIL, command=EVIL, notes=[EVIL])
    opened = Opened(browser, tmp_path / "report.html", evil)
    page = opened.page
    page.locator("#system figure .chart").first.hover()
    assert page.locator("img").count() == 0
    assert "owned" not in page.evaluate("document.title").replace(EVIL, "")
    assert EVIL in page.locator("#system table").inner_text()
    page.close()
    assert not opened.problems
