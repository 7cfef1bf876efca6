"""Overview and Jobs in a real browser: a real job, output of SageMaker Debugger, and traces."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("playwright.sync_api")

from playwright.sync_api import Locator, Page, expect

from stepscope.quantities import duration, percent
from stepscope.store import open_run
from tests.support.browsed import IN_A_BROWSER, Ui, assert_accessible, settled
from tests.support.debugger_files import (
    DebuggerOutput,
    event,
    kernel as debugger_kernel,
    operator as debugger_operator,
    sample,
    step,
)
from tests.support.kineto_files import kernel, launch, op, span, trace
from tests.support.ui_runs import imported
from tests.support.under_stepscope import E2E, command_json, run_under

pytestmark = [
    *IN_A_BROWSER,
    pytest.mark.extended("a job and twelve pages in detail; test_ui_pages.py draws them"),
]
INT8, INT32 = "turing_int8_i8816gemm_int8_tn", "vectorized_elementwise_kernel<4, FillFunctor<int>>"
KERNELS = {INT8: 4, INT32: 8} | {f"small_{number}": number for number in range(1, 21)}
"""Launches of each kernel in every step; each takes 1 ms of a rank, so do idle gaps."""
STEPS = 3
MS = 1_000_000
TOKYO, NEW_YORK = "Asia/Tokyo", "America/New_York"


def rank_events(rank: int) -> list[dict[str, Any]]:
    """Return steps whose kernels fill the device, of rank 1 only for half of the time."""
    events, at, number = [], 0, 0
    for index in range(STEPS):
        start = at
        for name, count in KERNELS.items():
            for _ in range(count):
                number += 1
                events += [
                    launch(at, 1_000, number),
                    kernel(at + 2_000, MS // (1 + rank) - 3_000, number, name=name),
                ]
                at += MS
        events.append(op("aten::forward", start, at - start))
        events.append(span("user_annotation", f"ProfilerStep#{index}", start, at - start - 1))
    return events


def write_debugger_output(path: Path) -> None:
    """Write steps of which a quarter evaluates, and samples of one idle and one busy node."""
    output = DebuggerOutput(path)
    for node, busy in (("algo-1", 20), ("algo-2", 90)):
        cores = [sample("CPUUtilization", "cpu0", 40, second=s, node=node) for s in range(40)]
        gpus = [sample("GPUUtilization", "gpu0", busy, second=s, node=node) for s in range(40)]
        output.system(node, cores + gpus)
    events = []
    for number in range(40):
        start_us = number * 1_000_000
        is_training = number % 4 < 3
        events.append(step(number, start_us, 800_000, "TRAIN" if is_training else "EVAL"))
        if is_training:
            events.append(event("Forward-node", "Net_0", start_us, 200_000))
            events.append(event("Backward-node", "Net_0", start_us + 200_000, 600_000))
    events.append(debugger_operator("aten::mm", 100_000, 60_000, step=0))
    events.append(debugger_kernel("volta_sgemm", 100_000, 30_000, step=0))
    output.events("77-algo-1", events)


@pytest.fixture(scope="module")
def served(serve: Callable[..., Ui], tmp_path_factory: pytest.TempPathFactory) -> Ui:
    directory = tmp_path_factory.mktemp("overview")
    root = directory / "runs"
    root.mkdir()
    script = E2E / "scripts" / "mnist_cnn.py"
    options = ("--start-step", "8", "--num-steps", "4")
    job = run_under(root / "job", sys.executable, str(script), options=options)
    assert job.code == 0, job.stderr
    write_debugger_output(directory / "profiler-output")
    imported([directory / "profiler-output"], root / "debugger")
    for rank in (0, 1):
        (directory / f"rank{rank}.json").write_bytes(trace(*rank_events(rank)))
    imported([directory / "rank0.json", directory / "rank1.json"], root / "traces")
    return serve(root)


def overview(ui: Ui, run: str, **options: str) -> Page:
    """Open the overview of a run with its details."""
    page = ui.open(f"/overview?run={run}#details", **options)
    settled(page)
    return page


def chart(page: Page, title: str) -> Locator:
    """Return the chart in the panel of a title; its label has its numbers."""
    return page.get_by_role("region", name=title, exact=True).locator(".chart")


def shares(ratios: dict[str, float]) -> re.Pattern[str]:
    """Match the label of a pie with these parts, largest first."""
    parts = (f"{re.escape(name)} {percent(ratio, 1)}" for name, ratio in ratios.items())
    return re.compile(f": {', '.join(parts)}")


@pytest.mark.seed("DBI-02", "DBI-09")
def test_a_real_job_has_its_summary_nodes_and_time_of_the_framework(ui: Ui) -> None:
    payload = command_json("show", "usage", run=ui.root / "job")
    titles = {chart["title"] for chart in payload["framework"]}
    assert {
        "TRAIN, EVAL and others",
        "Forward and backward",
        "General framework operations",
        "Operators on the CPU and kernels on GPUs",
        "Time by CPU operator",
    } <= titles
    page = overview(ui, "job")
    for shown in payload["framework"]:
        ratios = {part["name"]: part["share_ratio"] for part in shown["parts"]}
        expect(chart(page, shown["title"])).to_have_attribute("aria-label", shares(ratios))
    training = {part["name"]: part["share_ratio"] for part in payload["framework"][0]["parts"]}
    assert training["EVAL"] > 0, "the script evaluates after each epoch"
    summary = page.get_by_test_id("training-job")
    (node,) = open_run(ui.root / "job").nodes()
    for text in ("job", "Completed", "Training loop duration (s)"):
        expect(summary).to_contain_text(text)
    system = page.get_by_test_id("system-usage")
    expect(system).to_contain_text(f"{node}: median CPU utilization")
    expect(system.get_by_role("row").filter(has_text="CPU memory")).to_have_count(1)
    notes = page.get_by_test_id("framework-usage")
    expect(notes).to_contain_text("The most expensive CPU operator was ")


@pytest.mark.seed("DBI-09")
def test_output_of_debugger_has_modes_passes_and_both_processors(ui: Ui) -> None:
    page = overview(ui, "debugger")
    passes = shares({"backward": 600 / 800, "forward": 200 / 800})
    expect(chart(page, "Forward and backward")).to_have_attribute("aria-label", passes)
    processors = shares({"CPU operators": 60 / 90, "GPU kernels": 30 / 90})
    operators = chart(page, "Operators on the CPU and kernels on GPUs")
    expect(operators).to_have_attribute("aria-label", processors)
    modes = shares({"TRAIN": 24 / 39.8, "EVAL": 8 / 39.8, "others": 7.8 / 39.8})
    expect(chart(page, "TRAIN, EVAL and others")).to_have_attribute("aria-label", modes)
    sentences = page.get_by_test_id("system-usage").get_by_role("listitem")
    expect(sentences.first).to_have_text(
        "algo-1 is underutilized: p95 of GPU utilization 20.0%, of CPU utilization 40.0%. "
        "Consider a smaller machine."
    )
    expect(sentences.last).to_have_text("algo-2 is well utilized: median GPU utilization 90.0%.")


@pytest.mark.seed("SMP-17", "SMP-20")
def test_all_kernels_of_traces_and_their_precisions(ui: Ui) -> None:
    page = overview(ui, "traces")
    ranking = page.get_by_role("list", name="Kernels by launches").get_by_role("listitem")
    expect(ranking).to_have_count(15)
    panel = page.get_by_test_id("all-kernel-launches")
    panel.locator("summary").click()
    expect(panel.locator("tbody tr")).to_have_count(len(KERNELS))
    rows = panel.locator("tbody tr").evaluate_all(
        "all => all.map(row => [...row.cells].map(cell => cell.innerText))"
    )
    assert {name: int(count.replace(",", "")) for name, count in rows} == {
        name: 2 * STEPS * count for name, count in KERNELS.items()
    }
    counts = [int(count.replace(",", "")) for _, count in rows]
    assert counts == sorted(counts, reverse=True)
    total = sum(KERNELS.values())
    unknown = total - KERNELS[INT8] - KERNELS[INT32]
    precisions = {"other": unknown, "INT32": KERNELS[INT32], "INT8": KERNELS[INT8]}
    ratios = {name: count / total for name, count in precisions.items()}
    expect(chart(page, "Kernel precision")).to_have_attribute("aria-label", shares(ratios))


@pytest.mark.seed("SMP-12", "SMP-19")
def test_traces_have_utilization_over_time_and_steps_timed_on_the_device(ui: Ui) -> None:
    page = overview(ui, "traces")
    label = chart(page, "GPU utilization over time").get_attribute("aria-label")
    assert label is not None
    tops = dict(re.findall(r"(rank \d, GPU 0) from [\d.]+% to ([\d.]+)%", label))
    assert float(tops["rank 0, GPU 0"]) > 98
    # A bin of 2.2 ms holds up to three of the kernels, each of half a millisecond.
    assert 49 < float(tops["rank 1, GPU 0"]) < 60
    expect(page.get_by_test_id("step-histogram")).to_contain_text("timed on the device")
    page = overview(ui, "job")
    expect(page.get_by_test_id("step-histogram")).to_contain_text("timed on the host")


def test_the_time_of_the_job_is_a_bar_and_a_strip_that_leads_to_ranges(ui: Ui) -> None:
    payload = command_json("show", "job-time", run=ui.root / "job")
    begin, duration_ns = payload["start_after_ns"], payload["duration_ns"]
    page = overview(ui, "job")
    legend = page.get_by_role("list", name="Time of the job by class")
    for one in payload["classes"]:
        if one["share_ratio"] >= 0.005:
            expect(legend).to_contain_text(f"{one['title']} {percent(one['share_ratio'])}")
    expect(page.get_by_test_id("goodput")).to_have_text(percent(payload["goodput_ratio"]))
    expect(page.get_by_test_id("first-step")).to_have_text(duration(payload["first_step_ns"]))

    last = payload["ranks"][0]["intervals"][-1]
    strip = page.get_by_test_id("job-strip").get_by_role("slider").first
    strip.focus()
    page.keyboard.press("End")
    expect(page.get_by_test_id("job-strip-text")).to_contain_text(duration(last["duration_ns"]))
    page.keyboard.press("Enter")
    start = last["start_ns"] + begin
    expect(page).to_have_url(re.compile(f"from={start}&to={start + last['duration_ns']}$"))
    page.get_by_role("button", name="Show the full run").click()
    settled(page)

    box = strip.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 4, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, middle, steps=3)
    page.mouse.up()
    page.wait_for_function("() => new URL(location).searchParams.has('to')")
    query = parse_qs(urlsplit(page.url).query)
    pixel_ns = duration_ns / box["width"]
    for name, ratio in (("from", 1 / 4), ("to", 1 / 2)):
        expected = max(0, begin + ratio * duration_ns)  # a range begins with the first record
        assert abs(int(query[name][0]) - expected) <= 2 * pixel_ns


def test_ranks_without_a_trace_come_after_the_answer_that_they_do_not_change(
    serve: Callable[..., Ui], tmp_path: Path
) -> None:
    info = {"backend": "nccl", "rank": 0, "world_size": 2}
    (tmp_path / "rank0.json").write_bytes(trace(*rank_events(0), distributedInfo=info))
    imported([tmp_path / "rank0.json"], tmp_path / "runs" / "one")
    ui = serve(tmp_path / "runs")
    page = ui.open("/overview?run=one")
    texts = page.locator("#verdict, .leads, .quality-notes").all_inner_texts
    expect(page.locator(".quality-notes")).to_contain_text("The run has no trace of rank 1")
    assert ["no trace of rank 1" in text for text in texts()] == [False, False, True]
    expect(page.get_by_test_id("doubts")).to_contain_text("no collective was found")
    expect(page.get_by_test_id("lead-ranks")).to_contain_text("1 of 2 ranks")
    ui.settle()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("run", ["job", "debugger", "traces"])
def test_the_overview_is_accessible(ui: Ui, run: str, scheme: str) -> None:
    page = overview(ui, run, scheme=scheme)
    assert page.locator("main [role=alert]").count() == 0
    for heading in ("Training job summary", "System usage statistics", "Framework metrics summary"):
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
    assert_accessible(page)


def job_rows(page: Page) -> Locator:
    """Return the rows of the list of runs."""
    return page.get_by_test_id("table-jobs").locator("tbody tr")


def minute(time: datetime, zone: str) -> str:
    """Write a time as the control does in a time zone."""
    return f"{time.astimezone(ZoneInfo(zone)):%Y-%m-%dT%H:%M}"


@pytest.mark.seed("SMP-08")
def test_jobs_are_selected_by_a_range_of_creation_times(ui: Ui) -> None:
    created_s = open_run(ui.root / "job").info.created_ns / 1e9
    created = datetime.fromtimestamp(created_s, UTC).replace(second=0, microsecond=0)
    page = ui.open("/", timezone_id=TOKYO)
    rows = job_rows(page)
    expect(rows).to_have_count(3)
    page.get_by_role("combobox", name="Created").select_option("range")
    expect(rows).to_have_count(3)

    page.get_by_label("From", exact=True).fill(minute(created + timedelta(days=1), TOKYO))
    page.get_by_label("From", exact=True).press("Tab")
    expect(rows).to_have_count(0)
    expect(page.get_by_test_id("table-jobs")).to_contain_text("3 hidden by filters")
    page.get_by_label("From", exact=True).fill(minute(created - timedelta(minutes=1), TOKYO))
    page.get_by_label("To", exact=True).fill(minute(created, TOKYO))
    expect(rows.filter(has_text="job")).to_have_count(1)
    address = page.url
    assert f"created_to={created:%Y-%m-%dT%H}%3A{created:%M}Z" in address
    page.get_by_label("To", exact=True).fill(minute(created - timedelta(minutes=1), TOKYO))
    expect(rows).to_have_count(0)
    assert_accessible(page)

    # The address has the range, whatever the time zone of the reader.
    page = ui.open(address.removeprefix(ui.address), timezone_id=NEW_YORK, scheme="dark")
    expect(job_rows(page).filter(has_text="job")).to_have_count(1)
    expect(page.get_by_label("To", exact=True)).to_have_value(minute(created, NEW_YORK))
    settled(page)
    assert_accessible(page)
