"""A view of an installed package: on every surface without a line of TypeScript."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api")

from playwright.sync_api import Route, expect

from stepscope.quantities import duration, memory, percent
from stepscope.views.registry import BUILT_IN_VIEWS
from tests.support.browsed import IN_A_BROWSER, Ui, assert_accessible, settled
from tests.support.installed_view import MISSING, ROW_COUNT, STEP_NS, write_package
from tests.support.ui_runs import runs_below
from tests.support.under_stepscope import STEPSCOPE

pytestmark = [
    *IN_A_BROWSER,
    pytest.mark.extended("a page in detail; installed views are in tests/unit/views"),
]
RUN = "training/fixed"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("site")
    write_package(path)
    return path


@pytest.fixture(scope="module")
def served(serve: Callable[..., Ui], tmp_path_factory: pytest.TempPathFactory, site: Path) -> Ui:
    return serve(runs_below(tmp_path_factory.mktemp("runs")), PYTHONPATH=str(site))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_a_screen(ui: Ui, scheme: str) -> None:
    page = ui.open(f"/overview?run={RUN}", scheme=scheme)
    more = page.get_by_role("group", name="More views")
    expect(more.get_by_role("link")).to_have_text(["Recordings", "Quality", "Queues"])
    more.get_by_role("link", name="Queues").focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{ui.address}/queues?run={RUN.replace('/', '%2F')}")
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    settled(page)
    assert page.title().startswith("Queues · ")
    main = page.locator("main")
    expect(main).to_contain_text("The queues of a job.")
    expect(main).to_contain_text("Shares are of the capacity of a queue.")
    assert_accessible(page)


def test_values_have_their_labels_and_units(ui: Ui) -> None:
    page = ui.open(f"/queues?run={RUN}")
    settled(page)
    step = page.locator("main .tiles > div", has_text="Time of a mean step.")
    expect(step).to_contain_text(duration(STEP_NS))
    expect(page.locator("main .tiles > div", has_text="Evaluation")).to_contain_text("n/a")
    waits = page.get_by_role("region", name="Wait")
    expect(waits).to_contain_text(duration(STEP_NS / 2))
    table = page.get_by_test_id("table-queues")
    assert [text.strip() for text in table.locator("th").all_inner_texts()] == [
        "name", "held", "full",
    ]  # fmt: skip
    expect(table.locator("th").nth(1)).to_have_attribute("title", "Memory of its batches.")
    rows = table.locator("tbody tr")
    expect(rows).to_have_count(ROW_COUNT)
    expect(rows.nth(2)).to_contain_text(memory(2048))
    expect(rows.nth(2).locator(".ratio-bar")).to_have_text(percent(0.5, 1))
    expect(rows.nth(0).locator(".ratio-bar")).to_have_text("n/a")
    table.get_by_role("button", name="held").press("Enter")
    expect(rows.first).to_contain_text("queue 2")
    assert "queues-sort=-held_bytes" in page.url
    first, second = (page.get_by_role("region", name=f"rank {rank}") for rank in (1, 2))
    expect(first.locator(".chart")).to_be_visible()
    command = "stepscope run --queues"
    assert f"`{command}`" in MISSING
    expect(second.locator(".empty code")).to_have_text(command)


def test_options_and_range_are_those_of_the_view(ui: Ui) -> None:
    page = ui.open(f"/queues?run={RUN}&from=1ms&to=5ms")
    settled(page)
    expect(page.locator("main .quality-notes")).to_contain_text("Selected range")
    expect(page.get_by_test_id("table-queues")).to_be_visible()
    page.get_by_label("By").select_option("none")
    expect(page.get_by_test_id("table-queues")).to_have_count(0)
    assert "by=none" in page.url


def test_the_name_of_a_view_leads_to_the_screen_that_draws_it(ui: Ui) -> None:
    page = ui.open(f"/gpu-time?run={RUN}")
    expect(page.get_by_role("heading", level=1)).to_have_text("GPU")
    expect(page.locator('.entry[aria-current="page"]')).to_have_text("GPU")


def test_a_view_that_the_server_has_not(ui: Ui) -> None:
    page = ui.open(f"/no-such-view?run={RUN}")
    expect(page.get_by_text("Screen not found")).to_be_visible()


def test_the_payload_of_any_view_can_be_drawn(ui: Ui) -> None:
    """Built-in views, under names that no screen draws."""
    path = "/api/views/"

    def rename(route: Route) -> None:
        response = route.fetch()
        text = response.text().replace(f'"{path}', f'"{path}renamed-')
        route.fulfill(response=response, body=text)

    page = ui.open("/")
    page.route("**/api/openapi.json", rename)
    page.route(
        f"**{path}renamed-*",
        lambda route: route.continue_(url=route.request.url.replace("renamed-", "")),
    )
    page.goto(f"{ui.address}/overview?run={RUN}")
    entries = page.get_by_role("group", name="More views").get_by_role("link")
    expect(entries).to_have_count(len(BUILT_IN_VIEWS) + 1)
    for number in range(entries.count()):
        entries.nth(number).click()
        expect(entries.nth(number)).to_have_attribute("aria-current", "page")
        settled(page)
        assert page.locator("main [role=alert]").count() == 0, page.inner_text("main")
        assert len(page.inner_text("main")) > len("Screen")


def test_the_terminal_shows_it(ui: Ui, site: Path) -> None:
    done = subprocess.run(
        [*STEPSCOPE, "show", str(ui.root / RUN), "queues"],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(site)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert duration(STEP_NS) in done.stdout
    assert MISSING in done.stdout
