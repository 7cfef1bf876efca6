"""Sums over the runs of a fleet, against sums in fractions of the planted summaries."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest

from stepscope import errors, fleet
from stepscope.cli import root as command_line
from stepscope.comparison import RunSummary
from stepscope.run import choose_engine
from stepscope.schema import JobState
from stepscope.testing import RunBuilder
from tests.support.buckets import TestBucket
from tests.support.dask_cluster import dask_cluster
from tests.support.fleet_runs import (
    FIRST_S,
    draw_summary,
    draw_tags,
    plant_fleet,
    plant_run,
    store_summary,
)
from tests.support.printed import print_text

COUNT = 2_000
LOST = ("stuck", "down", "repeated")
HOUR_NS = 3_600_000_000_000
ALL = fleet.FleetSelection()
USER = pwd.getpwuid(os.getuid()).pw_name


def report(root: Path | str, by: fleet.Grouping = "project", **options: object) -> fleet.Fleet:
    selection = options.pop("selection", ALL)
    assert isinstance(selection, fleet.FleetSelection)
    reading = fleet.read_fleet(root, selection, **options)  # type: ignore[arg-type]
    return fleet.report_fleet(str(root), reading, selection, by)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, RunSummary]]:
    root = tmp_path_factory.mktemp("fleet")
    return root, plant_fleet(root, COUNT)


def measure(summary: RunSummary) -> tuple[Fraction, Fraction, Fraction | None]:
    """GPU-hours, core-hours and dollars of a run, in fractions."""
    metrics = summary.metrics
    hours = Fraction(metrics["job/wall_time_ns"]) / 3_600_000_000_000
    gpu_hours = hours * Fraction(metrics["job/gpus_count"])
    core_hours = 0 * hours if gpu_hours else hours * Fraction(metrics["job/cores_count"])
    usd = metrics.get("job/cost_usd")
    return gpu_hours, core_hours, None if usd is None else Fraction(usd)


Ratios = Callable[[RunSummary], Mapping[str, float]]


def add(
    summaries: Mapping[str, RunSummary], ratios: Ratios
) -> dict[str, tuple[int, Fraction, Fraction, Fraction]]:
    """Count of runs, GPU-hours, core-hours and dollars by key, of the shares of each run."""
    sums: defaultdict[str, list[Fraction]] = defaultdict(lambda: [Fraction(0)] * 4)
    for summary in summaries.values():
        gpu_hours, core_hours, usd = measure(summary)
        for key, ratio in ratios(summary).items():
            parts = (Fraction(1), *(Fraction(ratio) * x for x in (gpu_hours, core_hours, usd or 0)))
            sums[key] = [total + part for total, part in zip(sums[key], parts, strict=True)]
    return {key: (int(n), *rest) for key, (n, *rest) in sums.items()}  # type: ignore[misc]


def check(amount: fleet.Amount, expected: tuple[Fraction, Fraction, Fraction]) -> None:
    sums = (amount.gpu_hours, amount.core_hours, amount.usd or 0.0)
    assert sums == pytest.approx(tuple(map(float, expected)), rel=1e-14)


def lost_ratio(summary: RunSummary) -> float:
    return sum(summary.metrics.get(f"time/{key}_ratio", 0.0) for key in LOST)


def saving(summary: RunSummary) -> float:
    return summary.metrics.get("verdict/job_saving_ratio", 0.0)


def test_sums_are_those_of_the_planted_runs(planted: tuple[Path, dict[str, RunSummary]]) -> None:
    root, summaries = planted
    payload = report(root)
    assert (payload.run_count, payload.skipped) == (COUNT, [])
    totals = {
        "total": add(summaries, lambda _: {"": 1.0}),
        "lost": add(summaries, lambda s: {"": lost_ratio(s)}),
        "saved": add(summaries, lambda s: {"": saving(s)}),
        "wasted": add(summaries, lambda s: {"": lost_ratio(s) + saving(s)}),
        "bound": add(summaries, lambda s: {"": s.metrics.get("verdict/job_bound_ratio", 0.0)}),
    }
    for name, sums in totals.items():
        check(getattr(payload, name), sums[""][1:])
    priced = [s for s in summaries.values() if "job/cost_usd" in s.metrics]
    assert payload.priced_count == len(priced)
    assert f" in {len(priced)} runs with a price are wasted. " in payload.headline
    assert payload.total.priced_gpu_hours == float(sum(measure(s)[0] for s in priced))
    assert payload.unsized_count == sum(not any(measure(s)[:2]) for s in summaries.values())

    classes = add(
        summaries,
        lambda s: (
            {name[5:-6]: ratio for name, ratio in s.metrics.items() if name.startswith("time/")}
            or {"not_divided": 1.0}
        ),
    )
    assert {row.key for row in payload.classes} == classes.keys()
    for row in payload.classes:
        assert row.run_count == classes[row.key][0]
        check(row.amount, classes[row.key][1:])
        assert row.gpu_ratio == pytest.approx(row.amount.gpu_hours / payload.total.gpu_hours)
    assert sum(row.amount.gpu_hours for row in payload.classes) == pytest.approx(
        payload.total.gpu_hours
    )
    causes = add(summaries, lambda s: {s.texts["verdict/cause"]: 1.0})
    owned = add(
        summaries,
        lambda s: {s.texts["verdict/cause"]: s.metrics.get("verdict/job_share_ratio", 0.0)},
    )
    for cause in payload.causes:
        check(cause.amount, causes[cause.cause][1:])
        check(cause.owned, owned[cause.cause][1:])
    fixes = {
        kind: add(
            summaries,
            lambda s, kind=kind: (
                {  # type: ignore[misc]
                    s.texts["verdict/job_fix"]: s.metrics.get(f"verdict/job_{kind}_ratio", 0.0)
                }
                if "verdict/job_fix" in s.texts
                else {}
            ),
        )
        for kind in ("saving", "bound")
    }
    for fix in payload.fixes:
        assert fix.run_count == fixes["saving"][fix.title][0]
        check(fix.saved, fixes["saving"][fix.title][1:])
        check(fix.bound, fixes["bound"][fix.title][1:])


def test_rows_are_in_the_order_of_their_hours(planted: tuple[Path, dict[str, RunSummary]]) -> None:
    root, summaries = planted
    payload = report(root)
    for rows in (payload.classes, payload.causes, payload.groups):
        hours = [(row.amount.gpu_hours, row.amount.core_hours) for row in rows]
        assert hours == sorted(hours, reverse=True)
    assert [fix.saved.gpu_hours for fix in payload.fixes] == sorted(
        (fix.saved.gpu_hours for fix in payload.fixes), reverse=True
    )
    waste = {
        run_id: tuple(float(x) * (lost_ratio(s) + saving(s)) for x in measure(s)[:2])
        for run_id, s in summaries.items()
    }
    worst = sorted(waste, key=lambda run_id: waste[run_id], reverse=True)[:20]
    assert [job.id for job in payload.jobs] == worst
    assert payload.jobs[0].sentence == summaries[worst[0]].texts["verdict/headline"]


@pytest.mark.parametrize(
    ("by", "names_of"),
    [
        ("project", lambda s: [s.texts["working_directory"]]),
        ("user", lambda _: [USER]),
        ("tag", lambda s: draw_tags(s) or ["no tag"]),
        ("revision", lambda s: [s.texts.get("git_revision", "unknown")]),
    ],
)
def test_groups(
    planted: tuple[Path, dict[str, RunSummary]],
    by: fleet.Grouping,
    names_of: Callable[[RunSummary], list[str]],
) -> None:
    root, summaries = planted
    expected = add(summaries, lambda s: dict.fromkeys(names_of(s), 1.0))
    payload = report(root, by)
    groups = payload.groups
    assert ("A run with several tags counts in the group of each." in payload.notes) == (
        by == "tag"
    )
    assert {group.name: group.run_count for group in groups} == {
        name: sums[0] for name, sums in expected.items()
    }
    for group in groups:
        check(group.amount, expected[group.name][1:])


def test_runs_of_a_tag(planted: tuple[Path, dict[str, RunSummary]]) -> None:
    root, summaries = planted
    payload = report(root, selection=fleet.FleetSelection(tag="tenth"))
    tagged = {run_id: s for run_id, s in summaries.items() if "tenth" in draw_tags(s)}
    assert payload.run_count == len(tagged)
    check(payload.total, add(tagged, lambda _: {"": 1.0})[""][1:])
    assert (payload.tag, payload.tags) == ("tenth", ["even", "tenth"])
    numbers = [int(job.id.rpartition("run")[2]) for job in payload.jobs]
    assert [job.name for job in payload.jobs] == [f"title {number}" for number in numbers]


def test_weeks_and_selected_times(planted: tuple[Path, dict[str, RunSummary]]) -> None:
    root, _ = planted
    groups = report(root, "week").groups
    # Run N is created N hours after the Monday of week 45.
    assert [group.name for group in groups][-2:] == ["2026-W46", "2026-W45"]
    assert groups[-1].run_count == 168
    start_ns = FIRST_S * 10**9
    selection = fleet.FleetSelection(
        since_ns=fleet.parse_time("2026-11-02T05:00", 0), until_ns=start_ns + 8 * 3_600 * 10**9
    )
    assert report(root, selection=selection).run_count == 3
    assert fleet.parse_time("7d", start_ns + 7 * 86_400 * 10**9) == start_ns


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--since", "yesterday"], "is not a time; use a date such as 2026-11-30, a time such as"),
        (["--json", "--csv", "-"], "Only one of --json, --markdown and --csv can go to stdout"),
    ],
)
def test_mistakes(tmp_path: Path, arguments: list[str], reason: str) -> None:
    with pytest.raises(errors.UsageError, match=reason):
        command_line.main(["fleet", str(tmp_path), *arguments], standalone_mode=False)
    with pytest.raises(errors.UsageError, match="Runs cannot be grouped by 'x'"):
        fleet.parse_grouping("x")


def test_runs_without_a_summary_are_summarised_or_named(tmp_path: Path) -> None:
    for name in ("job", "second"):
        job = RunBuilder(tmp_path / name)
        job.rank().draw("forward 12 | backward 20 | optimizer 8", 90)
        job.write()
    silent = RunBuilder(tmp_path / "silent").status(JobState.IN_PROGRESS).write()
    RunBuilder(tmp_path / "running").status(
        JobState.IN_PROGRESS, heartbeat_ns=time.time_ns() + HOUR_NS
    ).write()
    plant_run(tmp_path / "stored", draw_summary(1))
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/run.json").write_bytes(b"{")
    bounded = report(tmp_path, max_summarised=1)
    states = Counter(run.state for run in bounded.skipped)
    assert states == {"running": 1, "lost": 1, "damaged": 1, "not summarised": 1}
    assert {run.id for run in bounded.skipped} >= {"running", silent.name, "damaged"}
    assert "1 run was summarised now." in bounded.notes
    payload = report(tmp_path)
    assert payload.run_count == 3
    assert Counter(run.state for run in payload.skipped) == states - Counter(["not summarised"])
    # The new ones have steps of 40 ms on the 8 cores of the drawn machine, all the time.
    core_hours = payload.total.core_hours - measure(draw_summary(1))[1]
    assert core_hours == pytest.approx(2 * 8 * 90 * 0.04 / 3600)
    file = tmp_path / "stored/results/summary.json"
    file.write_bytes(file.read_bytes().replace(b'"maker":"', b'"maker":"0 before '))
    former = report(tmp_path)
    assert former.total == payload.total
    assert "Figures of 1 run are of another version of stepscope." in former.notes


@pytest.mark.slow("starts two Dask workers and their scheduler")
def test_a_bucket_and_dask_workers_give_the_same_figures(
    tmp_path: Path, bucket: TestBucket
) -> None:
    root = tmp_path / "fleet"
    summaries = plant_fleet(root, 36)
    local = report(root)
    for run_id, summary in summaries.items():
        url = bucket.url(run_id)
        for file in ("run.json", "labels/run.json"):
            if (root / run_id / file).exists():
                bucket.put(f"{run_id}/{file}", (root / run_id / file).read_bytes())
        store_summary(url, summary)
    remote = report(bucket.url())

    def figures(payload: fleet.Fleet) -> fleet.Fleet:
        jobs = [msgspec.structs.replace(job, user="") for job in payload.jobs]
        return msgspec.structs.replace(payload, root="", jobs=jobs)

    assert figures(remote) == figures(local)
    assert {job.user for job in remote.jobs} == {"unknown"}
    with dask_cluster(2) as address:
        engine = choose_engine(address)
        try:
            assert report(root, engine=engine) == local
            assert figures(report(bucket.url(), engine=engine)) == figures(local)
        finally:
            engine.close()


def test_text_and_markdown(
    planted: tuple[Path, dict[str, RunSummary]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, _ = planted
    text = print_text(report(root), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "data pipeline: slow decode" in text
    assert "Headline of run" in text
    file = tmp_path / "week.md"
    command_line.main(
        ["fleet", str(root), "--by", "user", "--markdown", str(file)], standalone_mode=False
    )
    lines = file.read_text().splitlines()
    assert lines[0] == f"# Fleet: {root}"
    assert any(line.startswith(f"| {USER} | 2,000 |") for line in lines)
    assert sum(line[:1].isdigit() and "team" in line for line in lines) == 20
    assert any(re.match(r"\d+\. \*\*title \d+ \(team", line) for line in lines)
    command_line.main(
        ["fleet", str(root), "--csv", "-", "--table", "causes"], standalone_mode=False
    )
    heads = capsys.readouterr().out.splitlines()[0].split(",")
    assert {"title", "run_count", "amount.gpu_hours", "owned.usd"} <= set(heads)


def test_stored_summaries_are_read_without_the_database(
    planted: tuple[Path, dict[str, RunSummary]],
) -> None:
    script = (
        "import sys; from stepscope.cli import root;"
        f"root.main(['fleet', {str(planted[0])!r}, '--json'], standalone_mode=False);"
        "assert 'duckdb' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
