"""Screens in a browser: steps, late ranks, models of XGBoost, targets of a fix, SQL, the fleet."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api")

from playwright.sync_api import expect

from stepscope.quantities import change, duration, percent
from stepscope.schema import STUCK, CalledCollective, RankAccount, RankState, StuckNode
from stepscope.store import RunWriter
from stepscope.testing import RunBuilder
from tests.support.boosted_runs import draw_boosted
from tests.support.browsed import IN_A_BROWSER, Ui, assert_accessible, assert_drawn, cells, settled
from tests.support.under_stepscope import command_json

pytestmark = [
    *IN_A_BROWSER,
    pytest.mark.extended("screens in detail; test_ui_pages.py draws every screen"),
]
SENTENCE = "Rank 1 is late in 100% of steps by 11 ms: slow data loading."
JOBS = {
    "slow": ("wait 600 | forward 120 | backward 200 | optimizer 80", 0.4),
    "fixed": ("wait 50 | forward 300 | backward 480 | optimizer 170", 0.88),
}
"""Steps of one second, and the utilization of the GPU; the fixed job waits for 5% of each."""
SECOND_NS = 1_000_000_000
STEPS = 520
"""More samples are taken than LowGPUUtilization skips."""


@pytest.fixture(scope="module")
def served(serve: Callable[..., Ui], tmp_path_factory: pytest.TempPathFactory) -> Ui:
    root = tmp_path_factory.mktemp("runs")
    run = RunBuilder(root / "late")
    for number in range(3):
        wait, exchange = (21, 19) if number == 1 else (10, 30)
        run.rank(number, node=f"n{number}").draw(
            f"wait {wait} | forward 30 | communication {exchange} | optimizer 10", 60
        )
    run.write()
    draw_boosted(root / "boosted")
    slow = RunBuilder(root / "outlier")
    for number in range(2):
        rank = slow.rank(number).draw(JOBS["fixed"][0], 40)
        rank.draw("wait 9000 | forward 300 | optimizer 170", number).draw(JOBS["fixed"][0], 40)
    slow.write()
    for name, (step, gpu) in JOBS.items():
        run = RunBuilder(root / name)
        run.rank(workers=2).draw(step, STEPS)
        run.metric("gpu_busy_ratio", gpu, device="0").write()
    draw_stuck(root / "stuck")
    return serve(root)


def draw_stuck(path: Path) -> None:
    """Draw a job that ended while rank 0 waited for rank 1 in its fifth collective."""
    run = RunBuilder(path)
    for number in range(2):
        run.rank(number).draw("forward 300 | communication 100 | optimizer 100", 60)
    run.write()
    ranks = [
        RankAccount(
            rank=rank,
            process="",
            pid=1,
            state=RankState.ANSWERED,
            calls=[
                CalledCollective(group="0", number=n, kind="all_reduce", has_ended=n < 5)
                for n in range(1, 6 - rank)
            ],
        )
        for rank in range(2)
    ]
    times = {"since_ns": 100 * SECOND_NS, "seen_ns": 700 * SECOND_NS, "limit_ns": SECOND_NS}
    account = StuckNode(node="n0", has_ended=True, groups={"0": [0, 1]}, ranks=ranks, **times)
    with RunWriter(path, "n0") as writer:
        writer.put_document(STUCK, "n0", account)


def test_the_screen_begins_with_the_sentence(ui: Ui) -> None:
    payload = command_json("show", "ranks", run=ui.root / "late")
    assert payload["sentence"] == SENTENCE
    page = ui.open("/ranks?run=late")
    expect(page.get_by_test_id("late-ranks")).to_have_text(SENTENCE)
    rows = page.get_by_test_id("lateness-map").locator("button.rank-row")
    expect(rows).to_have_count(3)
    row = rows.nth(1)
    expect(row).to_have_attribute("aria-pressed", "true")  # the latest
    expect(row).to_contain_text(f"{duration(payload['ranks'][0]['lateness_ns'])} late")
    row.locator("canvas").hover()
    expect(page.get_by_test_id("rank-map-text")).to_contain_text("rank 1, step ")
    detail = page.get_by_test_id("rank-detail")
    expect(detail).to_contain_text("While the others wait, it runs")
    rows.nth(0).click()
    expect(page).to_have_url(re.compile(r"[?&]rank=rank\+0\b"))
    (peer,) = (rank for rank in payload["ranks"] if rank["rank"] == "rank 0")
    expect(detail).to_contain_text(f"waits {duration(peer['mean_waiting_ns'])} per step")
    for activity, line in zip(peer["activities"], detail.locator("tbody tr").all(), strict=True):
        expect(line.locator("td").nth(0)).to_have_text(duration(activity["mean_ns"]))
        expect(line.locator("td").nth(1)).to_have_text(duration(activity["others_ns"]))
    late = page.get_by_test_id("table-late-ranks").locator("tbody tr").first
    expect(late).to_contain_text("rank 1")
    expect(late).to_contain_text("persistent")
    expect(late).to_contain_text("slow data loading")
    nodes = page.get_by_test_id("table-nodes").locator("tbody tr")
    expect(nodes).to_have_count(3)
    expect(nodes.nth(1)).to_contain_text("rank 1")
    assert_drawn(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_stuck_job_is_red_on_every_screen_that_answers(ui: Ui, scheme: str) -> None:
    sentence = command_json("show", "overview", run=ui.root / "stuck")["verdict"]["stuck"]
    assert "number 5 of process group 0: rank 1 has not called it" in sentence["headline"]
    page = ui.open("/overview?run=stuck", scheme=scheme)
    alarm = page.evaluate(
        "() => { const probe = document.body.appendChild(document.createElement('i'));"
        " probe.style.color = 'var(--alarm)'; const { color } = getComputedStyle(probe);"
        " probe.remove(); return color; }"
    )
    expect(page.get_by_test_id("job-status")).to_have_text("Was stuck")
    expect(page.get_by_test_id("job-status")).to_have_css("color", alarm)
    for name in ("overview", "steps", "insights"):
        page.goto(f"{ui.address}/{name}?run=stuck")
        heading = page.get_by_test_id("stuck").get_by_role("heading")
        expect(heading).to_have_text(sentence["headline"])
        expect(heading).to_have_css("color", alarm)
        assert_drawn(page)
    page.goto(ui.address)
    row = page.get_by_test_id("table-jobs").locator("tbody tr").filter(has_text="stuck")
    expect(row.locator(".status-text.alarm")).to_contain_text("stuck")
    expect(row.locator(".cause.alarm")).to_have_css("color", alarm)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_steps_are_drawn_over_their_numbers(ui: Ui, scheme: str) -> None:
    payload = command_json("show", "step-series", "--rank", "1", run=ui.root / "outlier")
    (outlier,) = payload["outliers"]
    assert (outlier["step"], outlier["phase"]) == (40, "data_wait")
    page = ui.open("/steps?run=outlier", scheme=scheme)
    strip = page.get_by_test_id("step-strip")
    answer = page.get_by_test_id("answer")
    expect(answer).to_contain_text("No outliers")
    strip.get_by_role("combobox", name="Rank").select_option("rank 1")
    excess = f"data wait is {duration(outlier['excess_ns'])} above its median"
    expect(answer).to_contain_text(
        f"step 40, takes {duration(outlier['duration_ns'])}, of which {excess}"
    )
    strip.get_by_role("combobox", name="Scale").select_option("logarithmic")
    expect(page).to_have_url(re.compile("scale=logarithmic"))
    assert_drawn(page)
    strip.get_by_role("combobox", name="Scale").select_option("linear")
    chart = strip.locator(".chart canvas").first
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 120, box["y"] + 150)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 150, steps=5)
    page.mouse.up()
    page.wait_for_function("() => new URL(location).searchParams.has('from')")
    settled(page)
    query = page.evaluate("Object.fromEntries(new URL(location).searchParams)")
    assert {int(query["from"]), int(query["to"])} <= set(payload["start_after_ns"])
    page.go_back()
    settled(page)
    box = chart.bounding_box()
    assert box is not None
    # A clipped outlier is at the upper end of the axis, in the middle of step 40 of 81.
    page.mouse.click(box["x"] + 76 + (box["width"] - 76 - 160) / 2, box["y"] + 20)
    page.wait_for_url("**/timeline?**")
    query = page.evaluate("Object.fromEntries(new URL(location).searchParams)")
    start = outlier["start_after_ns"]
    assert int(query["t0"]) < start < start + outlier["duration_ns"] < int(query["t1"])


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


@pytest.mark.seed("DIAG-08")
def test_the_verdict_states_what_to_expect_after_the_fix(ui: Ui) -> None:
    page = ui.open("/overview?run=slow")
    settled(page)
    verdict = page.locator("#verdict")
    verdict.get_by_text("All of the verdict").click()
    expect(verdict.get_by_role("heading", name="Expected after the fix")).to_be_visible()
    expect(verdict).to_contain_text("GPU utilization of 85% to 90% while training")
    page = ui.open("/overview?run=fixed")
    settled(page)
    expect(page.get_by_role("heading", name="Expected after the fix")).to_have_count(0)


@pytest.mark.seed("DIAG-08")
def test_the_comparison_says_which_targets_are_reached(ui: Ui) -> None:
    page = ui.open("/compare?run=fixed&with=slow")
    settled(page)
    rows = page.get_by_test_id("table-compare-targets").locator("tbody tr")
    texts = [row.locator("td, th").all_inner_texts() for row in rows.all()]
    assert [row[1:] for row in texts] == [
        ["yes", "40%", "88%"],
        ["yes", "60%", "5%"],
        ["yes", "issues found by 2 of 2", "issues found by 0 of 2"],
    ]
    payload = command_json("compare", str(ui.root / "fixed"), run=ui.root / "slow")
    assert payload["headline"].startswith("Steps are ")
    headline = page.get_by_test_id("compare-headline")
    assert " ".join(headline.inner_text().split()) == payload["headline"]
    for figure in ("step-bars", "waterfall"):
        expect(page.get_by_test_id(figure)).to_be_visible()
    steps = page.get_by_test_id("aligned-steps").get_by_role("heading", level=3)
    expect(steps).to_have_count(2)
    for step, run in zip(steps.all(), ("slow", "fixed"), strict=True):
        expect(step).to_contain_text(f"{duration(1e9)} {run}")
    headings, rows = cells(page, "table-compare-contributions")
    assert headings[0] == "change"
    changes = [
        row["change_ns"] for part in payload["contributions"]["parts"] for row in part["rows"]
    ]
    assert rows[0][0] == change(max(changes, key=abs), "ns")
    assert_drawn(page)
    page.emulate_media(color_scheme="dark")
    assert_drawn(page, only_colors=True)


def test_a_query_is_written_and_run(ui: Ui) -> None:
    page = ui.open("/sql?run=late")
    page.get_by_label("Example").select_option("Time by kind of span")
    page.get_by_role("button", name="Run query").click()
    expect(page.get_by_test_id("table-sql")).to_be_visible()
    columns, rows = cells(page, "table-sql")
    query = page.get_by_role("textbox", name="Query").input_value()
    result = command_json("sql", query, run=ui.root / "late")
    assert columns == [column["name"] for column in result["columns"]]
    assert [row[0] for row in rows] == [row[0] for row in result["rows"]]
    assert_drawn(page)
    page.reload()  # the query is in the address
    expect(page.get_by_test_id("table-sql")).to_be_visible()
    page.get_by_role("textbox", name="Query").fill("FROM read_csv('/etc/passwd')")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("The query reads a file or a setting")
    assert_accessible(page)
    ui.settle("status of 400")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_runs_are_labelled_grouped_and_compared(ui: Ui, scheme: str) -> None:
    page = ui.open("/", scheme=scheme)
    rows = page.get_by_test_id("table-jobs").locator("tbody tr:not(.group)")
    expect(rows).to_have_count(6)
    row = rows.filter(has=page.locator('a[href*="run=slow"]'))
    row.get_by_role("button", name="Edit title, tags and notes").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Title").fill(f"Before, {scheme}")
    dialog.get_by_label("Tags").fill("starved, v1")
    dialog.get_by_role("button", name="Save").click()
    expect(row).to_contain_text(f"Before, {scheme}")
    assert command_json("tag", run=ui.root / "slow") == {
        "title": f"Before, {scheme}", "tags": ["starved", "v1"], "notes": "",
    }  # fmt: skip
    page.get_by_role("combobox", name="Group by").select_option("tag")
    groups = page.get_by_test_id("table-jobs").locator("tr.group")
    expect(groups).to_have_count(2)
    expect(groups.filter(has_text="starved, v1")).to_contain_text("1")
    page.get_by_role("button", name="Columns").click()
    page.get_by_label("tags", exact=True).uncheck()
    expect(page.get_by_role("columnheader", name="tags")).to_have_count(0)
    page.reload()
    expect(rows).to_have_count(6)
    expect(page.get_by_role("columnheader", name="tags")).to_have_count(0)
    assert_drawn(page)
    page.get_by_label("Select slow").check()
    page.get_by_label("Select fixed").check()
    page.get_by_test_id("compare-runs").click()
    page.wait_for_url("**/compare?**")


def test_all_runs_are_added_up(ui: Ui) -> None:
    page = ui.open("/")
    page.get_by_role("link", name="Fleet").click()
    assert_drawn(page)
    payload = command_json("fleet", "--by", "week", run=ui.root)
    page.get_by_label("Group by").select_option("week")
    settled(page)
    assert page.get_by_test_id("fleet-headline").inner_text() == payload["headline"]
    page.get_by_test_id("fleet-tables").locator("> summary").click()
    headings, rows = cells(page, "table-fleet-groups")
    assert headings[:2] == ["week", "runs"]
    assert [row[0] for row in rows] == [group["name"] for group in payload["groups"]]
    _, rows = cells(page, "table-fleet-classes")
    titles = [row["title"] for row in payload["classes"]]
    assert [row[0] for row in rows] == titles
    assert "steps" in titles
    page.get_by_role("button", name="Dark theme").click()
    assert_drawn(page, only_colors=True)
