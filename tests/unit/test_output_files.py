"""Output files are complete or absent."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stepscope.output_files import atomic_write


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("before")
    with pytest.raises(TypeError), atomic_write(path) as file:
        file.write("half")  # type: ignore[arg-type]
    assert path.read_text() == "before"
    with atomic_write(path) as file:
        file.write(b"whole")
        assert path.read_text() == "before"
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "there" / "report.json")
    with atomic_write(tmp_path / "link.json") as file:
        file.write(b"{}")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "there" / "report.json").read_text() == "{}"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(pipe.read_text)
        with atomic_write(pipe) as file:
            file.write(b"whole")
        assert reading.result() == "whole"
    assert pipe.is_fifo()
