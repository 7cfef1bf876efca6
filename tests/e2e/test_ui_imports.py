"""Import of traces in a real browser: of the served directory, and dropped on the page."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest

pytest.importorskip("playwright.sync_api")

from playwright.sync_api import expect

from tests.support.browsed import IN_A_BROWSER, Ui, assert_accessible, settled
from tests.support.kineto_files import kernel, launch, op, trace

pytestmark = IN_A_BROWSER
TRACE = trace(op("aten::mm", 0, 900), launch(100, 50, 1), kernel(400, 800, 1))
HOSTILE = '<img src=x onerror="alert(1)">.json'
DROP = """([name, text]) => {
    const files = new DataTransfer();
    files.items.add(new File([text], name));
    document.querySelector("main").dispatchEvent(
        new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true }),
    );
}"""


@pytest.fixture(scope="module")
def served(serve: Callable[..., Ui], tmp_path_factory: pytest.TempPathFactory) -> Ui:
    """Serve a log directory without runs."""
    log = tmp_path_factory.mktemp("traces") / "log"
    log.mkdir()
    for rank in (0, 1):
        name = f"rank{rank}.162314308986{rank}.pt.trace.json.gz"
        (log / name).write_bytes(gzip.compress(TRACE))
    (log / HOSTILE).write_bytes(TRACE)
    return serve(log.parent)


@pytest.mark.seed("PTP-02")
def test_traces_become_runs(ui: Ui) -> None:
    """One on a click, two as one run, one that is dropped; a damaged one says why not."""
    page = ui.open("/")
    traces = page.locator('[data-testid="table-traces"] tbody tr')
    runs = page.locator('[data-testid="table-jobs"] tbody tr')
    states = page.get_by_test_id("imports")
    expect(traces).to_have_count(3)
    expect(traces.filter(has_text=HOSTILE)).to_have_count(1)
    settled(page)
    assert_accessible(page)

    page.get_by_role("button", name=f"Import log/{HOSTILE}").click()
    expect(runs).to_have_count(1)
    expect(traces).to_have_count(2)
    for box in traces.get_by_role("checkbox").all():
        box.check()
    page.get_by_test_id("import-traces").click()
    expect(runs).to_have_count(2)
    expect(traces).to_have_count(0)
    expect(states.get_by_role("link", name="stepscope-runs/log")).to_be_visible()

    page.evaluate(DROP, ["dropped.json", TRACE.decode()])
    expect(runs).to_have_count(3)
    page.evaluate(DROP, ["notes.json", "# Notes"])
    expect(states).to_contain_text("notes.json is not a trace")
    settled(page)
    assert_accessible(page)

    (ui.root / "log" / "late.json").write_bytes(TRACE)  # the list follows the directory
    expect(traces).to_have_count(1)
    states.get_by_role("link", name="stepscope-runs/dropped").click()
    expect(page).to_have_url(f"{ui.address}/overview?run=stepscope-runs%2Fdropped")
    page.get_by_test_id("details").locator("summary").first.click()
    expect(page.locator("main")).to_contain_text("dropped.json")
