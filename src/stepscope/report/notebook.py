"""Report as a Jupyter notebook: cells create the sections from the run, and hold their outputs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stepscope._version import __version__
from stepscope.report.display import show
from stepscope.views.profiling_report import Report

_SECTIONS = ("head", "verdict", "job", "job-time", "system", "framework", "rules")
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
_TRAINING = """for section in report.sections:  # with those that not every job has
    if section.id in {"initialization", "training", "xgboost"}:
        display(show(report, section.id))"""
_TRAINING_SECTIONS = ("initialization", "training", "xgboost")


def render_notebook(
    report: Report,
    run: str,
    *,
    directory: Path,
    rules: Sequence[str] = (),
    config: Path | None = None,
    settings: Sequence[str] = (),
) -> bytes:
    """Create the notebook, in nbformat 4.5.

    Args:
        report: the report, which the outputs of the cells show.
        run: directory or URL of the run.
        directory: directory of the notebook. Paths in it are relative to that, so that it can be
            moved together with the run, and does not tell where on a machine they are.
        rules, config, settings: those of the report; see `Run.report`.
    """
    parameters = _PARAMETERS.format(
        run=run if "://" in run else os.path.relpath(run, directory),
        rules=list(rules),
        config=os.path.relpath(config, directory) if config else None,
        settings=list(settings),
    )
    present = [section.id for section in report.sections if section.id in _TRAINING_SECTIONS]
    shown = {"training": present} | {section: [section] for section in _SECTIONS}
    cells = [
        _cell("markdown", _TITLE.format(version=__version__), "title"),
        _cell("code", parameters, "parameters"),
        _cell("code", _OPEN, "open"),
        *(_cell("code", f'show(report, "{section}")', section) for section in _SECTIONS),
        _cell("code", _TRAINING, "training"),
    ]
    for cell in cells[1:]:
        cell["outputs"] = [_make_output(report, section) for section in shown.get(cell["id"], ())]
    return msgspec.json.format(msgspec.json.encode(_notebook(cells)), indent=1)


def _notebook(cells: list[dict[str, Any]]) -> Mapping[str, Any]:
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _make_output(report: Report, section: str) -> dict[str, Any]:
    """Make the output of a cell that shows a section."""
    html = show(report, section).html
    data = {"text/html": html.splitlines(keepends=True), "text/plain": [f"({section})"]}
    return {"output_type": "display_data", "data": data, "metadata": {}}


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
