"""Title, tags and notes of a run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from stepscope import comparison, store
from stepscope.errors import UsageError
from stepscope.run import open_run
from stepscope.schema import JobState
from stepscope.store.revision import import_cache
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from stepscope.views import make_job_row, read_stored_job, summarize_job
from stepscope.views.profiling_report import choose_report_rules, make_report
from tests.support.command import run_command


def drawn(path: Path) -> str:
    builder = RunBuilder(path)
    builder.rank(0).draw("wait 60 | forward 12 | backward 20 | optimizer 8", 40)
    builder.status(JobState.COMPLETED, ended_ns=EPOCH_NS + 60 * 10**9)
    return str(builder.write())


def test_the_command_changes_what_it_names(tmp_path: Path) -> None:
    run = drawn(tmp_path / "run")
    run_command(tmp_path, "tag", run, "b", "a", "a", "--title", " Baseline ")
    assert store.read_labels(run) == store.RunLabels(title="Baseline", tags=["a", "b"])
    shown = run_command(
        tmp_path, "tag", run, "c", "--remove", "a", "--notes", "slow node", "--json"
    ).stdout
    labels = {"title": "Baseline", "tags": ["b", "c"], "notes": "slow node"}
    assert json.loads(shown) == labels
    assert json.loads((tmp_path / "run/labels/run.json").read_text()) == labels
    assert "tags:  b, c" in run_command(tmp_path, "tag", run, "--title", "").stdout
    assert store.read_labels(run).title is None


def test_limits_of_labels(tmp_path: Path) -> None:
    run = drawn(tmp_path / "run")
    refused: list[tuple[dict[str, Any], str]] = [
        ({"title": "x" * 201}, "The title has 201 characters; at most 200 fit."),
        ({"tags": ["x" * 61]}, "A tag has 61 characters; at most 60 fit."),
        ({"tags": map(str, range(51))}, "A run has at most 50 tags."),
    ]
    for labels, message in refused:
        with pytest.raises(UsageError) as error:
            store.update_labels(run, **labels)
        assert str(error.value) == message


def test_rows_have_labels_and_stored_figures(tmp_path: Path) -> None:
    location = drawn(tmp_path / "named")
    for path in Path(location).rglob("*"):  # results are stored of files that no longer change
        os.utime(path, (1e9, 1e9))
    run = open_run(location)
    assert make_job_row(run.reader, "project/named").name == "named"
    summary = summarize_job(run, 1)
    store.update_labels(location, title="Baseline", tags=["a"], notes="n")
    assert read_stored_job(location) == summary  # no result depends on labels
    row = make_job_row(run.reader, "project/named", summary)
    assert (row.name, row.title, row.tags, row.notes) == ("Baseline", "Baseline", ["a"], "n")
    figures = comparison.get_summary(run).metrics
    assert row.steps_per_s == figures["job/throughput_per_s"] == pytest.approx(10)
    assert set(row.step_median_ns) == {100_000_000}
    assert len(row.step_median_ns) == 20


def test_one_name_on_every_surface(tmp_path: Path) -> None:
    run = drawn(tmp_path / "before")
    for path in Path(run).rglob("*"):  # results are stored of files that no longer change
        os.utime(path, (1e9, 1e9))
    run = str(Path(run).rename(tmp_path / "named"))
    for title in ("named", "Baseline"):
        if title != "named":
            store.update_labels(run, title=title)
        overview = run_command(tmp_path, "show", "named", "overview").stdout.splitlines()
        assert overview[0].startswith(f"{title}  ")
        assert overview[1].endswith("; run id drawn")
        assert run_command(tmp_path, "watch", "named").stdout.startswith(f"{title}  completed")
        assert f"base  {title}: " in run_command(tmp_path, "compare", "named", "named").stdout
        assert make_report(open_run(run), choose_report_rules(["StepOutlier"])).name == title
        assert make_job_row(open_run(run).reader, "named").name == title


def test_a_cached_import_has_the_name_of_its_source(tmp_path: Path) -> None:
    imported = import_cache() / "0123456789abcdef"
    assert store.run_name(imported, "trace.json.gz") == "trace.json.gz"
    assert store.directory_name("s3://bucket/team/night/", "drawn") == "night"
    assert store.directory_name(tmp_path / "night", "drawn") == "night"
