"""Names in a spool: processes, logs, segments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.spool import SEGMENT_BYTES, LogName, SpoolFullError, SpoolTree, process_start_ticks


@pytest.mark.parametrize("name", [LogName(7, "c", 0), LogName(4194304, "f", 123456)])
def test_a_segment_name_is_parsed_as_it_was_made(name: LogName) -> None:
    assert LogName.parse(name.file_name) == name
    assert name.file_name.startswith(name.log)


@pytest.mark.parametrize(
    "name",
    [
        "", "journal.jsonl", "monitor.log", "7c-0.log.new", "7c-0", "7c.log", "7x-0.log", "c-0.log",
        "7c-.log", "7c-x.log", "-7c-0.log", "7c-0.txt", "7c--1.log", "window-0.json", ".log",
    ],
)  # fmt: skip
def test_other_files_name_no_segment(name: str) -> None:
    assert LogName.parse(name) is None


def test_start_ticks_tell_processes_apart() -> None:
    own_ticks = process_start_ticks()
    assert own_ticks == process_start_ticks(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        child_ticks = process_start_ticks(child.pid)
        assert child_ticks is not None
        assert own_ticks is not None
        assert child_ticks >= own_ticks
    finally:
        child.communicate()


def test_a_zombie_has_ended() -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # wait without reaping
    assert _state(pid) == "Z"
    assert process_start_ticks(pid) is None
    os.waitpid(pid, 0)
    assert process_start_ticks(pid) is None, "and so has one that is reaped"


def test_a_command_name_cannot_confuse_the_ticks(tmp_path: Path) -> None:
    """Field 2 of /proc/<pid>/stat is free text, brackets and spaces included."""
    expected = process_start_ticks()
    comm = Path("/proc/self/comm")
    original = comm.read_text()
    comm.write_text("a) Z (b) 1 2 3")
    try:
        assert process_start_ticks() == expected
    finally:
        comm.write_text(original)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class TestTree:
    def test_each_image_of_a_process_has_a_separate_directory(self, tmp_path: Path) -> None:
        """Also when the monitor has drained and removed the first one."""
        tree = SpoolTree(str(tmp_path), 1)
        (first, path), *later = (tree.make_process_directory() for _ in range(3))
        stem = f"{os.getpid()}-{process_start_ticks()}"
        names = [first, *(name for name, _ in later)]
        assert names == [f"{stem}-{serial}" for serial in range(3)]
        assert set(tree.process_directories()) == set(names)
        Path(path).rmdir()
        assert tree.make_process_directory()[0] not in names
        for name in ("1c-0.log", "1f-0.log", "journal.jsonl", "2f-0.log.new", "window-0.json"):
            Path(later[0][1], name).touch()
        assert tree.used_bytes() == 2 * SEGMENT_BYTES  # of segments only

    def test_fine_logs_may_fill_a_share_only(self, tmp_path: Path) -> None:
        tree = SpoolTree(str(tmp_path), 4 * SEGMENT_BYTES)
        _, path = tree.make_process_directory()
        room = {"c": 0, "f": 0}
        for log_class in ("f", "c"):
            for number in range(10):
                try:
                    tree.reserve(log_class)
                except SpoolFullError:
                    break
                Path(path, f"1{log_class}-{number}.log").touch()
                room[log_class] += 1
        assert room == {"f": 3, "c": 1}

    def test_a_missing_spool_is_empty(self, tmp_path: Path) -> None:
        tree = SpoolTree(str(tmp_path / "gone"), 1)
        assert tree.process_directories() == {}
        assert tree.used_bytes() == 0
        with pytest.raises(OSError, match="gone"):
            tree.make_process_directory()
