"""Files shipped with the package: the output of the front-end toolchain from `web/`.

`web/` in this package is created by `make web` or by the package build, and never committed.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

__all__ = ["read_web_asset", "web_app"]


def read_web_asset(name: str) -> str:
    """Read a built file.

    Raises:
        FileNotFoundError: the front end has not been built.
    """
    return resources.files(__name__).joinpath("web", name).read_text(encoding="utf-8")


def web_app() -> Path:
    """Directory of the web UI's files; missing if the front end has not been built."""
    return Path(__file__).with_name("web") / "app"
