"""The screen of XGBoost's models in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api")

from playwright.sync_api import expect

from stepscope.quantities import percent
from stepscope.testing.browser import chromium
from tests.support.boosted_runs import draw_boosted
from tests.support.browsed import IN_A_BROWSER, Ui, assert_drawn
from tests.support.under_stepscope import command_json, serving

pytestmark = [
    *IN_A_BROWSER,
    pytest.mark.extended("test_ui_pages.py draws every screen; its payload is in tests/unit/views"),
]


@pytest.fixture
def ui(tmp_path: Path) -> Iterator[Ui]:
    draw_boosted(tmp_path / "boosted")
    with serving(str(tmp_path), "--port", "0") as (address, _), chromium() as browser:
        ui = Ui(tmp_path, address, browser)
        yield ui
        ui.settle()


@pytest.mark.seed("DBR-16")
def test_models_of_xgboost(ui: Ui) -> None:
    page = ui.open("/xgboost?run=boosted")
    assert_drawn(page)
    for title in ("logloss by round", "ROC curve of test", "Confusion matrix of train"):
        expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
    view = command_json("show", "xgboost", run=ui.root / "boosted")
    scores = view["data_sets"][0]["confusion"]["classes"][1]
    row = page.get_by_test_id("table-scores").first.locator("tbody tr").nth(1)
    texts = [percent(scores[name], 1) for name in ("precision_ratio", "recall_ratio", "f1_ratio")]
    assert row.locator("td").all_inner_texts()[-3:] == texts
    page.get_by_role("combobox", name="Model").select_option(label="model 3")
    expect(page.get_by_role("heading", name="Residuals of test", exact=True)).to_be_visible()
    expect(page.get_by_test_id("table-scores")).to_have_count(0)
    assert "model=0" in page.url
    page.emulate_media(color_scheme="dark")
    assert_drawn(page, only_colors=True)
