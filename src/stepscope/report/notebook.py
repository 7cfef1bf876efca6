"""Report as a Jupyter notebook, whose cells create the sections from the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stepscope._version import __version__

_SECTIONS = ("head", "verdict", "job", "system", "framework", "rules")
_TITLE = """# Profiling report

Created by stepscope {version}. Each cell below shows one section of the report. While the job is
running, run the cells again to include newer data. Charts need Matplotlib (`pip install
matplotlib`); without it they are shown as tables. `help(run)` lists the other figures of the
run."""
_PARAMETERS = """# Parameters
RUN = {run!r}
RULES = {rules!r}  # names of rules; empty for all rules
CONFIG = {config!r}  # TOML or JSON file with rule parameters
SETTINGS = {settings!r}  # "Name.parameter=value\""""
_OPEN = """import stepscope
from stepscope.report import show

run = stepscope.open(RUN)
report = run.report(RULES, config=CONFIG, settings=SETTINGS)"""
_TRAINING = """for section in report.sections:  # with initialization, where it took long
    if section.id in {"initialization", "training"}:
        display(show(report, section.id))"""


def render_notebook(
    run: str, *, rules: Sequence[str] = (), config: Path | None = None, settings: Sequence[str] = ()
) -> bytes:
    """Create the notebook, in nbformat 4.5.

    Args:
        run: directory or URL of the run; a path is made absolute, so that the notebook can be
            moved.
        rules, config, settings: see `Run.report`.
    """
    location = str(Path(run).resolve()) if "://" not in run else run
    parameters = _PARAMETERS.format(
        run=location,
        rules=list(rules),
        config=str(config.resolve()) if config else None,
        settings=list(settings),
    )
    cells = [
        _cell("markdown", _TITLE.format(version=__version__), "title"),
        _cell("code", parameters, "parameters"),
        _cell("code", _OPEN, "open"),
        *(_cell("code", f'show(report, "{section}")', section) for section in _SECTIONS),
        _cell("code", _TRAINING, "training"),
    ]
    return msgspec.json.format(msgspec.json.encode(_notebook(cells)), indent=1)


def _notebook(cells: list[dict[str, Any]]) -> Mapping[str, Any]:
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(kind: str, source: str, name: str) -> dict[str, Any]:
    cell: dict[str, Any] = {
        "cell_type": kind,
        "id": name,
        "metadata": {"tags": [name]},
        "source": source.splitlines(keepends=True),
    }
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell
