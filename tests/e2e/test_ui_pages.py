"""The web UI in a real browser: every screen, the main ways through it, its numbers."""

from __future__ import annotations

import json
import re
import shutil
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("playwright.sync_api")

from playwright.sync_api import Page, Route, expect

from stepscope.quantities import duration, percent
from stepscope.testing import RunBuilder
from tests.support.browsed import (
    IN_A_BROWSER,
    SCREENS,
    Ui,
    assert_drawn,
    cells,
    drawn,
    screen,
    settled,
)
from tests.support.kineto_files import kernel, launch, op, trace
from tests.support.tiers import extend_all_but
from tests.support.ui_runs import (
    ALL_REDUCE,
    FIRST_STEP,
    SLOWEST,
    SLOWEST_NS,
    STEPS,
    imported,
    runs_below,
)
from tests.support.under_stepscope import bearer_of, command_json

pytestmark = IN_A_BROWSER
in_detail = pytest.mark.extended("a screen in detail; the ways through the page are in other tests")
TRACES, JOB, HOSTILE = "training/fixed", "training/job", "hostile"


@pytest.fixture(scope="module")
def served(serve: Callable[..., Ui], tmp_path_factory: pytest.TempPathFactory) -> Ui:
    return serve(runs_below(tmp_path_factory.mktemp("runs")))


@pytest.mark.seed("DBI-01")
@pytest.mark.parametrize("name", SCREENS)
def test_every_screen_is_drawn_and_accessible(ui: Ui, name: str) -> None:
    assert_drawn(ui.open(screen(name, TRACES, **{"with": TRACES} if name == "compare" else {})))


@pytest.mark.seed("SMP-09")
def test_list_of_jobs_leads_to_runs(ui: Ui) -> None:
    page = ui.open("/")
    rows = page.locator('[data-testid="table-jobs"] tbody tr')
    expect(rows).to_have_count(3)
    page.get_by_role("searchbox").first.fill("hostile")
    expect(rows).to_have_count(1)
    page.get_by_role("searchbox").first.fill("")
    page.locator(f'main a[href*="run={quote(JOB, safe="")}"]').first.click()
    expect(page).to_have_url(f"{ui.address}/overview?run={quote(JOB, safe='')}")
    expect(page.get_by_test_id("verdict-headline")).to_be_visible()


def shown(ui: Ui, run: str, view: str, **options: object) -> Any:
    """Return the output of `stepscope show RUN VIEW --json`."""
    flags = [part for key, value in options.items() for part in (f"--{key}", str(value))]
    return command_json("show", view, *flags, run=ui.root / run)


def share(ratio: float) -> str:
    """Return a share as tables of the page write it."""
    return percent(ratio, 1)


@pytest.mark.seed("SMP-15", "PTP-04", "PTP-05")
@pytest.mark.parametrize(
    ("view", "testid", "rows_of", "columns"),
    [
        (
            "kernels",
            "table-kernels",
            "kernels",
            {"total": ("total_ns", duration), "share": ("share_ratio", share)},
        ),
        (
            "operators",
            "table-operators",
            "operators",
            {"host self": ("host_self_ns", duration), "host total": ("host_total_ns", duration)},
        ),
    ],
)
def test_numbers_on_the_page_are_those_of_the_payload(
    ui: Ui, view: str, testid: str, rows_of: str, columns: dict[str, Any]
) -> None:
    payload = shown(ui, TRACES, view)["traces"][0][rows_of]
    page = ui.open(screen(view, TRACES))
    settled(page)
    headings, rows = cells(page, testid)
    assert len(rows) == len(payload) > 2
    for row, expected in zip(rows, payload, strict=True):
        assert row[-1].replace("\n", "") in expected["name"]  # the middle of long names gives way
        for heading, (field, written) in columns.items():
            assert row[headings.index(heading)].split("\n")[-1] == written(expected[field])


