"""Sources of the front end: generated types and the lock file."""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path

from stepscope.views.options import MAX_KERNEL_LENGTH, shorten_kernel, shorten_name

WEB = Path(__file__).parents[2] / "web"


def test_only_changed_types_are_written(tmp_path: Path) -> None:
    """A build takes the times of its sources to see if it is current."""
    write_files = runpy.run_path(str(WEB / "api_types.py"))["write_files"]
    write_files(tmp_path)
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert texts.keys() == {"labels.ts", "report.ts", "server.ts", "views.ts"}
    for name in texts:
        os.utime(tmp_path / name, ns=(0, 0))
    (tmp_path / "server.ts").write_text("stale")
    write_files(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == texts
    written = {path.name for path in tmp_path.iterdir() if path.stat().st_mtime_ns}
    assert written == {"server.ts"}


def test_the_lock_file_names_no_host() -> None:
    lock = (WEB / "package-lock.json").read_text()
    assert "resolved" not in lock
    assert "registry" not in lock


def test_sentences_name_kernels_as_the_tables_of_the_page_do() -> None:
    cases = re.findall(
        r'^  \["((?:void |nccl|triton)[^"]*)", "([^"]*)"\],$',
        (WEB / "src" / "base" / "short_name.test.ts").read_text(),
        re.MULTILINE,
    )
    assert len(cases) >= 8
    for name, short in cases:
        assert shorten_kernel(name) == shorten_name(short, MAX_KERNEL_LENGTH)
