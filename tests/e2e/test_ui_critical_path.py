"""The critical path on the page: its screen, its track on the timeline, and the ways between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api")

from playwright.sync_api import expect

from stepscope.quantities import duration, percent
from tests.support.browsed import IN_A_BROWSER, Ui, assert_drawn, cells, drawn, screen, settled
from tests.support.ui_runs import two_ranks
from tests.support.under_stepscope import command_json

pytestmark = [
    *IN_A_BROWSER,
    pytest.mark.extended("one screen in detail; `test_ui_pages.py` draws it"),
]
RUN = "ranks"


@pytest.fixture(scope="module")
def served(serve: Callable[..., Ui], tmp_path_factory: pytest.TempPathFactory) -> Ui:
    root = tmp_path_factory.mktemp("runs")
    two_ranks(root / RUN, root / "files")
    return serve(root)


def shown(ui: Ui, view: str, *flags: str) -> Any:
    """Return the output of `stepscope show RUN VIEW --json`."""
    return command_json("show", view, *flags, run=ui.root / RUN)


def test_shares_are_those_of_the_payload(ui: Ui) -> None:
    (path,) = shown(ui, "critical-path")["paths"]
    page = ui.open(screen("overview", RUN))
    page.get_by_test_id("evidence").get_by_role("link", name="Critical path").click()
    assert_drawn(page)
    legend = page.get_by_test_id("path-shares").locator("li")
    texts = [text.split("\n") for text in legend.all_inner_texts()]
    assert texts == [
        [row["category"], percent(row["share_ratio"], 1), duration(row["step_ns"])]
        for row in path["shares"]
    ]
    largest = max(path["shares"], key=lambda row: row["step_ns"])
    expect(page.get_by_test_id("path-answer")).to_contain_text(
        f"{percent(largest['share_ratio'])} of the critical path: {duration(largest['step_ns'])}"
    )
    expect(page.get_by_test_id("path-ranks").locator("li")).to_have_count(len(path["ranks"]))
    headings, rows = cells(page, "table-path")
    times = [row[headings.index("time per step")] for row in rows]
    assert times[: len(path["activities"])] == [
        duration(row["step_ns"]) for row in path["activities"][: len(rows)]
    ]


def test_fixes_are_simulated_alone_and_together(ui: Ui) -> None:
    fixes = shown(ui, "what-if")["recordings"][0]["fixes"]
    page = ui.open(screen("critical-path", RUN, tab="what-if"))
    settled(page)
    headings, rows = cells(page, "table-fixes")
    saving = [row for row in fixes if row["reason"] is None]
    assert [row[headings.index("fix")] for row in rows] == [row["title"] for row in saving]
    expect(page.get_by_test_id("fix-answer")).to_contain_text(
        f"a step of {duration(saving[0]['step_ns'])} instead of"
    )
    assert [row[headings.index("predicted step")] for row in rows] == [
        duration(row["step_ns"]) for row in saving
    ]
    folded = page.get_by_test_id("fixes-without-saving")
    folded.locator("summary").click()
    for row in fixes:
        if row["reason"] is not None:
            expect(folded).to_contain_text(f"({row['fix']})")
    page.get_by_role("checkbox", name="no-launch-gaps").check()
    page.get_by_role("checkbox", name="faster-kernels").check()
    factor = page.get_by_role("spinbutton", name="Factor of faster-kernels")
    factor.fill("4")
    factor.press("Enter")
    page.wait_for_function("() => location.search.includes('faster-kernels%3D4')")
    assert_drawn(page)
    together = shown(ui, "what-if", "--name", "no-launch-gaps+faster-kernels=4")
    (row,) = together["recordings"][0]["fixes"]
    expect(page.get_by_test_id("together-step")).to_have_text(duration(row["step_ns"]))


def test_track_is_switched_on_and_leads_to_events(ui: Ui) -> None:
    page = ui.open(screen("timeline", RUN))
    drawn(page)
    pinned = page.locator(".tl-pinned li")
    expect(pinned).to_have_count(0)
    page.get_by_test_id("timeline-path").click()
    expect(pinned).to_contain_text("critical path")
    drawn(page)
    track = shown(ui, "timeline-slices", "--tracks", "critical-path", "--pixels", "100000")
    names = track["names"]
    first = next(
        index
        for index, name in enumerate(track["tracks"][0]["name"])
        if names[name] not in {"other host code", "delay before work starts"}
    )
    event = str(track["tracks"][0]["event"][first])
    page = ui.open(screen("timeline", RUN, pin="critical-path", track="critical-path", event=event))
    details = page.get_by_test_id("timeline-details")
    name = names[track["tracks"][0]["name"][first]]
    expect(details).to_contain_text("time of the event")
    expect(details).to_contain_text(names[track["tracks"][0]["kind"][first]])
    details.get_by_role("button", name=name).first.click()
    page.wait_for_function("() => location.search.includes('track=trace')")
    expect(page.get_by_test_id("timeline-status")).to_contain_text(name)
    page.reload()
    expect(page.get_by_test_id("timeline-path")).to_have_attribute("aria-pressed", "true")
    assert_drawn(page)
    page.get_by_test_id("timeline-path").click()
    expect(page.locator(".tl-pinned li")).to_have_count(0)
