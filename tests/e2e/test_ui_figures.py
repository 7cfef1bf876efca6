"""Figures of the web UI in a real browser: their downloads hold the values of the payloads."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

pytest.importorskip("playwright.sync_api")

from playwright.sync_api import Locator, Page, expect

import stepscope
from stepscope.access import OpenRun
from stepscope.quantities import count, duration, memory, percent
from stepscope.testing import RunBuilder
from tests.support.browsed import IN_A_BROWSER, Ui, assert_drawn, cells, settled
from tests.support.kineto_files import kernel, launch, op, trace
from tests.support.report_runs import many_gpus
from tests.support.tensor_rows import add_tensors
from tests.support.ui_runs import FIRST_STEP, STEPS, imported, two_ranks
from tests.support.under_stepscope import command_json

pytestmark = [
    *IN_A_BROWSER,
    pytest.mark.extended("sixteen pages in detail; test_ui_pages.py compares pages with payloads"),
]
TRACES, JOB, MANY, TENSORS = "training/fixed", "training/job", "many", "tensors"
SAMPLE_NS = 500_000_000
KERNELS = 20
"""Kernel n of the run `many` runs n times, for 1/n² of a millisecond each."""
SOURCE = "".join(f"line_{number} = {number}\n" for number in range(1, 31))


@pytest.fixture(scope="module")
def served(serve: Callable[..., Ui], tmp_path_factory: pytest.TempPathFactory) -> Ui:
    root, source = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("source")
    (source / "train.py").write_text(SOURCE)
    two_ranks(root / TRACES, root / "files")
    many_gpus(root / JOB, nodes=2, gpus=2, seconds=900)
    many_kernels(root / MANY, root / "files" / "many.json")
    tensors(root / TENSORS)
    return serve(root, "--source-root", str(source))


def tensors(run: Path) -> None:
    """Draw a run whose gradient grows tenfold in each step, until it is not finite."""
    builder = RunBuilder(run)
    process = builder.rank(0).draw("forward 120 | backward 200 | optimizer 80", 20)
    process.fact(
        "nan_origin", step=2, phase="loss", operator="div", file="/home/user/train.py", line=31,
        result={"shape": [4], "dtype": "float32", "element_count": 4, "nan_count": 1},
        inputs=[], reached="loss", reached_step=2,
    )  # fmt: skip
    builder.write()
    rows = [
        {"tensor": "fc.weight", "step": step, "l2": 2.0, "update_l2": 0.1, "min": -1.0, "max": 1.0}
        for step in range(4)
    ]
    gradient = {"tensor": "gradient/fc.weight", "collection": "gradients"}
    rows += [{**gradient, "step": step, "l2": 10.0**step} for step in range(3)]
    add_tensors(run, process.info.process, [*rows, {**gradient, "step": 3, "nan_count": 2}])


def many_kernels(run: Path, file: Path) -> None:
    events, at, number = [], 0, 0
    for name in range(1, KERNELS + 1):
        for _ in range(name):
            number += 1
            length = 1_000_000 // name**2
            events += [
                op("aten::mm", at, 50_000, external=number),
                launch(at + 1_000, 5_000, number, external=number),
                kernel(at + 10_000, length, number, name=f"kernel_{name}"),
            ]
            at += length + 100_000
    file.write_bytes(trace(*events))
    imported([file], run)


def show(ui: Ui, run: str, view: str, **options: object) -> Any:
    flags = [part for key, value in options.items() for part in (f"--{key}", str(value))]
    return command_json("show", view, *flags, run=ui.root / run)


def open_screen(ui: Ui, name: str, run: str, **values: str) -> Page:
    more = "".join(f"&{key}={quote(value)}" for key, value in values.items())
    details = "#details" if name == "overview" else ""
    page = ui.open(f"/{name}?run={quote(run)}{more}{details}", accept_downloads=True)
    settled(page)
    return page


def csv_buttons(page: Page, title: str) -> Locator:
    """Return the buttons of figures whose titles begin like this."""
    return page.locator(f'button[aria-label^="CSV of {title}"]')


def download(page: Page, title: str, number: int = 0) -> list[list[str]]:
    """Return the rows of a figure, without the heading; `number` counts those of one title."""
    return lines_of(page, title, number)[1:]


def records(page: Page, title: str) -> list[dict[str, str]]:
    """Return the rows of a table by the names of their fields."""
    heading, *rows = lines_of(page, title)
    return [dict(zip(heading, row, strict=True)) for row in rows]


def lines_of(page: Page, title: str, number: int = 0) -> list[list[str]]:
    with page.expect_download() as event:
        csv_buttons(page, title).nth(number).click()
    return list(csv.reader(Path(event.value.path()).read_text().splitlines()))


def series_of(rows: list[list[str]]) -> dict[str, list[float | None]]:
    """Return the values of a plot by series; the rows are series, position, value."""
    series: dict[str, list[float | None]] = {}
    for name, _, value in rows:
        series.setdefault(name, []).append(float(value) if value else None)
    return series


def samples_of(run: OpenRun, metric: str, node: str) -> np.ndarray:
    """Return the samples of a node, a row per device."""
    rows = run.system(metric=metric, node=node).rows()
    devices = sorted({row["device"] for row in rows})
    return np.array([[row["value"] for row in rows if row["device"] == name] for name in devices])


@pytest.mark.seed("SMP-11", "SMP-13", "SMP-14")
def test_dashboard_of_machines(ui: Ui) -> None:
    """Shares and means are those of the samples; a GPU is active where one of a node is."""
    run = stepscope.open(ui.root / JOB)
    page = open_screen(ui, "overview", JOB)
    for title, metric in (
        ("GPU active time", "gpu_busy_ratio"),
        ("CPU active time", "core_busy_ratio"),
    ):
        active = [samples_of(run, metric, node).max(axis=0).mean() for node in run.nodes]
        shares = [float(row[1]) for row in download(page, title)]
        assert shares == pytest.approx([100 * np.mean(active), 100 * (1 - np.mean(active))])
    for title, metric in (
        ("GPU utilization over time", "gpu_busy_ratio"),
        ("CPU utilization over time", "cpu_busy_ratio"),
    ):
        rows = download(page, title)
        assert {row[0] for row in rows} == set(run.nodes) == {"node-0", "node-1"}
        for node in run.nodes:
            samples = samples_of(run, metric, node).mean(axis=0)
            shown = [(float(x), float(y)) for name, x, y in rows if name == node]
            ticks = np.arange(len(samples)) * SAMPLE_NS
            of_piece = np.searchsorted([x for x, _ in shown], ticks, side="right") - 1
            means = [samples[of_piece == piece].mean() for piece in range(len(shown))]
            assert [y for _, y in shown] == pytest.approx(means)


@pytest.mark.seed("SMP-16", "SMP-18")
def test_the_fifteen_largest_kernels(ui: Ui) -> None:
    """The first by time is launched once, the first by launches takes the least time."""
    page = open_screen(ui, "overview", MANY)
    orders = {"Kernels by time": range(1, 16), "Kernels by launches": range(20, 5, -1)}
    for title, order in orders.items():
        panel = page.get_by_role("region", name=title)
        rows = panel.get_by_role("listitem")
        expect(rows).to_have_count(15)
        names = rows.locator(".ranked-bars-name").all_inner_texts()
        assert names == [f"kernel_{number}" for number in order]
        expect(panel).to_contain_text(f"Top 15 of {KERNELS}.")
    values = rows.locator(".ranked-bars-value").evaluate_all(
        "all => all.map(value => value.firstChild.textContent)"
    )
    assert values == [count(number) for number in range(20, 5, -1)]


@pytest.mark.seed("SMP-21")
def test_dashboard_of_devices(ui: Ui) -> None:
    payload = show(ui, TRACES, "dashboard")
    page = open_screen(ui, "overview", TRACES)
    for title, field in (("Kernel precision", "precision"), ("GPU activity", "activity")):
        shares = {name: float(share) for name, share in download(page, title)}
        assert shares == pytest.approx(
            {part["name"]: 100 * part["share_ratio"] for part in payload[field]["parts"]}
        )


@pytest.mark.seed("SMP-23")
def test_histogram_of_any_annotation(ui: Ui) -> None:
    name = "ProfilerStep#*"
    page = open_screen(ui, "overview", TRACES)
    page.get_by_test_id("histogram-name").fill(name)
    page.get_by_role("button", name="Add").click()
    sources = show(ui, TRACES, "annotations", name=name)["sources"]
    histograms = [h for source in sources for h in source["histograms"] if h["buckets"]]
    expect(csv_buttons(page, name)).to_have_count(len(histograms))
    for number, histogram in enumerate(histograms):
        counts = [int(row[2]) for row in download(page, name, number)]
        assert counts == [bucket["count"] for bucket in histogram["buckets"]]
        assert sum(counts) == STEPS


@pytest.mark.seed("DBI-02")
def test_nodes_of_the_job(ui: Ui) -> None:
    payload = show(ui, JOB, "overview")
    page = open_screen(ui, "overview", JOB)
    headings, rows = cells(page, "table-nodes")
    assert [row[headings.index("node")] for row in rows] == ["node-0", "node-1"]
    for row, node in zip(rows, payload["nodes"], strict=True):
        text = " ".join(row)
        assert node["state"] in text
        for field in ("gpu_busy_ratio", "cpu_busy_ratio"):
            assert percent(node[field], 1) in text
    expect(page.get_by_test_id("gpu-busy")).to_contain_text(percent(payload["gpu_busy_ratio"], 1))
    system = open_screen(ui, "system", JOB)
    (first, _) = show(ui, JOB, "system")["nodes"]
    system.get_by_test_id("metric-statistics").locator("summary").click()
    headings, rows = cells(system, "table-metrics")
    for row, metric in zip(rows, first["metrics"], strict=False):  # rows in view
        assert row[:2] == [metric["title"], metric["device"]]
        if metric["unit"] == "ratio":
            assert row[2] == percent(metric["statistics"]["mean"], 1)
    assert len(rows) > 20
    expect(system.get_by_test_id("samples")).to_contain_text(count(first["sample_count"]))


@pytest.mark.seed("DBI-03", "DBI-04", "DBI-05", "DBI-06")
def test_metrics_of_a_node_over_time(ui: Ui) -> None:
    page = open_screen(ui, "system", JOB)
    page.get_by_role("combobox", name="Node").select_option("node-1")
    settled(page)
    (heat,) = [node for node in show(ui, JOB, "system-heat")["nodes"] if node["node"] == "node-1"]
    assert [row[0] for row in download(page, "Metrics of node-1")] == [
        row["name"] for row in heat["rows"]
    ]
    (node,) = show(ui, JOB, "system-series", name="node-1")["nodes"]
    means = {(series["metric"], series["device"]): series["mean"] for series in node["series"]}
    for fold in ("core-metrics", "flat-metrics"):
        page.get_by_test_id(fold).locator("> summary").click()
    for title, metric, devices in (
        ("GPU busy", "gpu_busy_ratio", ["0", "1"]),
        ("GPU memory in use", "gpu_memory_used_bytes", ["0", "1"]),
        ("Core busy", "core_busy_ratio", [str(core) for core in range(16)]),
        ("I/O wait of core", "core_iowait_ratio", [str(core) for core in range(16)]),
    ):
        shown = series_of(download(page, title))
        assert set(shown) == set(devices)
        for device, values in shown.items():
            assert values == pytest.approx(means[metric, device])
    for title, metric, device in (
        ("Memory of the machine", "memory_used_bytes", ""),
        ("Network", "network_received_bytes_per_s", "eth0"),
    ):
        (values,) = series_of(download(page, title)).values()
        assert values == pytest.approx(means[metric, device])
    page.get_by_test_id("cores").fill("0-2,7")
    page.get_by_test_id("cores").press("Enter")
    assert set(series_of(download(page, "Core busy"))) == {"0", "1", "2", "7"}


@pytest.mark.seed("DBI-03")
def test_a_drag_on_a_chart_selects_the_range_of_all(ui: Ui) -> None:
    page = open_screen(ui, "system", JOB)
    complete = series_of(download(page, "GPU busy"))
    chart = page.get_by_role("region", name="GPU busy", exact=True).locator(".chart")
    chart.scroll_into_view_if_needed()
    chart.locator("svg").wait_for()  # a chart is drawn, and listens, once it is in view
    box = chart.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.4 * box["width"], middle)
    lines = page.locator(".cross-hair")
    expect(lines.nth(1)).to_be_attached()  # on the other charts that are drawn, too
    times = lines.evaluate_all("lines => lines.map(line => line.dataset.time)")
    assert len(set(times)) == 1
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], middle, steps=5)
    page.mouse.up()
    page.wait_for_function("() => new URL(location).searchParams.has('from')")
    settled(page)
    query = page.evaluate("Object.fromEntries(new URL(location).searchParams)")
    begin, end = int(query["from"]), int(query["to"])
    assert 0.3 * 900e9 < begin < 0.5 * 900e9 < end < 0.7 * 900e9
    for title in ("GPU busy", "GPU memory in use", "Memory of the machine"):
        positions = [float(row[1]) for row in download(page, title)]
        assert begin <= min(positions)
        assert max(positions) < end
    page.get_by_role("button", name="Show the full run").click()
    page.wait_for_function("() => !new URL(location).searchParams.has('from')")
    settled(page)
    assert series_of(download(page, "GPU busy")) == complete


@pytest.mark.seed("DBI-08")
def test_rules_with_their_figures(ui: Ui) -> None:
    rules = show(ui, JOB, "insights")["rules"]
    page = open_screen(ui, "insights", JOB)
    fired = [rule for rule in rules if rule["status"] == "IssuesFound"]
    cards = page.get_by_test_id("rule")
    expect(cards).to_have_count(len(fired))
    for card, rule in zip(cards.all(), fired, strict=True):
        expect(card.get_by_role("heading").first).to_contain_text(rule["sentences"][0][1:40])
        violations = (
            f"{count(rule['violation_count'])} of {count(rule['datapoint_count'])} data point"
        )
        expect(card.get_by_test_id("violation")).to_contain_text(violations)
        expect(card).to_contain_text(rule["recommendation"].split("`")[0].strip())
        card.get_by_text("About this rule").click()
        for parameter in rule["parameters"]:
            expect(card).to_contain_text(parameter["name"])
    lacking = [rule for rule in rules if rule["missing"] is not None]
    missing = page.get_by_test_id("not-applicable")
    expect(missing.locator("summary").first).to_contain_text(f"{len(lacking)} not applicable ")
    passed = page.get_by_test_id("passed")
    expect(passed).to_contain_text(f"{len(rules) - len(fired) - len(lacking)} passed")
    assert len(rules) > 20
    assert "NoIssuesFound" not in page.locator("main").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_finding_on_the_timeline(ui: Ui, scheme: str) -> None:
    """The span that violated the rule is shaded, and becomes the range of all screens."""
    rules = show(ui, JOB, "insights")["rules"]
    rule = next(rule for rule in rules if rule["charts"] and rule["first_after_ns"] is not None)
    page = ui.open(f"/insights?run={quote(JOB, safe='')}&rule={rule['rule']}", scheme=scheme)
    settled(page)
    card = page.get_by_test_id("rule").filter(has_text=rule["sentences"][0][1:40])
    expect(card.get_by_text("About this rule").locator("..")).to_have_attribute("open", "")
    label = card.get_by_role("img").first.get_attribute("aria-label")
    assert label is not None
    assert "Shaded: violated from" in label
    card.get_by_role("link", name="Show on timeline").click()
    page.wait_for_url("**/timeline?*")
    begin, end = rule["first_after_ns"], max(rule["last_after_ns"], rule["first_after_ns"] + 1)
    assert f"from={begin}&to={end}" in page.url


@pytest.mark.seed("PTP-03", "PTP-08")
def test_steps_and_ranks_of_traces(ui: Ui) -> None:
    (first, _) = show(ui, TRACES, "steps")["traces"]
    page = open_screen(ui, "steps", TRACES)
    rows = download(page, "Step time, rank 0")
    assert [row[0] for row in rows] == [step["step"] for step in first["steps"]]
    for row, step in zip(rows, first["steps"], strict=True):
        assert sum(float(value) for value in row[1:-1]) == step["wall_ns"]  # but for the median
    gpu = open_screen(ui, "gpu", TRACES, tab="metrics").locator("main")
    expect(gpu).to_contain_text("NVIDIA A100-SXM4-80GB")
    expect(gpu).to_contain_text(memory(85_000_000_000))
    ranks = show(ui, TRACES, "distributed")["windows"][0]["ranks"]
    step = str(FIRST_STEP + 1)
    for step_name in ("", step):
        page = open_screen(ui, "distributed", TRACES, step=step_name)
        if not step_name:
            page.get_by_text("Time of ranks in the traces").click()
        rows = download(page, "Computation and communication")
        for row, rank in zip(rows, ranks, strict=True):
            times = rank
            if step_name:
                index = rank["steps"]["step"].index(step)
                times = {key: values[index] for key, values in rank["steps"].items()}
            parts = ("computation_ns", "overlap_ns", "communication_ns", "other_ns")
            assert [float(value) for value in row[1:]] == [times[part] for part in parts]


@pytest.mark.seed("PTP-04", "PTP-05")
def test_shares_and_search_of_operators_and_kernels(ui: Ui) -> None:
    kernels = show(ui, MANY, "kernels")["traces"][0]
    page = open_screen(ui, "kernels", MANY)
    shares = {row["name"]: float(row["share_ratio"]) for row in records(page, "Kernels")}
    assert shares == {row["name"]: row["share_ratio"] for row in kernels["kernels"]}
    cores = page.get_by_test_id("tensor-core-share")
    expect(cores).to_have_text(percent(kernels["tensor_core_ratio"], 1))
    rows = page.locator('[data-testid="table-kernels"] tbody tr:not([aria-hidden])')
    page.get_by_role("searchbox").first.fill("NEL_1")  # and those that begin like it
    expect(rows).to_have_count(11)
    operators = show(ui, TRACES, "operators")["traces"][0]["operators"]
    page = open_screen(ui, "operators", TRACES)
    downloaded = records(page, "Operators")
    for field in ("device_self_ratio", "host_self_ratio"):
        shares = {row["name"]: float(row[field]) for row in downloaded}
        assert shares == {row["name"]: row[field] for row in operators}


@pytest.mark.seed("PTP-07")
def test_memory_of_a_device_and_of_a_range(ui: Ui) -> None:
    step_ns = 10_000_000
    for options in ({}, {"from": str(step_ns), "to": str(3 * step_ns)}):
        flags = {name: f"{value}ns" for name, value in options.items()}
        (gpu,) = show(ui, TRACES, "memory", rank=0, **flags)["traces"][0]["devices"]
        page = open_screen(ui, "memory", TRACES, **options)
        curve = series_of(download(page, "Memory of GPU 0 over time"))["allocated"]
        assert curve == gpu["allocated_curve_bytes"]
        assert len(curve) == (2 if options else STEPS)
        headings, rows = cells(page, "table-memory-blocks")
        sizes = [row[headings.index("size")] for row in rows]
        assert sizes == [memory(block["size_bytes"]) for block in gpu["blocks"]]
        expect(page.get_by_test_id("memory-peak")).to_contain_text(memory(gpu["peak_bytes"]))


@pytest.mark.seed("SMP-27")
def test_delay_between_a_launch_and_its_kernel(ui: Ui) -> None:
    page = open_screen(ui, "timeline", MANY, find=f"kernel_{KERNELS}")
    page.get_by_test_id("timeline-search").press("Enter")
    details = page.get_by_test_id("timeline-details")
    launched = details.get_by_role("row").filter(has_text="cudaLaunchKernel")
    expect(launched).to_contain_text("launched by")
    expect(launched).to_contain_text(f"{duration(9_000)} earlier")  # drawn 1 µs and 10 µs in


@pytest.mark.seed("PTP-13")
def test_a_stack_frame_leads_to_the_source(ui: Ui) -> None:
    page = open_screen(ui, "timeline", TRACES, find="aten::op0")
    page.get_by_test_id("timeline-search").press("Enter")
    details = page.get_by_test_id("timeline-details")
    stack = details.get_by_role("list", name="Python stack, innermost first")
    stack.get_by_role("button", name="train.py(12): forward").click()
    dialog = page.get_by_role("dialog", name="Source of train.py")
    expect(dialog.locator(".current-line")).to_contain_text("line_12 = 12")
    link = dialog.get_by_role("link", name="Open in VS Code").get_attribute("href")
    assert link is not None
    assert link.startswith("vscode://file/")
    assert link.endswith("/train.py:12")


@pytest.mark.seed("SMP-09")
def test_runs_are_opened_one_after_the_other_and_closed(ui: Ui) -> None:
    page = ui.open("/")
    for run in (TRACES, JOB):
        page.get_by_role("checkbox", name=run).check()
    page.get_by_test_id("open-runs").click()
    tabs = page.get_by_role("list", name="Open runs")
    expect(tabs.get_by_role("listitem")).to_have_count(2)
    page.get_by_test_id("details").locator("summary").first.click()
    expect(page.get_by_test_id("gpu-active")).to_be_visible()  # the charts of the first one
    job, traces = Path(JOB).name, Path(TRACES).name
    for name in (job, traces):
        tabs.get_by_role("link", name=name, exact=True).click()
        expect(tabs.locator('[aria-current="true"]')).to_have_text(name)
        settled(page)
    tabs.get_by_role("link", name=f"Close {traces}").click()
    expect(page.get_by_test_id("verdict-headline")).to_be_visible()  # of the other run
    tabs.get_by_role("link", name=f"Close {job}").click()
    expect(page.get_by_test_id("table-jobs")).to_be_visible()


@pytest.mark.seed("DBT-07")
def test_tensors_by_layer_and_step(ui: Ui) -> None:
    page = open_screen(ui, "tensors", TENSORS)
    gradients = page.get_by_test_id("heat-gradients").get_by_role("img")
    expect(gradients).to_have_attribute("aria-label", re.compile("1 rows by 4 columns.* 1 to 100"))
    expect(page.get_by_test_id("heat-weights").get_by_role("img")).to_have_count(1)
    page.get_by_test_id("table-tensors").get_by_text("gradient/fc.weight").click()
    details = page.get_by_test_id("tensor-details")
    expect(details.get_by_role("button", name="3", exact=True).last).to_be_visible()
    norm = details.get_by_label(re.compile("^L2 norm: .* from 1 to 100. Marks: NaN or infinite at"))
    expect(norm).to_have_count(1)
    assert "--tensor-histograms" in details.inner_text()
    settled(page)
    assert_drawn(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_findings_about_tensors_lead_to_them(ui: Ui, scheme: str) -> None:
    """From the finding to the tensor that it names, and to its step on the timeline."""
    page = ui.open(f"/tensors?run={TENSORS}", scheme=scheme)
    findings = page.get_by_test_id("tensor-findings")
    expect(findings).to_contain_text("ExplodingTensor")
    payload = show(ui, TENSORS, "tensors")
    for finding in payload["findings"]:
        if finding["rule"] != "NanOrigin":
            for sentence in finding["sentences"]:
                expect(findings).to_contain_text(sentence)
    origin = payload["nan_origin"].replace("`", "")
    expect(findings.get_by_test_id("nan-origin")).to_contain_text(origin)
    row = page.get_by_test_id("table-tensors").locator("tbody tr").first
    expect(row).to_contain_text("ExplodingTensor")
    tensors = findings.get_by_label("Tensors of ExplodingTensor")
    tensors.get_by_role("link", name="gradient/fc.weight").click()
    about = page.get_by_label("Findings about gradient/fc.weight")
    expect(about).to_be_in_viewport()
    expect(about).to_contain_text("ExplodingTensor at step 3, in 1 of 4 records")
    settled(page)
    assert_drawn(page)
    about.get_by_role("button", name="3", exact=True).first.click()
    page.wait_for_url("**/timeline?*")
    steps = show(ui, TENSORS, "timeline")["steps"][0]
    start_ns = steps["after_ns"][steps["numbers"].index(3)]
    assert f"t0={start_ns - steps['duration_ns'][3] // 2}" in page.url
