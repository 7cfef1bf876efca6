"""Files that are shipped with the package: what the front-end toolchain builds from `web/`.

`web/` in here is made by `make web` or when the package is built, and never committed.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

__all__ = ["read_web_asset", "web_app"]


def read_web_asset(name: str) -> str:
    """The text of a built file; FileNotFoundError when nothing has been built."""
    return resources.files(__name__).joinpath("web", name).read_text(encoding="utf-8")


def web_app() -> Path:
    """Directory of the web UI's files; not there when nothing has been built."""
    return Path(__file__).with_name("web") / "app"
