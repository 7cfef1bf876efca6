"""Output files are complete or absent."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stepscope.output_files import atomic_write
from tests.support.permissions import public_directory, restricted  # noqa: F401 - a fixture


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


def test_an_error_names_the_file_that_was_asked_for(public_directory: Path) -> None:  # noqa: F811
    path = public_directory / "report.html"
    with (
        restricted([public_directory], 0o555),
        pytest.raises(PermissionError) as caught,
        atomic_write(path),
    ):
        pass
    assert caught.value.filename == str(path)
    with pytest.raises(FileNotFoundError) as missing, atomic_write(path / "none" / "report.html"):
        pass
    assert missing.value.filename == str(path / "none" / "report.html")
