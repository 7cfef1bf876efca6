"""The front end's types are those of the payloads."""

from __future__ import annotations

import runpy
from pathlib import Path

WEB = Path(__file__).parents[2] / "web"


def test_generated_types_are_up_to_date() -> None:
    generator = runpy.run_path(str(WEB / "api_types.py"))
    for file, text in generator["files"]().items():
        written = (WEB / "src" / "api" / file).read_text()
        assert written == text, f"web/src/api/{file} differs from the payloads: run `make generate`"


def test_the_lock_file_names_no_host() -> None:
    lock = (WEB / "package-lock.json").read_text()
    assert "resolved" not in lock
    assert "registry" not in lock
