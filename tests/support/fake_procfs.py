"""A procfs of a large node in a directory: many cores, and a job of many processes."""

from __future__ import annotations

from pathlib import Path

LATE_TICKS = 1 << 60
"""Start of the processes, later than that of any tree of processes."""


class FakeProcfs:
    """Files of /proc with the counters of a node.

    Args:
        path: empty directory.
        cores: number of cores.
        root_pid: process of the job's command.
        process_count: number of processes of the job with the root, which is the parent of all.
        thread_count: number of threads of each.
    """

    def __init__(
        self, path: Path, *, cores: int, root_pid: int, process_count: int, thread_count: int
    ) -> None:
        self.path = path
        self._cores = cores
        self._busy_ticks = 0
        self.pids = [root_pid, *range(1_000_000, 1_000_000 + process_count - 1)]
        for directory in ("self", "net"):
            (path / directory).mkdir()
        (path / "self" / "schedstat").write_text("1000 5 3\n")
        (path / "loadavg").write_text("1.00 1.00 1.00 1/600 1000600\n")
        (path / "meminfo").write_text("MemTotal: 1000000 kB\nMemAvailable: 400000 kB\n")
        (path / "net" / "dev").write_text("\n\n  eth0: 1000 0 0 0 0 0 0 0 2000 0\n")
        (path / "diskstats").write_text("   8  0 sda 1 0 10 0 1 0 20 0 0 0 0\n")
        for pid in self.pids:
            self._add_process(pid, 0 if pid == root_pid else root_pid, thread_count)
        children = " ".join(map(str, self.pids[1:]))
        (path / str(root_pid) / "task" / str(root_pid) / "children").write_text(children)
        self.advance()

    def _add_process(self, pid: int, parent_pid: int, thread_count: int) -> None:
        directory = self.path / str(pid)
        for thread in range(pid, pid + thread_count):
            (directory / "task" / str(thread)).mkdir(parents=True)
            (directory / "task" / str(thread) / "schedstat").write_text("5000 1000 7\n")
        (directory / "task" / str(pid) / "children").write_text("")
        (directory / "schedstat").write_text("5000 1000 7\n")
        zeros = " ".join(["0"] * 17)
        (directory / "stat").write_text(
            f"{pid} (python) R {parent_pid} {zeros} {LATE_TICKS} 0 1000\n"
        )

    def advance(self) -> None:
        """Let a second pass in which every core was half busy."""
        self._busy_ticks += 50
        lines = [f"cpu{n} {self._busy_ticks} 0 0 {self._busy_ticks} 0 0 0 0" for n in
                 range(self._cores)]  # fmt: skip
        new = self.path / "stat.new"
        new.write_text("\n".join(["cpu  0 0 0 0", *lines, "intr 0", ""]))
        Path(new).replace(self.path / "stat")
