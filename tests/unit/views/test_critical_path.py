"""The views `critical-path` and `what-if`, and the command, as people and machines read them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.errors import UsageError
from stepscope.quantities import duration, percent
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.views import VIEWS, ViewOptions
from stepscope.views.job.recordings import list_missing_views
from stepscope.views.steps.critical_path import NEEDS_TRACE, parse_fixes
from tests.support.command import run_command
from tests.support.imported_runs import import_into
from tests.support.kineto_files import launch, op, trace
from tests.support.simulated_loaders import Loader, draw_loader
from tests.unit.run.test_causal_graphs import CASES

Imported = Callable[..., Run]


@pytest.fixture
def run(imported: Imported) -> Run:
    return imported(trace=CASES["fetch"].content)


def test_critical_path(run: Run) -> None:
    """Of a step of 610: 500 for its batch, 100 for a kernel, 10 until that starts."""
    (path,) = VIEWS["critical-path"](run).paths
    assert (path.step_count, path.step_ns, path.replay_error_ratio) == (4, 610_000, 0)
    assert {row.category: row.step_ns for row in path.shares} == {
        "fetching batches": 500_000, "computation": 100_000, "launching work": 10_000,
    }  # fmt: skip
    assert sum(row.share_ratio for row in path.shares) == pytest.approx(1)
    assert sum(row.share_ratio for row in path.activities) == pytest.approx(1)
    assert (path.ranks, path.notes, path.tied_count) == ([], [], 0)
    kernel_row = next(row for row in path.activities if row.kind == "kernel")
    assert (kernel_row.name, kernel_row.count_per_step) == ("gemm", 1)


def test_what_if(run: Run) -> None:
    (recording,) = VIEWS["what-if"](run).recordings
    first = recording.fixes[0]
    assert (first.fix, first.step_ns, first.reason) == ("no-input", pytest.approx(110_000), None)
    assert first.saving_ratio == pytest.approx(500 / 610)
    rows = {row.fix: row for row in recording.fixes}
    assert rows["workers=2"].step_ns == pytest.approx((4 * 250_000 + 110_000) / 4)
    assert rows["async-copies"].reason == "nothing of this kind was recorded"
    savings = [row.saving_ratio for row in recording.fixes]
    assert savings == sorted(savings, reverse=True)
    (together,) = VIEWS["what-if"](run, ViewOptions(name="no-input+workers=4")).recordings
    assert [row.fix for row in together.fixes] == ["no-input+workers=4"]


def test_a_watched_run_without_traces(tmp_path: Path) -> None:
    """Two workers make a batch in 30 ms, of which the training thread computes in 10."""
    run = draw_loader(RunBuilder(tmp_path / "run"), Loader(60, 10, 2)).open()
    (path,) = VIEWS["critical-path"](run).paths
    assert (path.traces, path.step_count, path.replay_error_ratio) == (["trainer"], 54, 0)
    assert path.shares[0].category == "fetching batches"
    assert path.notes == []
    kinds = {row.name: row.kind for row in path.activities}
    assert (kinds["fetch"], kinds["forward"]) == ("fetch", "phase")
    (recording,) = VIEWS["what-if"](run, ViewOptions(rank=0)).recordings
    rows = {row.fix: row for row in recording.fixes}
    assert rows["faster-loading=2"].step_ns == pytest.approx(15e6, rel=0.02)
    assert rows["faster-kernels=2"].reason == "what it makes faster is not on the critical path"
    assert (rows["batch=2"].reason, rows["batch=2"].saving_ratio) == (NEEDS_TRACE, None)
    assert rows["async-checkpoint"].reason == "nothing of this kind was recorded"
    assert "critical-path" not in {view.name for view in list_missing_views(run)}


def test_a_watched_run_without_steps(new_run: Callable[..., RunBuilder]) -> None:
    run = new_run()
    run.rank().draw("forward 1 | device:forward 5 | optimizer 1", 30)
    opened = run.open()
    assert "record a window" in (VIEWS["critical-path"](opened).missing or "")
    reasons = {view.name: view.reason for view in VIEWS["recordings"](opened).not_recorded}
    assert reasons["critical-path"] == VIEWS["critical-path"](opened).missing


def test_a_fix_beside_the_path(imported: Imported) -> None:
    (recording,) = VIEWS["what-if"](imported(trace=CASES["fetch beside"].content)).recordings
    (row,) = [row for row in recording.fixes if row.fix == "no-input"]
    assert row.reason == "what it makes faster is not on the critical path"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("magic", "There is no fix magic; available: no-launch-gaps, no-python"),
        (
            "workers=0",
            "The factor of workers is 0; it must be a number above 0, such as workers=2.",
        ),
        ("workers=x", "The factor of workers is x; it must be a number above 0"),
        ("workers=inf", "The factor of workers is inf; it must be"),
        ("workers=nan", "The factor of workers is nan; it must be"),
        ("no-sync=2", "The fix no-sync takes no factor; write no-sync alone."),
        ("no-sync+no-sync", "The fix no-sync is named twice."),
    ],
)
def test_fixes_that_are_none(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace(".", r"\.").replace("+", r"\+")):
        parse_fixes(text)


def test_devices_that_are_not_known(imported: Imported) -> None:
    """Nothing is stated where work was launched on a device, but none recorded."""
    run = imported(trace=trace(op("aten::mm", 0, 90_000), launch(10_000, 5_000, 1)))
    for name in ("critical-path", "what-if"):
        view = VIEWS[name](run)
        assert view.missing.startswith("what waits for what is not known: ")
        assert not (view.paths if name == "critical-path" else view.recordings)


def test_a_run_without_the_table_of_waits(tmp_path: Path) -> None:
    """A run of an earlier version has no such table: waits are inferred."""
    file, path = tmp_path / "trace.json", tmp_path / "run"
    file.write_bytes(CASES["event recorded"].content)
    before = VIEWS["critical-path"](import_into(path, file))
    shutil.rmtree(path / "tables" / "synchronisations")
    after = VIEWS["critical-path"](Run(open_run(path)))
    assert (after.paths, after.missing) == (before.paths, None)


def test_the_command(tmp_path: Path) -> None:
    """Text and JSON have the same figures."""
    file, path = tmp_path / "trace.json", str(tmp_path / "run")
    file.write_bytes(CASES["fetch"].content)
    import_into(tmp_path / "run", file)
    done = run_command(tmp_path, "what-if", path, "--fix", "no-input", "--fix", "no-sync", "--json")
    (row,) = json.loads(done.stdout)["recordings"][0]["fixes"]
    assert row["fix"] == "no-input+no-sync"
    text = run_command(tmp_path, "what-if", path, "--fix", "no-input", "--fix", "no-sync").stdout
    for figure in (row["fix"], percent(row["saving_ratio"]), duration(row["step_ns"])):
        assert figure in text
    refused = run_command(tmp_path, "what-if", path, "--fix", "no-sync=2")
    assert refused.returncode == 2
    assert "takes no factor" in refused.stderr
    shown = run_command(tmp_path, "show", path, "critical-path", "--json").stdout
    payload = json.loads(shown)["paths"][0]
    text = run_command(tmp_path, "show", path, "critical-path").stdout
    for share in payload["shares"]:
        assert share["category"] in text
        assert duration(share["step_ns"]) in text