@in_detail
def test_fixes_say_what_they_would_save(ui: Ui) -> None:
    run = RunBuilder(ui.root / "fed")
    process = run.rank(workers=1).draw("wait=0 60 | forward 20 | backward 15 | optimizer 5", 60)
    process.workers[0].draw("fetch 100", 60)
    run.metric("job_cpu_cores", 1.4).metric("outside_cpu_cores", 0).write()
    try:
        fixes = shown(ui, "fed", "overview")["verdict"]["fixes"]
        page = ui.open(screen("overview", "fed"))
        lines = page.locator(".fix-rows > li, .fixes li")
        expect(lines).to_have_count(len(fixes))
        written = lines.all_text_contents()
        page.close()
    finally:
        shutil.rmtree(run.path)
    assert fixes[0]["prediction"]["step_ns"] == pytest.approx(40e6)  # all the waiting is gone
    for fix, line in zip(fixes, written, strict=True):
        assert line.startswith(fix["title"])
        assert f"Predicted {fix['prediction']['text']}." in line


def test_api_answers_what_show_prints(ui: Ui) -> None:
    for view in ("overview", "gpu-time", "distributed", "timeline"):
        query = f"{ui.address}/api/views/{view}?run={quote(TRACES)}"
        request = urllib.request.Request(query, headers=bearer_of(ui.printed_address))
        with urllib.request.urlopen(request) as answer:
            texts = [answer.read(), json.dumps(shown(ui, TRACES, view))]  # with addresses
        api, printed = (
            json.loads(text, object_hook=lambda item: item | {"at": 0}) for text in texts
        )
        assert api == printed


@pytest.mark.seed("SMP-27", "SMP-28", "PTP-06")
def test_slowest_kernel_is_found_and_followed_to_the_timeline(ui: Ui) -> None:
    page = ui.open(screen("kernels", TRACES))
    settled(page)
    assert cells(page, "table-kernels")[1][0][-1] == SLOWEST
    page.locator('[data-testid="table-kernels"] tbody tr').first.click()
    page.get_by_role("link", name="timeline").last.click()
    count = page.get_by_test_id("timeline-match-count")
    expect(count).to_contain_text(f"{2 * STEPS} matches")
    box = page.get_by_test_id("timeline-search")
    box.press("Enter")
    details = page.get_by_test_id("timeline-details")
    expect(details).to_contain_text(SLOWEST)
    expect(details).to_contain_text(duration(SLOWEST_NS))
    # Along the arrow, to the call that launched it.
    details.get_by_role("button", name="cudaLaunchKernel").first.click()
    expect(details).to_contain_text("cudaLaunchKernel")
    expect(page.get_by_test_id("timeline-status")).to_contain_text("cudaLaunchKernel")


@in_detail
def test_definition_of_communication_is_chosen_by_keyboard(ui: Ui) -> None:
    multimem = "multimem_all_reduce_kernel"  # a collective by the wide definition only
    file, run = ui.root.parent / "symmetric.json", ui.root / "symmetric"
    events = [op("aten::mm", 0, 50_000, external=1), launch(1_000, 5_000, 1, external=1)]
    events += [
        kernel(100_000, 400_000, 1, name=SLOWEST),
        kernel(500_000, 600_000, 2, name=multimem),
    ]
    file.write_bytes(trace(*events))
    imported([file], run)
    try:
        page = ui.open(screen("kernels", run.name))
        communication = page.get_by_test_id("kernel-communication")
        for definition, ratio in (("wide", 600 / (400 + 600)), ("narrow", 0.0)):
            expect(communication).to_contain_text(share(ratio))
            payload = shown(ui, run.name, "kernels", communication=definition)
            expect(page.locator("main")).to_contain_text(payload["communication_of"])
            page.get_by_role("combobox", name="Communication").press("ArrowDown")
        expect(page).to_have_url(re.compile(r"[?&]communication=narrow\b"))
        for definition in ("wide", "narrow"):
            payload = shown(ui, run.name, "distributed", communication=definition)
            page = ui.open(screen("distributed", run.name, communication=definition))
            page.get_by_text("Time of ranks in the traces").click()
            expect(page.get_by_role("combobox", name="Communication")).to_have_value(definition)
            expect(page.locator("main")).to_contain_text(payload["communication_of"])
            headings, rows = cells(page, "table-ranks")
            (rank,) = payload["windows"][0]["ranks"]
            written = rows[0][headings.index("communication share")].split("\n")[-1]
            assert written == share(rank["communication_ratio"])
        ui.settle()  # an open page may still request something of the run
    finally:
        shutil.rmtree(run)


