"""The screen of late ranks in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api")

from playwright.sync_api import expect

from stepscope.testing import RunBuilder
from stepscope.testing.browser import chromium
from tests.support.browsed import IN_A_BROWSER, Ui, assert_drawn
from tests.support.under_stepscope import command_json, serving

pytestmark = [*IN_A_BROWSER, pytest.mark.extended("test_ui_pages.py draws this screen")]
SENTENCE = "Rank 1 is late in 100% of steps by 11 ms: slow data loading."


@pytest.fixture
def ui(tmp_path: Path) -> Iterator[Ui]:
    run = RunBuilder(tmp_path / "late")
    for number in range(3):
        wait, exchange = (21, 19) if number == 1 else (10, 30)
        run.rank(number, node=f"n{number}").draw(
            f"wait {wait} | forward 30 | communication {exchange} | optimizer 10", 60
        )
    run.write()
    with serving(str(tmp_path), "--port", "0") as (address, server), chromium() as browser:
        ui = Ui(tmp_path, address, browser)
        yield ui
        ui.settle()
    assert server.returncode == 0


def test_the_screen_begins_with_the_sentence(ui: Ui) -> None:
    payload = command_json("show", "ranks", run=ui.root / "late")
    assert payload["sentence"] == SENTENCE
    page = ui.open("/ranks?run=late")
    expect(page.get_by_test_id("late-ranks")).to_have_text(SENTENCE)
    expect(page.get_by_test_id("lateness-map")).to_be_visible()
    late = page.get_by_test_id("table-late-ranks").locator("tbody tr").first
    expect(late).to_contain_text("rank 1")
    expect(late).to_contain_text("persistent")
    expect(late).to_contain_text("slow data loading")
    nodes = page.get_by_test_id("table-nodes").locator("tbody tr")
    expect(nodes).to_have_count(3)
    expect(nodes.nth(1)).to_contain_text("rank 1")
    assert_drawn(page)
