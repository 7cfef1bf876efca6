"""Files of the spool that stay open while they are needed, and no longer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepscope.monitor import process_logs
from stepscope.monitor.drain import SpoolDrain
from stepscope.monitor.process_logs import SharedFile
from stepscope.spool import FINISHED_STEPS_WORD, CollectivePage
from tests.conftest import _nothing_stored


def count_open_below(directory: Path) -> int:
    """Count the descriptors of this process that refer to files below a directory."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            count += str(directory) in str(entry.readlink())
        except OSError:  # the descriptor of the listing itself
            pass
    return count


def test_a_deleted_file_can_be_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    file = SharedFile(path, 6)
    with path.open("r+b") as writer:
        path.unlink()
        writer.write(b"after!")
    assert file.read() == b"after!"
    file.close()
    file.close()


def test_files_beyond_the_limit_are_read_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_logs, "MAX_OPEN_FILES", 0)
    path = tmp_path / "file"
    path.write_bytes(b"text")
    file = SharedFile(path, 4)
    assert count_open_below(tmp_path) == 0
    assert file.read() == b"text"
    path.unlink()
    assert file.read() == b""


def test_ended_processes_leave_no_file_open(spool: Any) -> None:
    spool.run("import stepscope; stepscope.step(1)")
    drain = SpoolDrain(spool.tree, node="n", epoch_offset_ns=0, stored=_nothing_stored)
    drain.prepare()
    assert count_open_below(spool.path) > 0
    for rows in drain.collect().values():
        drain.commit(rows)
    drain.remove_drained()
    assert count_open_below(spool.path) == 0
    assert list(spool.path.iterdir()) == []


def test_the_collectives_of_a_process_that_is_gone_are_known(spool: Any) -> None:
    """The watch for stuck jobs looks less often than directories are removed."""
    directory = spool.path / "p-7-1-0"
    directory.mkdir()
    CollectivePage.create(str(directory)).put_progress(5, 4, 1000, steps=3)
    drain = SpoolDrain(spool.tree, node="n", epoch_offset_ns=0, stored=_nothing_stored)
    drain.collect()
    drain.remove_drained()
    assert not directory.exists()
    page = drain.processes["7-1-0"].open_collective_page()
    assert page is not None
    assert page.words[FINISHED_STEPS_WORD] == 3
