"""Imports of the commands before they do anything: their users wait for them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_type_hints

import pytest

from stepscope import comparison, cost, views
from stepscope.cli import COMMANDS
from stepscope.cli.writers import WRITERS, load_writer, write_generic
from stepscope.cost import explain_missing_offer, load_price_table
from stepscope.testing import RunBuilder

HEAVY = {"duckdb", "numpy", "psutil", "rich", "msgspec", "stepscope.diagnosis.build_verdict"}


def list_imported(arguments: str) -> set[str]:
    """List the modules that a process has imported after `stepscope <arguments>`, or before the job
    of `run` would start."""
    code = f"""
import sys
import stepscope.cli
sys.argv = ["stepscope", *{arguments!r}.split()]
if {arguments!r}.startswith("run "):
    from stepscope.cli.launcher import Launcher
    def start(launcher, command, environment):
        print(*sys.modules, file=sys.__stderr__)
        raise SystemExit
    Launcher.run = start
try:
    stepscope.cli.main()
except SystemExit:
    print(*sys.modules, file=sys.__stderr__)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(ended.stderr.splitlines()[0].split())


@pytest.mark.parametrize("arguments", ["--help", "--version"])
def test_help_and_version_import_no_command(arguments: str) -> None:
    imported = list_imported(arguments)
    assert "stepscope.cli" in imported
    assert not HEAVY & imported
    modules = {f"stepscope.cli.{command.module}" for command in COMMANDS.values()}
    assert not modules & imported


def test_views_are_listed_without_the_metadata_of_all_packages() -> None:
    assert not {"duckdb", "importlib.metadata"} & list_imported("show --help")


def test_a_job_starts_before_its_end_is_prepared(tmp_path_factory: pytest.TempPathFactory) -> None:
    out = tmp_path_factory.mktemp("runs") / "run"
    imported = list_imported(f"run --out {out} --spool {out.parent} -- true")
    assert "stepscope.cli.run" in imported
    assert not {"duckdb", "numpy", "rich", "stepscope.diagnosis.build_verdict"} & imported


def test_the_overview_imports_neither_rules_nor_other_views(
    new_run: Callable[..., RunBuilder], tmp_path: Path
) -> None:
    run = new_run()
    run.rank().draw("wait 60 | forward 12 | backward 20 | optimizer 8", 100)
    run.open()
    imported = list_imported(f"show {tmp_path / 'run'}")
    assert "stepscope.cli.writers.overview" in imported
    unused = {"rules.registry", "rule_feed.feed", "diagnosis.traces", "comparison.payload"}
    unused |= {"views.dashboard", "cli.writers.usage"}
    assert not {f"stepscope.{module}" for module in unused} & imported


def test_a_view_imports_nothing_for_buckets_exports_or_other_views(
    new_run: Callable[..., RunBuilder], tmp_path: Path
) -> None:
    new_run().open()
    imported = list_imported(f"show {tmp_path / 'run'} gpu-time --json")
    assert "stepscope.views.gpu_time" in imported
    unused = {"store.bucket", "run.catalog", "exporters", "diagnosis", "analysis.host_work"}
    assert not {f"stepscope.{module}" for module in unused} & imported
    assert "rich" not in imported


@pytest.mark.parametrize("name", WRITERS)
def test_each_writer_is_that_of_its_payload(name: str) -> None:
    payload = next(
        getattr(package, name) for package in (views, comparison, cost) if hasattr(package, name)
    )
    assert get_type_hints(load_writer(payload))["payload"] is payload


def test_a_payload_of_an_installed_view_has_no_writer_of_its_own() -> None:
    installed = type("Overview", (), {"__module__": "elsewhere.views"})
    assert load_writer(installed) is write_generic


def answer(*arguments: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "stepscope", *arguments], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2
    return ended.stderr


def test_a_mistyped_name_is_answered_with_the_one_meant() -> None:
    assert "Did you mean 'diagnose'?" in answer("diagnos", "run")
    assert "Did you mean input-pipeline?" in answer("show", "run", "input-pipelin")
    assert "Did you mean StepOutlier?" in answer("rules", "explain", "stepoutlir")
    table = load_price_table(None)
    assert "(Did you mean p4d.24xlarge?)" in explain_missing_offer("p4d.24xlarg", table)


def test_help_has_one_line_per_command() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "stepscope", "--help"], capture_output=True, text=True, check=True
    )
    lines = ended.stdout.split("Commands:\n")[1].splitlines()
    assert [line.split()[0] for line in lines] == list(COMMANDS)
    assert all(line.endswith(".") and not line.endswith("...") for line in lines)