@pytest.mark.seed("SMP-28")
def test_timeline_zooms_to_a_step_and_back(ui: Ui) -> None:
    page = ui.open(screen("timeline", TRACES))
    drawn(page)
    jump = page.get_by_test_id("timeline-jump")
    jump.fill(str(FIRST_STEP + 2))
    jump.press("Enter")
    page.wait_for_function("() => new URL(location).searchParams.has('t0')")
    query = page.evaluate("Object.fromEntries(new URL(location).searchParams)")
    begin, end = float(query["t0"]), float(query["t1"])
    steps = shown(ui, TRACES, "timeline")["steps"][0]
    index = steps["numbers"].index(FIRST_STEP + 2)
    start = steps["after_ns"][index]
    assert begin <= start < start + steps["duration_ns"][index] <= end
    assert end - begin < 3 * steps["duration_ns"][index]
    page.get_by_test_id("timeline-canvas").press("0")
    drawn(page)


@pytest.mark.seed("DBI-03")
def test_range_chosen_on_the_timeline_applies_everywhere(ui: Ui) -> None:
    steps = shown(ui, TRACES, "timeline")["steps"][0]
    begin = steps["after_ns"][1]
    end = begin + 2 * steps["duration_ns"][1]
    page = ui.open(screen("kernels", TRACES, **{"from": str(begin), "to": str(end)}))
    settled(page)
    headings, rows = cells(page, "table-kernels")
    calls = headings.index("calls")
    assert {row[-1]: row[calls] for row in rows}[SLOWEST] == "2"
    page.get_by_role("button", name="Show the full run").click()
    page.wait_for_function("() => !new URL(location).searchParams.has('from')")
    settled(page)
    headings, rows = cells(page, "table-kernels")
    assert {row[-1]: row[calls] for row in rows}[SLOWEST] == str(STEPS)


@in_detail
def test_findings_of_the_chosen_range(ui: Ui) -> None:
    results = shown(ui, JOB, "insights")
    timed = [rule for rule in results["rules"] if rule["first_after_ns"] is not None]
    begin = str(1 + max(rule["last_after_ns"] for rule in timed))
    page = ui.open(screen("insights", JOB))
    settled(page)
    cards = page.get_by_test_id("rule")
    expect(cards).to_have_count(results["fired_count"])
    assert page.get_by_test_id("findings-of-range").count() == 0
    page = ui.open(screen("insights", JOB, **{"from": begin}))
    settled(page)
    expect(page.get_by_test_id("rule")).to_have_count(results["fired_count"] - len(timed))
    summary = page.get_by_test_id("findings-of-range")
    expect(summary).to_contain_text(f"0 of the run's {results['fired_count']} findings (0%)")
    page.get_by_role("button", name="Show the full run").click()
    expect(summary).to_have_count(0)


@in_detail
@pytest.mark.seed("PTP-09")
def test_flame_graph_of_modules(ui: Ui) -> None:
    for by in ("host", "device"):
        (net,) = shown(ui, TRACES, "modules-flame", by=by)["traces"][0]["roots"]
        first = net["children"][0]
        page = ui.open(screen("modules", TRACES, time=by))
        settled(page)
        graph = page.get_by_role("group", name="Flame graph of modules and their operators")
        graph.get_by_role("button").first.focus()
        focused = page.locator(":focus")
        total = duration(net["total_ns"])
        expect(focused).to_have_attribute("aria-label", re.compile(f"^Net_0: {total} \\(100.0%"))
        page.keyboard.press("ArrowDown")
        expect(focused).to_have_attribute("aria-label", re.compile(f"^{first['name']}: "))
        page.keyboard.press("Enter")
        page.wait_for_function("() => new URL(location).searchParams.has('frame')")
        second_page = ui.open(page.url.removeprefix(ui.address))
        for opened in (page, second_page):
            box = opened.get_by_role(
                "button", name=f"{first['name']}: {duration(first['total_ns'])}"
            )
            expect(box).to_have_attribute("style", re.compile(r"width: 100%"))
        focused.press("Escape")
        focused.press("Escape")
        page.wait_for_function("() => !new URL(location).searchParams.has('frame')")


