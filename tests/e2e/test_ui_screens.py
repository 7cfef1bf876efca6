"""Screens in a browser: overview, steps, ranks, jobs, fleet, comparison, XGBoost, SQL."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api")

from playwright.sync_api import expect

from stepscope.quantities import change, count_of, dollars, duration, in_unit, percent
from tests.support.browsed import IN_A_BROWSER, Ui, assert_accessible, assert_drawn, cells, settled
from tests.support.fleet_runs import plant_fleet
from tests.support.screen_runs import LINE, RUNS, draw_runs
from tests.support.under_stepscope import command_json

pytestmark = [
    *IN_A_BROWSER,
    pytest.mark.extended("screens in detail; test_ui_pages.py draws every screen"),
]
SENTENCE = "Rank 1 is late in 100% of steps by 11 ms: slow data loading."


@pytest.fixture(scope="module")
def served(serve: Callable[..., Ui], tmp_path_factory: pytest.TempPathFactory) -> Ui:
    root = tmp_path_factory.mktemp("runs")
    draw_runs(root)
    return serve(root)


def test_the_overview_answers_in_one_screenful(ui: Ui) -> None:
    payload = command_json("show", "overview", run=ui.root / "lines")
    verdict = payload["verdict"]
    page = ui.open("/overview?run=lines", permissions=["clipboard-read", "clipboard-write"])
    page.set_viewport_size({"width": 1440, "height": 900})
    settled(page)
    headline = page.get_by_test_id("verdict-headline").inner_text()
    assert " ".join(headline.split()) == verdict["headline"].replace("`", "")
    tops = []
    for testid in ("job", "evidence", "step-times", "fix-rows"):
        part = page.get_by_test_id(testid).first
        expect(part).to_be_in_viewport(ratio=1)
        box = part.bounding_box()
        assert box is not None
        tops.append((box["x"], box["y"]))
    job, evidence, strip, fixes = tops
    assert job[1] < min(evidence[1], strip[1]), "the whole job, and its steps opened below"
    assert evidence[0] < strip[0] == fixes[0], "the step times are beside the evidence"
    bars = page.locator(".phases li").all_inner_texts()
    shares = {text.split("\n")[0]: text.split("\n")[-1] for text in bars}
    for bar in verdict["bars"]:
        if bar["share_ratio"] >= 0.005:
            assert shares[bar["phase"].replace("_", " ")] == percent(bar["share_ratio"])
    expect(page.locator(".pies")).to_have_count(0)  # until the details are opened

    lines = page.get_by_test_id("evidence").get_by_role("listitem")
    expect(lines).to_have_count(len(verdict["evidence"][1:4]))
    for line, fact in zip(lines.all(), verdict["evidence"][1:4], strict=True):
        expect(line).to_contain_text(fact["text"])
        expect(line.get_by_role("link").last).to_have_attribute(
            "href", re.compile(f"/{fact['source']}")
        )
    lines.get_by_role("link", name="train.py:1").click()
    expect(page.get_by_role("dialog").locator(".current-line")).to_contain_text(LINE)
    page.keyboard.press("Escape")

    rows = page.get_by_test_id("fix-rows").first.get_by_role("listitem")
    for row, fix in zip(rows.all(), verdict["fixes"][:3], strict=True):
        expect(row).to_contain_text(fix["title"])
        expect(row.locator("p").first).to_be_hidden()
        saving = "n/a" if fix["prediction"] is None else percent(fix["job_saving_ratio"])
        expect(row.locator(".saving")).to_contain_text(saving)
        row.get_by_role("button", name="Copy the change").click()
        expect(row.get_by_role("button", name="Copied")).to_be_visible()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == fix["how"].replace("`", "")
    for name in ("input-pipeline", "ranks"):
        page.goto(f"{ui.address}/overview?run=late")
        page.get_by_test_id(f"lead-{name}").click()
        page.wait_for_url(f"**/{name}?run=late")


def test_evidence_from_samples_leads_to_the_time_of_the_steps(ui: Ui) -> None:
    series = command_json("show", "step-series", run=ui.root / "slow")["start_after_ns"]
    page = ui.open("/overview?run=slow")
    legend = page.get_by_role("list", name="Colours of step time").get_by_role("listitem")
    expect(legend).to_have_text(["data wait", "moving median"])  # the phase of the suspect
    page.get_by_test_id("evidence").get_by_role("link", name="System").click()
    page.wait_for_url(f"**/system?**from={series[0]}&to={series[-1]}")


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
    page = ui.open("/ranks?run=lines")
    line = page.get_by_test_id("rank-detail").locator(".rank-lines li").first
    expect(line).to_contain_text(f"{duration(60e6)}augment train.py:1")
    line.get_by_role("button").click()
    expect(page.get_by_role("dialog").locator(".current-line")).to_contain_text(LINE)


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
    expect(row.locator(".cause.alarm")).to_have_text(sentence["headline"])
    page.get_by_role("link", name="1 stuck").click()
    expect(page.get_by_role("combobox", name="Status")).to_have_value("stuck")
    expect(page.get_by_test_id("table-jobs").locator("tbody tr")).to_have_count(1)


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
    edges, counts = payload["edges_ns"], payload["counts"]
    at = counts.index(max(counts))
    text = f"{duration(edges[at])} to {duration(edges[at + 1])}{count_of(counts[at], 'step')}"
    for y in range(int(box["y"]) + 20, int(box["y"] + box["height"]) - 80, 4):  # down the axis
        page.mouse.move(box["x"] + box["width"] - 140, y)
        if text in strip.inner_text().replace("\n", ""):
            break
    else:
        raise AssertionError(f"the histogram has no bin of {text}")
    page.mouse.move(box["x"] + 120, box["y"] + 150)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 150, steps=5)
    page.mouse.up()
    page.wait_for_function("() => new URL(location).searchParams.has('from')")
    settled(page)
    query = page.evaluate("Object.fromEntries(new URL(location).searchParams)")
    assert {int(query["from"]), int(query["to"])} <= set(payload["start_after_ns"])
    page.get_by_role("navigation").get_by_role("link", name="Insights").click()
    settled(page)
    assert f"from={query['from']}&to={query['to']}" in page.url  # of all screens
    page.go_back()
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


@pytest.mark.parametrize(("scheme", "red"), [("light", (179, 38, 30)), ("dark", (255, 138, 128))])
def test_what_differs_is_red_below_the_factor(ui: Ui, scheme: str, red: tuple[int, ...]) -> None:
    payload = command_json("compare", str(ui.root / "slow"), run=ui.root / "late")
    page = ui.open("/compare?run=slow&with=late", scheme=scheme)
    headline = page.get_by_test_id("compare-headline")
    factor, _, hardware = payload["headline"].partition(". ")
    assert factor.startswith("Steps are ")
    assert hardware.startswith("The runs also differ in ")
    expect(headline.get_by_role("heading")).to_have_text(f"{factor}.")
    expect(headline).to_contain_text(hardware)
    differences = page.get_by_test_id("compare-differences").get_by_role("listitem")
    expect(differences.filter(has_text="ranks 3 → 1")).to_have_css("color", f"rgb{red}")
    terms = [term for group in payload["contract"] for term in group["differences"]]
    expect(differences).to_have_count(sum(term["standing"] == "different" for term in terms))
    for side in ("base", "other"):
        times = [part for part in payload["steps"]["parts"] if part["base_ns"] or part["other_ns"]]
        label = page.get_by_test_id("step-bars").locator(".chart").get_attribute("aria-label")
        assert label is not None
        for part in times:
            name, time = part["name"].replace("_", " "), part[f"{side}_ns"]
            assert f"{name} {duration(time) if time else 0}" in label
    lanes = page.locator(".aligned-lane canvas")
    expect(lanes.first).to_be_visible()  # of both steps, from their start, as wide as each other
    widths = lanes.evaluate_all("all => all.map(lane => lane.getBoundingClientRect().left)")
    assert len(widths) >= 2
    assert len(set(widths)) == 1


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


def test_the_list_of_runs_has_the_answer_of_each(ui: Ui) -> None:
    page = ui.open("/")
    page.set_viewport_size({"width": 2560, "height": 900})  # with all columns
    page.reload()
    expect(page.get_by_test_id("table-jobs").locator("tbody tr")).to_have_count(len(RUNS))
    expect(page.locator("main")).not_to_contain_text("pending")
    jobs = {job["id"]: job for job in page.request.get(f"{ui.address}/api/jobs").json()["jobs"]}
    headings, rows = cells(page, "table-jobs")
    assert {"status", "bottleneck", "saving", "step time", "steps/s", "duration"} <= set(headings)
    assert {row[headings.index("run")].strip() for row in rows} == set(RUNS)
    for row in rows:
        texts = dict(zip(headings, row, strict=True))
        job = jobs[texts["run"].strip()]
        verdict, medians = job["verdict"], job["step_median_ns"]
        if verdict["suspect"] not in {"healthy", "insufficient_evidence"} and not verdict["stuck"]:
            assert texts["bottleneck"].endswith(f", {percent(verdict['share_ratio'])}")
        assert texts["saving"].endswith(percent(verdict["saving_ratio"]))
        assert texts["duration"] == duration(job["duration_ns"])
        assert texts["step time"].endswith(duration(medians[-1]) if medians else "n/a")
        if medians:
            name = f"from {duration(medians[0])} to {duration(medians[-1])}"
            line = page.get_by_role("row", name=re.compile(f"Select {job['id']} "))
            expect(line.get_by_role("img")).to_have_attribute("aria-label", re.compile(name))


def test_runs_are_labelled_grouped_and_compared(ui: Ui) -> None:
    page = ui.open("/")
    rows = page.get_by_test_id("table-jobs").locator("tbody tr:not(.group)")
    expect(rows).to_have_count(len(RUNS))
    row = rows.filter(has=page.locator('a[href*="run=late"]'))
    row.get_by_role("button", name="Edit title, tags and notes").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Title").fill("Before")
    dialog.get_by_label("Tags").fill("starved, v1")
    dialog.get_by_role("button", name="Save").click()
    expect(row).to_contain_text("Before")
    labels = {"title": "Before", "tags": ["starved", "v1"], "notes": ""}
    assert command_json("tag", run=ui.root / "late") == labels
    groups = page.get_by_test_id("table-jobs").locator("tr.group")
    for by in ("directory", "revision", "tag"):
        page.get_by_role("combobox", name="Group by").select_option(by)
        expect(groups).to_have_count(2 if by == "tag" else 1)
    expect(groups.filter(has_text="starved, v1")).to_contain_text("1")
    page.get_by_role("button", name="Columns").click()
    page.get_by_label("tags", exact=True).uncheck()
    expect(page.get_by_role("columnheader", name="tags")).to_have_count(0)
    page.reload()
    expect(rows).to_have_count(len(RUNS))
    expect(page.get_by_role("columnheader", name="tags")).to_have_count(0)
    assert_drawn(page)
    page.emulate_media(color_scheme="dark")
    assert_drawn(page, only_colors=True)
    for number, name in enumerate(("late", "slow", "fixed"), 1):
        page.get_by_label(f"Select {name}").check()
        expect(page.get_by_test_id("compare-runs")).to_have_count(1 if number == 2 else 0)
    page.get_by_label("Select fixed").uncheck()
    page.get_by_test_id("compare-runs").click()
    page.wait_for_url("**/compare?**")
    # The title is the name of the run on every screen.
    expect(page.locator("main h3").filter(has_text="Before")).to_have_count(2)
    assert (
        command_json("compare", str(ui.root / "slow"), run=ui.root / "late")["base"]["name"]
        == "Before"
    )
    page.goto(f"{ui.address}/overview?run=late")
    expect(page.get_by_role("heading", level=1)).to_have_text("Before")
    expect(page.get_by_role("list", name="Open runs").get_by_role("listitem")).to_contain_text(
        "Before"
    )


def test_all_runs_are_added_up(serve: Callable[..., Ui], tmp_path: Path) -> None:
    plant_fleet(tmp_path, 60)  # with prices and fixes
    ui = serve(tmp_path)
    page = ui.open("/fleet")
    for by in ("user", "project", "tag", "revision", "week"):
        payload = command_json("fleet", "--by", by, run=tmp_path)
        page.get_by_label("Group by").select_option(by)
        settled(page)
        wasted = [row for row in payload["groups"] if row["wasted"]["gpu_hours"] > 0]
        wasted.sort(key=lambda row: -row["wasted"]["gpu_hours"])
        bars = page.get_by_role("list", name=f"Wasted by {by}").get_by_role("listitem")
        expect(bars).to_have_count(min(4, len(wasted)))
        for bar, row in zip(bars.all(), wasted, strict=False):
            expect(bar).to_contain_text(row["name"])
            expect(bar).to_contain_text(in_unit(row["wasted"]["gpu_hours"], "hours"))
    assert page.get_by_test_id("fleet-headline").inner_text() == payload["headline"]
    money = f"{dollars(payload['wasted']['usd'])} of {dollars(payload['total']['usd'])}"
    if payload["priced_count"] < payload["run_count"]:
        money += f" in {payload['priced_count']} runs with a price"
    assert f"{money} are wasted." in payload["headline"]
    legend = page.get_by_role("list", name="Hours by class of time").get_by_role("listitem")
    for text, row in zip(legend.all_inner_texts(), payload["classes"], strict=True):
        amount = f"{in_unit(row['amount']['gpu_hours'], 'hours')}, {dollars(row['amount']['usd'])}"
        assert text == f"{row['title']} {percent(row['gpu_ratio'])} {amount}"
    for title, rows, field in (
        ("Bottlenecks", payload["causes"], "amount"),
        ("Predicted savings", payload["fixes"], "saved"),
    ):
        bars = page.get_by_role("list", name=title).get_by_role("listitem")
        for bar, row in zip(bars.all(), rows[:4], strict=True):
            expect(bar).to_contain_text(row["title"])
            expect(bar).to_contain_text(in_unit(row[field]["gpu_hours"], "hours"))
    headings, rows = cells(page, "table-fleet-jobs")
    assert len(rows) == len(payload["jobs"]) == 20
    for job, row in zip(payload["jobs"], rows, strict=True):
        assert row[0].startswith(job["name"])
        assert row[headings.index("wasted cost")] == dollars(job["wasted"]["usd"])
        fix = "" if job["fix"] is None else f" Fix: {job['fix']}."
        assert row[-1] == job["sentence"] + fix
    page.get_by_test_id("fleet-tables").locator("> summary").click()
    headings, rows = cells(page, "table-fleet-groups")
    assert headings[:2] == ["week", "runs"]
    assert [row[0] for row in rows] == [group["name"] for group in payload["groups"]]
    _, rows = cells(page, "table-fleet-classes")
    assert [row[0] for row in rows] == [row["title"] for row in payload["classes"]]
    assert_drawn(page)
    page.get_by_role("button", name="Dark theme").click()
    assert_drawn(page, only_colors=True)
    ui.settle()
