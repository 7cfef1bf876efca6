"""A stand-in for NVIDIA's driver library, compiled from `tests/unit/monitor/stub/nvml.c`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "unit" / "monitor" / "stub" / "nvml.c"


def compile_nvml(directory: Path) -> Path:
    """Write `libnvidia-ml.so.1` into a directory, for LD_LIBRARY_PATH; return the directory."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = str(directory / "libnvidia-ml.so.1")
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, str(SOURCE)]
    subprocess.run(command, check=True)
    return directory
