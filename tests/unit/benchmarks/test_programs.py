"""Programs of `benchmarks` that run for hours, and are started now and then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_every_program_finds_what_it_imports() -> None:
    """As `python -m benchmarks.NAME` would: a name that has moved is found here, not in hours."""
    programs = sorted(path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py"))
    assert {"kills", "write_faults", "ui"} <= set(programs)
    code = "".join(f"import benchmarks.{program}\n" for program in programs)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
