"""Build hook: the front end of the package, built from `web/`.

A source distribution has it built already, and no `web/`.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class FrontEnd(BuildHookInterface):  # type: ignore[type-arg]
    """Builds the front end before files are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling for wheels, editable ones too, and source distributions."""
        script = Path(self.root, "web", "build.py")
        if script.exists():
            runpy.run_path(str(script))["build"]()