@in_detail
def test_flame_graph_of_a_range(ui: Ui) -> None:
    step = shown(ui, TRACES, "timeline")["steps"][0]
    begin, end = (step["after_ns"][1], step["after_ns"][1] + step["duration_ns"][1])
    page = ui.open(screen("timeline", TRACES, **{"from": str(begin), "to": str(end)}))
    drawn(page)
    page.get_by_role("tab", name="Flame graph").click()
    boxes = page.get_by_role("group", name="Flame graph of the range").get_by_role("button")
    boxes.first.click()
    page.wait_for_function("() => new URL(location).searchParams.has('frame')")
    boxes.first.press("ArrowDown")  # to the next box, not to the next slice
    assert page.locator(":focus").get_attribute("class") in {"flame-box", "flame-box ancestor"}
    page.get_by_role("button", name="Reset zoom").click()
    page.wait_for_function("() => !new URL(location).searchParams.has('frame')")


@in_detail
def test_timeline_without_webgl_shows_the_same(ui: Ui) -> None:
    page = ui.open(screen("timeline", TRACES, renderer="2d"))
    drawn(page)
    box = page.get_by_test_id("timeline-search")
    box.fill(ALL_REDUCE[:20])
    box.press("Enter")
    expect(page.get_by_test_id("timeline-details")).to_contain_text("AllReduce")


DRAWN = """() => {
    const charts = [...document.querySelectorAll('main .chart')];
    return {
        drawn: charts.map(each => each.querySelector('svg, canvas') !== null),
        width: Math.max(...charts.map(each => each.scrollWidth)),
        theme: document.documentElement.dataset.theme,
    };
}"""


@in_detail
def test_every_chart_is_printed_and_in_light(ui: Ui) -> None:
    page = ui.open(screen("system", JOB), scheme="dark")
    settled(page)
    before = page.evaluate(DRAWN)
    assert (before["theme"], all(before["drawn"])) == ("dark", False), "some wait to be seen"
    # What is there when the browser lays out the paper: it waits for nothing that comes later.
    page.evaluate(f"addEventListener('beforeprint', () => {{ window.paper = ({DRAWN})() }})")
    assert len(page.pdf()) > 50_000
    paper = page.evaluate("window.paper")
    assert len(paper["drawn"]) == len(before["drawn"])
    assert all(paper["drawn"])
    assert paper["theme"] == "light"
    assert paper["width"] <= 680
    assert page.evaluate(DRAWN)["theme"] == "dark"


@in_detail
def test_a_page_looked_at_as_it_is_printed(ui: Ui) -> None:
    page = ui.open(screen("system", JOB), scheme="dark")
    page.get_by_test_id("metric-statistics").locator("summary").click()
    settled(page)
    page.emulate_media(media="print")
    page.wait_for_function("() => document.documentElement.dataset.theme === 'light'")
    assert all(page.evaluate(DRAWN)["drawn"])
    assert not page.locator(".side").is_visible()
    expect(page.locator(".print-copy canvas").first).to_be_visible()
    rows = page.locator('[data-testid="table-metrics"] tbody tr').count()
    assert rows == sum(len(n["metrics"]) for n in shown(ui, JOB, "system")["nodes"][:1])
    page.emulate_media(media="screen")
    page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")


@pytest.mark.seed("PTP-11")
def test_two_runs_are_compared(ui: Ui) -> None:
    page = ui.open("/")
    for run in (TRACES, JOB):
        page.get_by_role("checkbox", name=run).check()
    page.get_by_test_id("compare-runs").click()
    settled(page)
    assert page.url.startswith(f"{ui.address}/compare?")
    text = page.inner_text("main")
    assert TRACES in text
    assert JOB in text
    _, rows = cells(page, "table-compare-worth")
    assert any(row[0].startswith("run") and "→" in row[1] for row in rows)


