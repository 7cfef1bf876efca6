"""The timeline in a real browser: its colours, wheel, keys and notes, and what leaves the page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api")

from playwright.sync_api import Page, expect

from stepscope.quantities import duration
from tests.support.browsed import IN_A_BROWSER, Ui, assert_accessible, drawn, screen, settled
from tests.support.ui_runs import runs_below
from tests.support.under_stepscope import command_json

pytestmark = [
    *IN_A_BROWSER,
    pytest.mark.extended("the timeline in detail; the ways to it are in test_ui_pages.py"),
]
TRACES, JOB = "training/fixed", "training/job"


@pytest.fixture(scope="module")
def served(serve: Callable[..., Ui], tmp_path_factory: pytest.TempPathFactory) -> Ui:
    return serve(runs_below(tmp_path_factory.mktemp("runs")))


def visible_duration(page: Page) -> str:
    return page.locator(".tl-visible-duration b").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_slices_are_coloured_by_kind_with_a_legend(ui: Ui, scheme: str) -> None:
    page = ui.open(screen("timeline", TRACES), scheme=scheme)
    drawn(page)
    payload = command_json("show", "timeline-slices", run=ui.root / TRACES)
    legend = page.get_by_test_id("timeline-legend").get_by_role("listitem")
    used = {payload["kinds"][name] for track in payload["tracks"] for name in track["name"]}
    expect(legend.first).to_be_visible()
    assert set(legend.all_inner_texts()) <= used
    assert {"computation", "operators"} <= used
    assert_accessible(page)
    page.get_by_test_id("timeline-choices").click()
    page.get_by_role("combobox", name="Colours").select_option("name")
    expect(legend).to_have_count(0)
    page.reload()
    drawn(page)
    expect(legend).to_have_count(0)  # the choice is remembered


def test_the_wheel_scrolls_or_zooms_as_chosen(ui: Ui) -> None:
    page = ui.open(screen("timeline", JOB))
    drawn(page)
    full = visible_duration(page)
    page.get_by_test_id("timeline-canvas").hover()
    page.mouse.wheel(0, -300)
    assert visible_duration(page) == full
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    expect(page.locator(".tl-visible-duration b")).not_to_have_text(full)
    page.get_by_test_id("timeline-choices").click()
    page.get_by_role("combobox", name="Wheel").select_option("zoom")
    page.keyboard.press("Escape")
    page.reload()
    drawn(page)
    zoomed = visible_duration(page)
    page.get_by_test_id("timeline-canvas").hover()
    page.mouse.wheel(0, -300)
    expect(page.locator(".tl-visible-duration b")).not_to_have_text(zoomed)


def test_an_arrow_key_selects_the_first_slice_and_then_the_next(ui: Ui) -> None:
    page = ui.open(screen("timeline", TRACES))
    drawn(page)
    selected = "() => new URL(location).searchParams.get('event')"
    page.keyboard.press("ArrowRight")
    page.wait_for_function(selected)
    first = page.evaluate(selected)
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"first => ({selected})() !== first", arg=first)


def test_callers_and_one_function_of_a_flame_graph(ui: Ui) -> None:
    (step, *_) = command_json("show", "timeline", run=ui.root / TRACES)["steps"]
    start, end = step["after_ns"][1], step["after_ns"][1] + step["duration_ns"][1]
    page = ui.open(screen("timeline", TRACES))
    drawn(page)
    page.get_by_role("tab", name="Flame graph").click()
    graph = page.get_by_role("group", name="Flame graph of the range")
    expect(graph.get_by_role("button").first).to_be_visible()  # of what is on screen
    page.goto(f"{ui.address}{screen('timeline', TRACES, **{'from': str(start), 'to': str(end)})}")
    drawn(page)
    page.get_by_role("tab", name="Flame graph").click()
    box = graph.get_by_role("button").first
    callees = box.get_attribute("aria-label")
    assert callees is not None
    box.click()
    page.get_by_role("button", name="Focus on function").click()
    name, _, rest = callees.partition(": ")
    total = rest.split(" (")[0]
    expect(graph.get_by_role("button").first).to_have_attribute(
        "aria-label", re.compile(f"^{re.escape(name)}: {re.escape(total)} \\(100.0% of total\\)")
    )
    page.get_by_role("combobox", name="Below a box").select_option("callers")
    times = [
        label.rpartition(" self")[0].rpartition(", ")[2]
        for label in graph.get_by_role("button").evaluate_all(
            "all => all.map(one => one.getAttribute('aria-label'))"
        )
    ]
    assert any(time != duration(0) for time in times)
    assert_accessible(page)


def test_a_note_is_stored_with_the_run(ui: Ui) -> None:
    page = ui.open(screen("timeline", JOB, **{"from": "1000", "to": "5000000000"}))
    drawn(page)
    page.get_by_role("tab", name="Notes").click()
    box = page.get_by_role("textbox", name="Note on the selected range")
    box.fill("the <b>first</b> steps")
    box.press("Enter")
    notes = page.get_by_test_id("timeline-notes")
    expect(notes).to_contain_text("the <b>first</b> steps")
    assert_accessible(page)
    stored = json.loads((ui.root / JOB / "labels" / "notes.json").read_text())["notes"]
    assert stored == [
        {"text": "the <b>first</b> steps", "from_after_ns": 1000, "to_after_ns": 5_000_000_000}
    ]
    second_page = ui.open(screen("timeline", JOB))
    drawn(second_page)
    second_page.get_by_role("tab", name="Notes (1)").click()
    second_page.get_by_role("button", name="Delete the note").click()
    expect(second_page.get_by_role("tab", name="Notes", exact=True)).to_be_visible()
    assert json.loads((ui.root / JOB / "labels" / "notes.json").read_text())["notes"] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_a_screen_shows_leaves_the_page(ui: Ui, scheme: str) -> None:
    page = ui.open(screen("kernels", TRACES, sort="-calls"), scheme=scheme, accept_downloads=True)
    settled(page)
    share = page.get_by_test_id("share")
    share.click()
    command = page.get_by_role("textbox", name="Text of the command").input_value()
    assert command == f"stepscope show {ui.root / TRACES} kernels"
    assert page.get_by_role("textbox", name="Text of the link").input_value() == page.url
    assert_accessible(page)
    page.get_by_role("textbox", name="Name of this view").fill(f"busiest {scheme}")
    page.get_by_role("button", name="Save view").click()
    expect(page.get_by_role("link", name=f"busiest {scheme}")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Open in Perfetto").click()
    assert download.value.suggested_filename.endswith(".pftrace")
    assert Path(download.value.path()).stat().st_size > 1000
    page.goto(ui.address + screen("overview", TRACES))
    share.click()
    page.get_by_role("link", name=f"busiest {scheme}").click()
    page.wait_for_function("() => location.pathname === '/kernels'")
    assert "sort=-calls" in page.url
    label = "Light theme" if scheme == "dark" else "Dark theme"
    page.get_by_role("button", name=label).click()
    page.reload()
    other_scheme = "light" if scheme == "dark" else "dark"
    expect(page.locator("html")).to_have_attribute("data-theme", other_scheme)
