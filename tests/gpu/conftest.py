"""A transformer trained on a real GPU under stepscope; skipped, saying so, where there is none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.run import Run
from stepscope.store import open_run

torch = pytest.importorskip("torch")
WORKLOAD = Path(__file__).parents[2] / "benchmarks" / "workloads" / "transformer.py"


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Return a run with one window of the requested depth, which is recorded once."""
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU here")
    runs: dict[str, Path] = {}

    def run(depth: str) -> Run:
        if depth not in runs:
            directory = tmp_path_factory.mktemp(depth)
            runs[depth] = directory / "run"
            window = ["--window", "asked", "--start-step", "40", "--num-steps", "10", f"--{depth}"]
            subprocess.run(
                [
                    *(sys.executable, "-m", "stepscope", "run", "--quiet"),
                    *("--out", str(runs[depth]), *window, "--"),
                    *(sys.executable, str(WORKLOAD), str(directory / "steps.json")),
                ],
                check=True,
                timeout=600,
            )
        return Run(open_run(runs[depth]))

    return run
