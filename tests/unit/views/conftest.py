"""The run with the statistics of a known report, and its report."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.run import Run
from stepscope.store import open_run
from stepscope.views.profiling_report import Report, choose_report_rules, make_report
from tests.support.report_runs import known_job
from tests.support.shared_folder import SharedFolder


@pytest.fixture(scope="session")
def known_path(shared_folder: SharedFolder) -> Path:
    return shared_folder.make("reported-known", known_job)


@pytest.fixture(scope="session")
def known_report(known_path: Path) -> Report:
    return make_report(Run(open_run(known_path)), choose_report_rules())
