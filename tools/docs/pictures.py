"""Take the pictures of the web UI in docs/images again, of the job of docs/start.md.

python -m tools.docs.pictures
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import ViewportSize

from stepscope.testing.browser import chromium
from tests.support.browsed import Ui, drawn, screen, settled
from tests.support.document_blocks import ROOT, read_blocks
from tests.support.under_stepscope import serving

IMAGES = ROOT / "docs" / "images"
SCREENS = ("overview", "system", "timeline")
SIZE = ViewportSize(width=1440, height=1000)


def record_job(directory: Path) -> None:
    """Record the script of the page into the run `slow`."""
    (script,) = (block for block in read_blocks(ROOT / "docs" / "start.md") if block.title)
    (directory / script.title).write_text(script.text)
    command = ["run", "--out", "slow", "--quiet", "--", sys.executable, script.title]
    subprocess.run([sys.executable, "-m", "stepscope", *command], cwd=directory, check=True)


def take_pictures(directory: Path) -> None:
    """Take a picture of each screen of the run."""
    with serving(str(directory), "--port", "0") as (address, _), chromium() as browser:
        ui = Ui(directory, address, browser)
        for name in SCREENS:
            page = ui.open(screen(name, "slow"))
            page.set_viewport_size(SIZE)
            settled(page)
            if name == "timeline":
                drawn(page)
            page.screenshot(path=IMAGES / f"{name}.png")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        record_job(Path(temporary))
        take_pictures(Path(temporary))
