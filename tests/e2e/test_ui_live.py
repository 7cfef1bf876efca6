"""A job in progress in the web UI, in a real browser; and the way in where a token is demanded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api")

from playwright.sync_api import Browser, Page, expect

from stepscope.schema import JobState
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from tests.support.browsed import IN_A_BROWSER, Ui, assert_accessible, settled
from tests.support.under_stepscope import JOB_TIMEOUT_S, serving, training
from tests.support.waiting import wait_until

pytestmark = IN_A_BROWSER
TIMEOUT_MS = 60_000
TOKEN = "a token of many characters"  # noqa: S105


def watch_for_flicker(page: Page) -> None:
    """Count the times that loaded content returns to its skeleton, or the page is reloaded."""
    page.evaluate(
        """() => {
            window.__flickers = 0;
            new MutationObserver((changes) => {
                for (const { addedNodes } of changes)
                    for (const node of addedNodes)
                        if (node.querySelector?.(".skeleton") ?? node.matches?.(".skeleton"))
                            window.__flickers += 1;
            }).observe(document.querySelector("main"), { childList: true, subtree: true });
        }"""
    )


@pytest.mark.seed("SMP-10", "DBI-07", "PTP-17")
def test_a_job_is_seen_to_begin_grow_and_end(tmp_path: Path, browser: Browser) -> None:
    """One page from the empty list to the stopped job, without a reload."""
    root = tmp_path / "runs"
    root.mkdir()
    with serving(str(root), "--port", "0") as (address, _):
        ui = Ui(root, address, browser)
        page = ui.open("/")
        expect(page.locator("main")).to_contain_text("stepscope run")
        page.evaluate("window.__opened = true")
        with training(root / "job", tmp_path) as launcher:
            row = page.get_by_test_id("table-jobs").get_by_role("row").filter(has_text="job")
            expect(row).to_contain_text("in progress", timeout=TIMEOUT_MS)
            row.get_by_role("link").first.click()
            measured = page.get_by_text("steps measured,")
            expect(measured).to_be_visible(timeout=TIMEOUT_MS)
            watch_for_flicker(page)
            for _ in range(2):
                before = measured.inner_text()
                expect(measured).not_to_have_text(before, timeout=TIMEOUT_MS)
            assert page.evaluate("window.__flickers") == 0

            page.get_by_role("button", name="Capture steps").click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_role("spinbutton").fill("5")
            dialog.get_by_role("button", name="Capture 5 steps").click()
            status = page.get_by_role("status").filter(has_text="Added 1 window to the run.")
            expect(status).to_be_visible(timeout=TIMEOUT_MS)

            page.get_by_role("button", name="Stop job").click()
            page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
            assert launcher.poll() is None
            page.get_by_role("button", name="Stop job").click()
            page.get_by_role("dialog").get_by_role("button", name="Stop job").click()
            expect(page.get_by_test_id("job-status")).to_contain_text("Stopped", timeout=TIMEOUT_MS)
            launcher.wait(JOB_TIMEOUT_S)
        assert page.evaluate("window.__opened"), "the page was loaded again"
        expect(page.get_by_role("button", name="Stop job")).to_have_count(0)
        ui.settle()
    (standing,) = open_run(root / "job").statuses().values()
    assert standing.state is JobState.STOPPED


@pytest.mark.extended("another job; test_configure.py changes one")
@pytest.mark.seed("DBI-07", "DBP-10")
def test_the_monitoring_of_a_job_is_configured(tmp_path: Path, browser: Browser) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    with (
        training(root / "job", tmp_path) as launcher,
        serving(str(root), "--port", "0") as (address, _),
    ):
        wait_until(lambda: (root / "job" / "nodes").exists() and open_run(root / "job").statuses())
        ui = Ui(root, address, browser)
        page = ui.open("/overview?run=job#details")
        button = page.get_by_role("button", name="Configure")
        button.click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Sampling interval").select_option("200 ms")
        dialog.get_by_label("New window after step").fill("100000000")
        dialog.get_by_label("Steps", exact=True).fill("5")
        assert_accessible(page)
        dialog.get_by_role("button", name="Apply").click()
        changed = page.get_by_role("status").filter(has_text="Configuration changed.")
        expect(changed).to_be_visible(timeout=TIMEOUT_MS)
        rows = page.get_by_test_id("table-configuration")
        expect(rows).to_contain_text("in the web UI (from 127.0.0.1)", timeout=TIMEOUT_MS)
        expect(rows).to_contain_text("steps 100000000 to 100000004")

        button.click()  # a refusal stays in the dialog
        dialog.get_by_label("New window after step").fill("100000003")
        dialog.get_by_role("button", name="Apply").click()
        expect(dialog.get_by_role("alert")).to_contain_text("must not overlap")
        dialog.get_by_label("Remove these schedules").check()
        dialog.get_by_role("button", name="Apply").click()
        expect(dialog).to_have_count(0)
        (tmp_path / "until").touch()
        launcher.wait(JOB_TIMEOUT_S)
        expect(button).to_be_disabled(timeout=TIMEOUT_MS)
        expect(button).to_have_attribute("title", re.compile("is over"))
        settled(page)
        assert_accessible(page)
        page.goto(f"{ui.address}/configuration?run=job")
        expect(page.locator("main")).to_contain_text("steps 100000003 to 100000012")
        ui.settle("the server responded with a status of 400")  # the refusal
    (node,) = open_run(root / "job").nodes().values()
    assert [change.interval_ns for change in node.interval_changes] == [200_000_000]


@pytest.mark.extended("test_ui_server.py requires the token")
def test_a_token_opens_the_door_once(tmp_path: Path, browser: Browser) -> None:
    run = RunBuilder(tmp_path / "runs" / "job")
    run.rank(0).draw("wait 60 | forward 12 | backward 20 | optimizer 8", 40)
    run.write()
    with serving(str(tmp_path / "runs"), "--port", "0", "--token", TOKEN) as (address, _):
        ui = Ui(tmp_path / "runs", address, browser)
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{ui.address}/overview?run=job")
        page.get_by_label("Token").fill("another token than that")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_have_text("The token is not correct.")
        assert context.cookies() == []
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_test_id("table-jobs")).to_contain_text("job")
        (cookie,) = context.cookies()
        assert cookie["httpOnly"]
        assert cookie["sameSite"] == "Strict"
        assert TOKEN not in cookie["value"]
        page.goto(f"{ui.address}/overview?run=job")  # a link in a mail
        expect(page.get_by_test_id("verdict-headline")).to_be_visible()
        context.clear_cookies()
        page.get_by_role("link", name="Timeline").click()  # where it is asked for again
        expect(page.get_by_label("Token")).to_be_visible()
        context.close()


@pytest.mark.extended("test_ui_server.py requires the token")
def test_the_printed_address_lets_in_and_hides_the_token(tmp_path: Path, browser: Browser) -> None:
    (tmp_path / "runs").mkdir()
    with serving(str(tmp_path / "runs"), "--port", "0", "--token", TOKEN) as (address, _):
        page = browser.new_page()
        page.goto(address)
        expect(page.locator("main")).to_contain_text("stepscope run")
        assert "token" not in page.url
        page.close()
