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
from stepscope.schema import STUCK, RankAccount, RankState, StackFrame, StuckNode
from stepscope.store import RunWriter
from stepscope.testing import RunBuilder
from stepscope.testing.drawing import MS
from stepscope.testing.runs import EPOCH_NS
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
    root = runs_below(tmp_path_factory.mktemp("runs"))
    draw_stuck(root / "stuck")
    return serve(root)


STUCK_NS = 30 * MS * 1000
"""End of the last step of the stuck job, which is watched for as long again."""


def draw_stuck(path: Path) -> None:
    """Draw a job that waits in its user's code from half of the run on, and an open span."""
    run = RunBuilder(path)
    trainer = run.rank(workers=1).draw("forward 300 | backward 500 | optimizer 200", 30)
    trainer.draw("forward ?").thread().draw("do 60000")
    trainer.workers[0].draw("fetch 100", 30)
    for process in (trainer, trainer.workers[0]):
        run.metric("process_cpu_cores", lambda s: 1 / (1 + s), device=str(process.info.pid))
    run.metric("outside_cpu_cores", 0).metric("job_cpu_cores", 1)
    run.metric("memory_used_bytes", 1e9).write()
    frames = [StackFrame(function="take", file="/job/data.py", line=7)]
    info = trainer.info
    account = RankAccount(
        rank=0, process=info.process, pid=info.pid, state=RankState.ANSWERED, frames=frames
    )
    stuck = StuckNode(
        node=info.node, ranks=[account], since_ns=EPOCH_NS + STUCK_NS, limit_ns=1, groups={},
        seen_ns=EPOCH_NS + 2 * STUCK_NS, was_stuck=True,
    )  # fmt: skip
    with RunWriter(path, info.node) as writer:
        writer.put_document(STUCK, info.node, stuck)


CHANGES = """y => {
    const canvas = document.querySelector('[data-testid=timeline-canvas] canvas');
    const { top, width } = canvas.getBoundingClientRect();
    const ratio = canvas.width / width;
    const row = new OffscreenCanvas(60, 1).getContext('2d');
    row.drawImage(canvas, 0.8 * canvas.width, (y - top) * ratio, 60, 1, 0, 0, 60, 1);
    const opacities = row.getImageData(0, 0, 60, 1).data.filter((_, index) => index % 4 === 3);
    return opacities.filter((opacity, index) => opacity !== opacities[index - 1]).length;
}"""
"""Changes of opacity in sixty pixels of a row, near its end: one every few pixels if hatched."""


def test_an_open_call_of_a_stuck_job_is_hatched_to_the_end(ui: Ui) -> None:
    page = ui.open("/timeline?run=stuck&renderer=2d")
    drawn(page)
    tree = page.get_by_role("tree")
    for name, is_hatched in (("main thread (training)", True), ("main thread (fetch)", False)):
        box = tree.get_by_text(name).first.bounding_box()
        assert box is not None
        assert (page.evaluate(CHANGES, box["y"] + box["height"] / 2) > 10) == is_hatched


def test_processes_have_their_names(ui: Ui) -> None:
    page = ui.open("/system?run=stuck")
    settled(page)
    page.get_by_test_id("process-metrics").locator("> summary").click()
    chart = page.get_by_role("region", name="Cores used", exact=True).get_by_role("img").first
    expect(chart).to_have_attribute("aria-label", re.compile("trainer.*worker 0"))


def test_empty_rows_are_hidden_until_they_are_asked_for(ui: Ui) -> None:
    payload = command_json("show", "timeline", run=ui.root / "stuck")
    page = ui.open("/timeline?run=stuck")
    drawn(page)
    row = page.get_by_role("treeitem").filter(has_text="cores used by other processes")
    expect(page.get_by_role("treeitem").filter(has_text="cores used by the job")).to_be_visible()
    expect(row).to_have_count(0)
    page.get_by_test_id("timeline-choices").click()
    page.get_by_role("combobox", name="Empty rows").select_option("show")
    expect(row).to_be_visible()
    page.reload()
    drawn(page)
    expect(row).to_be_visible()  # the choice is remembered
    groups = [group["name"] for node in payload["groups"] for group in node["groups"]]
    assert groups == ["counters", "trainer"]


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
    names = graph.get_by_role("button").evaluate_all(
        "all => all.map(one => one.getAttribute('aria-label'))"
    )
    assert not any(name.startswith("ProfilerStep") for name in names)  # a bracket is no work
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_note_is_stored_with_the_run(ui: Ui, scheme: str) -> None:
    address = screen("timeline", JOB, **{"from": "1000", "to": "5000000000"})
    page = ui.open(address, scheme=scheme)
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
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy command").click()
    expect(page.get_by_role("status").filter(has_text="Copied.")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == command
    assert_accessible(page)
    page.get_by_role("textbox", name="Name of this view").fill(f"busiest {scheme}")
    page.get_by_role("button", name="Save view").click()
    expect(page.get_by_role("link", name=f"busiest {scheme}")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Open in Perfetto").click()
    assert download.value.suggested_filename.endswith(".pftrace")
    assert Path(download.value.path()).stat().st_size > 1000
    page.goto(ui.address + screen("gpu", TRACES, tab="metrics"))
    share.click()
    command = page.get_by_role("textbox", name="Text of the command").input_value()
    assert command == f"stepscope show {ui.root / TRACES} gpu-metrics"
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