@pytest.mark.seed("PTP-04")
def test_state_is_in_the_address(ui: Ui) -> None:
    page = ui.open(screen("operators", TRACES, by="shape", top="0"))
    settled(page)
    page.locator('[data-testid="table-operators"] thead button').nth(1).click()
    page.wait_for_timeout(100)
    before = cells(page, "table-operators")
    second_page = ui.open(page.url.removeprefix(ui.address))
    settled(second_page)
    assert cells(second_page, "table-operators") == before


def scroll(page: Page, top: int) -> None:
    page.evaluate(f"scrollTo({{ top: {top}, behavior: 'instant' }})")
    page.wait_for_timeout(100)


@in_detail
def test_scroll_positions_are_kept_in_the_history(ui: Ui) -> None:
    page = ui.open(screen("system", JOB))
    settled(page)

    def reached(top: int) -> None:
        page.wait_for_function(f"() => Math.abs(scrollY - {top}) < 2")
        page.wait_for_timeout(400)
        assert abs(page.evaluate("scrollY") - top) < 2, "and it stays there"

    scroll(page, 900)
    page.get_by_role("navigation").get_by_role("link", name="Insights").click()
    settled(page)
    reached(0)
    scroll(page, 300)
    page.go_back()
    reached(900)
    page.go_forward()
    reached(300)
    page.reload()
    reached(300)
    page.go_back()
    reached(900)
    settled(page)
    page.mouse.move(700, 400)
    page.mouse.wheel(0, -500)
    reached(400)


@in_detail
def test_an_answer_that_is_long_in_coming_does_not_push_the_page_down(ui: Ui) -> None:
    page = ui.open(screen("system", JOB))
    settled(page)
    scroll(page, 900)
    page.get_by_role("navigation").get_by_role("link", name="Insights").click()
    settled(page)
    page.reload()  # and nothing is kept any more
    settled(page)

    def late(route: Route) -> None:
        page.wait_for_timeout(3_000)
        route.continue_()

    page.route("**/api/views/system-series?*", late)
    page.go_back()
    settled(page)
    page.wait_for_timeout(400)
    assert abs(page.evaluate("scrollY") - 900) < 2


@in_detail
@pytest.mark.seed("PTP-17", "PTP-18")
def test_empty_states_name_what_brings_the_data(ui: Ui) -> None:
    screens = {**dict.fromkeys(("kernels", "memory", "modules"), "stepscope"), "tensors": "scalar"}
    for name, words in screens.items():
        page = ui.open(screen(name, JOB))
        settled(page)
        assert words in page.locator("main .empty, main .missing").first.inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_navigation_lists_what_the_run_has(ui: Ui, scheme: str) -> None:
    page = ui.open(screen("insights", JOB), scheme=scheme)
    fold = page.locator(".not-recorded")
    fold.locator("summary").click()
    assert_drawn(page)
    expect(fold.get_by_role("link", name="Steps", exact=True)).to_have_count(0)
    expect(fold.get_by_role("link", name="Kernels")).to_be_visible()
    for row in shown(ui, JOB, "recordings")["not_recorded"]:
        expect(fold).to_contain_text(row["reason"].replace("`", "")[1:])


@pytest.mark.parametrize(
    "name",
    extend_all_but(
        {"overview", "kernels", "timeline"},
        [name for name in SCREENS if name != "compare"],
        "the same names on another screen",
    ),
)
def test_hostile_names_execute_nothing(ui: Ui, name: str) -> None:
    page = ui.open(screen(name, HOSTILE))
    settled(page)
    assert "owned" not in page.title()
    wide = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert wide <= 0


@pytest.mark.seed("PTP-16", "DBI-07")
def test_tables_charts_and_the_report_can_be_taken_away(ui: Ui) -> None:
    page = ui.open(screen("kernels", TRACES), accept_downloads=True)
    settled(page)
    with page.expect_download() as download:
        page.locator('[data-testid="table-kernels"]').get_by_role("button", name="CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0].startswith("name,total_ns,")
    assert lines[1].split(",")[0] == SLOWEST
    page = ui.open(screen("steps", TRACES), accept_downloads=True)
    settled(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="PNG").first.click()
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")

    with page.expect_download() as download:
        page.get_by_role("link", name="Report").click()
    assert download.value.suggested_filename.endswith("-report.html")
    assert SLOWEST in Path(download.value.path()).read_text()
