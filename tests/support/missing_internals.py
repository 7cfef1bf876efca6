"""Jobs in which a framework lacks attributes of `capture/frameworks/internals.py`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from stepscope.capture.frameworks.internals import Internal

# Imported before that of stepscope, in which adapters look the attributes up. The job may run in an
# environment without stepscope.
_WITHOUT = """
import os, sys

here = sys.path.index(os.path.dirname(__file__))
sys.path[here] = os.path.dirname(os.environ["STEPSCOPE_PACKAGE"])
from stepscope.capture.frameworks import internals

missing = os.environ["MISSING"].split()
read = internals.read
internals.read = lambda path: None if path in missing else read(path)
del sys.path[here], sys.modules["sitecustomize"]
import sitecustomize
"""


def hide(internals: Iterable[Internal], directory: Path, python_path: str) -> dict[str, str]:
    """Return the variables of a job in which attributes are not found.

    Args:
        internals: the attributes.
        directory: where a file is written for it.
        python_path: PYTHONPATH of a job under stepscope.
    """
    (directory / "sitecustomize.py").write_text(_WITHOUT)
    paths = [path for internal in internals for path in internal.paths]
    path = os.pathsep.join([str(directory), python_path])
    return {"PYTHONPATH": path, "MISSING": " ".join(paths)}
