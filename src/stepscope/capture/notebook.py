"""Verdict of a run under the cell of a notebook that ends it."""

from __future__ import annotations

import sys

from stepscope.errors import StepscopeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LAUNCHER = "ipykernel_launcher.py"
"""Script of the kernels of notebooks."""


def show_verdict(run: str, command: str) -> bool:
    """Show the verdict of a run that has ended, if a cell is running.

    Args:
        run: the run.
        command: command that prints the verdict with its details.

    Returns:
        False outside of IPython, and where the run cannot be read.
    """
    interactive: Any = sys.modules.get("IPython")
    if interactive is None or interactive.get_ipython() is None:
        return False
    stepscope: Any = sys.modules["stepscope"]  # which loads what reads runs on first use
    try:
        verdict = stepscope.open(run).verdict()
    except (StepscopeError, ImportError, OSError):
        return False
    from html import escape

    representations = {
        "text/plain": f"{verdict.headline}\n{command}",
        "text/html": f"{verdict._repr_html_()}<p><code>{escape(command)}</code></p>",
    }
    interactive.display.display(representations, raw=True)
    return True
