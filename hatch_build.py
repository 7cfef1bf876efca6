"""Build hook: the front end of the package, built from `web/`, and the compiled scanner of traces.

A source distribution has the front end built already, and no `web/`. Without a C compiler, the
package has no scanner, and Python decodes traces.
"""

from __future__ import annotations

import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SCANNER = Path("src", "stepscope", "importers", "kineto", "_scan", "build.py")


class FrontEnd(BuildHookInterface):  # type: ignore[type-arg]
    """Builds the front end and the scanner before files are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling for wheels, editable ones too, and source distributions."""
        script = Path(self.root, "web", "build.py")
        if script.exists():
            runpy.run_path(str(script))["build"]()
        if self.target_name != "wheel":
            return
        problem = runpy.run_path(str(Path(self.root, _SCANNER)))["build"]()
        if problem is not None:
            self.app.display_warning(f"Traces will be decoded by Python, slower: {problem}.")
        elif version != "editable":
            # The library calls nothing of Python: it serves every version on this platform.
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"
