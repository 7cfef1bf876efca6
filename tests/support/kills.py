"""Kills of one kind in runs of `stepscope run`, and the count of what they lost.

A round is one run with some kills. The truth is what its processes announced in their own files
before each step (`faults/jobs/numbered_ranks.py`), and no part of stepscope takes part in it.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from stepscope.schema import WindowFact, WindowMissedFact
from stepscope.store import RunReader, open_run
from tests.faults.jobs.numbered_ranks import STRIDE
from tests.support.job_control import JOBS, STEPSCOPE, Job
from tests.support.waiting import wait_until

MAX_STEPS_BEFORE_KILL = 60
MAX_STEPS_OF_COMPANION = 250
"""Steps between two kills of a companion: about twice as long as it takes to start."""
MAX_RECOVERY_S = 0.4
RELENTLESS_LAUNCHER = [
    sys.executable,
    "-c",
    "from stepscope.cli import main; from stepscope.cli.job import launcher; "
    "launcher.COMPANION_STARTS = 1_000_000; main()",
]
"""stepscope that replaces a companion however often it is killed in one run."""
FIRST_WINDOW_STEP, WINDOW_STEPS, WINDOW_INTERVAL = 5, 20, 30
WINDOW_SCHEDULE = f"start_step={FIRST_WINDOW_STEP},num_steps={WINDOW_STEPS},every={WINDOW_INTERVAL}"
"""Detailed windows of each rank, open two thirds of the time."""


class KillCounts(msgspec.Struct, kw_only=True):
    """Kills of one kind and what was wrong after them."""

    kills: int = 0
    runs: int = 0
    steps: int = 0
    """Steps that the processes had finished by their own account."""
    lost: int = 0
    """Finished steps that are not in the run."""
    double: int = 0
    """Rows of a step that has a row already, and rows of steps that no process took."""
    unreadable: int = 0
    """Runs and windows that cannot be read, and runs whose recovery fails."""
    windows: int = 0
    """Detailed windows in the runs."""
    unexplained: int = 0
    """Detailed windows that are not in the run, of which no sentence says so."""

    def add(self, counts: KillCounts) -> None:
        """Add the counts of further rounds."""
        for field in self.__struct_fields__:
            setattr(self, field, getattr(self, field) + getattr(counts, field))

    @property
    def is_clean(self) -> bool:
        """True if nothing was lost, counted twice, or unreadable."""
        return not (self.lost or self.double or self.unreadable or self.unexplained)


class Round:
    """One run, whose processes a kind of kill chooses from."""

    def __init__(
        self,
        directory: Path,
        seed: str,
        rank_count: int = 1,
        *,
        has_windows: bool = False,
        has_rules: bool = True,
    ) -> None:
        self.chance = random.Random(seed)
        self.truth = directory / "truth"
        self.truth.mkdir()
        self.rank_count = rank_count
        self.has_windows = has_windows
        self.killed: set[int] = set()
        job = [sys.executable, str(JOBS / "numbered_ranks.py"), str(self.truth)]
        self.job = Job(
            directory / "run",
            directory / "spool",
            *(*job, "--ranks", str(rank_count), *(["--train"] if has_windows else [])),
            options=(
                *(("--window", "asked", "--schedule", WINDOW_SCHEDULE) if has_windows else ()),
                *(() if has_windows else ("--window", "off")),
                *(() if has_rules else ("--no-rules",)),
            ),
            stepscope=RELENTLESS_LAUNCHER,
        )

    def finished_steps(self) -> dict[int, int]:
        """Return the number of finished steps by number of the process."""
        return {number: count for (number, _), count in self.ranks().items()}

    def ranks(self) -> dict[tuple[int, int], int]:
        """Return the number of finished steps by number and pid of the process."""
        return {
            (int(number), int(pid)): int.from_bytes(path.read_bytes(), "little")
            for path in self.truth.glob("*-*")
            for number, pid in [path.name.split("-")]
        }

    def live_ranks(self) -> list[int]:
        """Wait until every rank has taken a random number of steps; returns their pids."""
        count = self.chance.randrange(MAX_STEPS_BEFORE_KILL)

        def working() -> list[int]:
            pids = [
                pid
                for (_, pid), finished in self.ranks().items()
                if finished > count and pid not in self.killed and is_running(pid)
            ]
            return pids if len(pids) == self.rank_count else []

        return wait_until(working, timeout_s=60, waiting_for="working ranks")

    def kill(self, pid: int) -> None:
        """Kill a process that is running."""
        os.kill(pid, signal.SIGKILL)
        self.killed.add(pid)

    def let_work(self, max_steps: int = MAX_STEPS_BEFORE_KILL) -> None:
        """Wait for a random number of further steps."""
        target = sum(self.finished_steps().values()) + self.chance.randrange(max_steps)
        wait_until(
            lambda: sum(self.finished_steps().values()) > target,
            timeout_s=60,
            waiting_for="further steps",
        )

    def kill_everything(self) -> None:
        """Kill the launcher, its companions, the job and its ranks at the same time."""
        self.job.wait_monitor()
        wait_until(lambda: list((self.job.run / "nodes").glob("*/status.json")), timeout_s=60)
        ranks = self.live_ranks()
        victims = [self.job.launcher.pid, *self.job.children().values(), *ranks]
        for pid in victims:
            os.kill(pid, signal.SIGSTOP)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        self.job.launcher.wait(30)
        wait_until(lambda: not any(map(is_running, victims)), waiting_for="the end of everything")

    def recover(self) -> subprocess.Popen[bytes]:
        """Start `stepscope recover`."""
        command = [*STEPSCOPE, "recover", str(self.job.run)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def end(self, kills: int) -> KillCounts:
        """Let the job end, recover what is left, and compare the run with the truth."""
        (self.truth / "end").touch()
        try:
            self.job.launcher.wait(300)  # its monitor may have many windows to import
            wait_until(self._has_no_process, timeout_s=300, waiting_for="the end of the monitor")
            recovery_code = self.recover().wait(120)
        finally:
            self.job.end()
        counts = KillCounts(kills=kills, runs=1, steps=sum(self.finished_steps().values()))
        try:
            reader = open_run(self.job.run)
            rows = reader.table("spans", ["value"], condition="kind = 'step'")
            if self.has_windows:
                self._check_windows(reader, counts)
            damage = reader.damage
        except Exception:  # noqa: BLE001 - any failure to read counts
            counts.unreadable = 1
            return counts
        counts.unreadable += int(recovery_code != 0) + len(damage)
        lost, double = self._compare(np.asarray(rows["value"], dtype=np.int64))
        counts.lost += lost
        counts.double += double
        return counts

    def _check_windows(self, reader: RunReader, counts: KillCounts) -> None:
        """Count windows that are in the run, and those of which nothing is said.

        The schedule and the steps of a rank by its own account tell how many windows it opened.
        """
        traces = reader.table("traces", ["trace", "process", "window"])
        windows = list(zip(traces["process"].tolist(), traces["window"].tolist(), strict=True))
        counts.windows = len(windows)
        counts.double += len(windows) - len(set(windows))
        facts = {
            (p.process, f.number): f for p in reader.processes() for f in p.facts_of(WindowFact)
        }
        operators = set(reader.table("operators", ["trace"])["trace"].tolist())
        for trace, window in zip(traces["trace"].tolist(), windows, strict=True):
            has_steps = window in facts and facts[window].step_count > 0
            counts.unreadable += has_steps and trace not in operators
        notes = " ".join(note for status in reader.statuses().values() for note in status.notes)
        for (_, pid), finished in self.ranks().items():
            noted = re.findall(rf"window (\d+) of process {pid}\b", notes)
            numbers = {n for process, n in windows if process.startswith(f"{pid}-")}
            missed = [p.facts_of(WindowMissedFact) for p in reader.processes() if p.pid == pid]
            explained = len(numbers | set(map(int, noted))) + sum(map(len, missed))
            opened = len(range(FIRST_WINDOW_STEP, finished - 1, WINDOW_INTERVAL))
            counts.unexplained += max(0, opened - explained)

    def _compare(self, values: np.ndarray) -> tuple[int, int]:
        recorded = set(values.tolist())
        finished = self.finished_steps()
        promised = {n * STRIDE + k for n, count in finished.items() for k in range(count)}
        # The announced step may be in the run: it was killed after its record.
        possible = promised | {n * STRIDE + count for n, count in finished.items()}
        return len(promised - recorded), len(values) - len(recorded & possible)

    def _has_no_process(self) -> bool:
        """Return True if the monitor of the run, which outlives a killed launcher, has ended."""
        run = str(self.job.run).encode()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes()
            except OSError:  # the process has ended
                continue
            if b"stepscope.monitor" in words and run in words:
                return False
        return True


def is_running(pid: int) -> bool:
    """Return True unless the process has ended; an ended one that is not reaped counts as ended."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def kill_trainer(kill_round: Round, kills: int) -> int:
    """Kill the training process; it is replaced."""
    for _ in range(kills):
        (rank,) = kill_round.live_ranks()
        kill_round.kill(rank)
    return kills


def kill_ranks(kill_round: Round, kills: int) -> int:
    """Kill all ranks at the same time."""
    count = 0
    while count < kills:
        for rank in kill_round.live_ranks():
            kill_round.kill(rank)
            count += 1
    return count


def _kill_companion(kill_round: Round, role: str, kills: int) -> int:
    def successor() -> int:
        pid = kill_round.job.children().get(role, 0)
        return 0 if pid in kill_round.killed else pid

    for _ in range(kills):
        victim = wait_until(successor, timeout_s=60, waiting_for=f"a {role}")
        kill_round.let_work(MAX_STEPS_OF_COMPANION)
        kill_round.kill(victim)
    return kills


def kill_monitor(kill_round: Round, kills: int) -> int:
    """Kill the monitor; the launcher replaces it."""
    return _kill_companion(kill_round, "monitor", kills)


def kill_watcher(kill_round: Round, kills: int) -> int:
    """Kill the process that evaluates rules; the launcher replaces it."""
    return _kill_companion(kill_round, "watch", kills)


def kill_ui(kill_round: Round, kills: int) -> int:
    """Kill the server of the web UI while it answers a request about the growing run."""
    wait_until((kill_round.job.run / "nodes").is_dir, timeout_s=60, waiting_for="a run")
    command = [*STEPSCOPE, "ui", str(kill_round.job.run), "--port", "0", "--no-browser"]
    for _ in range(kills):
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            lines = iter(server.stdout or ())
            address = next(word for line in lines for word in line.split() if b"http://" in word)
            port = int(address.decode().split(":")[2].partition("/")[0])
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(b"GET /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                kill_round.let_work()
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.communicate()
    return kills


def kill_launcher(kill_round: Round, kills: int) -> int:
    """Kill the launcher; the job and its monitor continue."""
    kill_round.job.wait_monitor()
    kill_round.live_ranks()
    kill_round.job.launcher.kill()
    kill_round.let_work()
    return 1


def kill_all(kill_round: Round, kills: int) -> int:
    """Kill everything at the same time."""
    kill_round.kill_everything()
    return 1


def kill_recovery(kill_round: Round, kills: int) -> int:
    """Kill everything, then its recovery several times."""
    kill_round.kill_everything()
    for count in range(kills):
        recovery = kill_round.recover()
        try:
            recovery.wait(kill_round.chance.random() * MAX_RECOVERY_S)
            return count
        except subprocess.TimeoutExpired:
            recovery.kill()
            recovery.wait()
    return kills


def recover_in_parallel(kill_round: Round, kills: int) -> int:
    """Kill everything, then recover several times at once."""
    kill_round.kill_everything()
    recoveries = [kill_round.recover() for _ in range(kills)]
    for recovery in recoveries:
        recovery.wait(60)
    return 1


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of kill."""

    name: str
    title: str
    """The kind in docs/reliability.md."""
    act: Callable[[Round, int], int]
    """Function that kills up to a number of times in a round, and returns how often it did."""
    ci_kills: int = 1
    """Kills per run in CI."""
    soak_kills: int = 1
    """Kills per run where they are many: the first kill of a run takes the longest."""
    rank_count: int = 1
    has_windows: bool = False
    """True if the ranks train with detailed windows open most of the time."""
    has_rules: bool = True
    """False where only the recovery of the run matters: a process less to start and to kill."""


_KINDS = (
    Kind(name="trainer", title="the training process", act=kill_trainer, ci_kills=6, soak_kills=50),
    Kind(
        name="ranks",
        title="four ranks at once",
        act=kill_ranks,
        ci_kills=6,
        soak_kills=100,
        rank_count=4,
    ),
    Kind(name="monitor", title="the monitor", act=kill_monitor, ci_kills=4, soak_kills=50),
    Kind(
        name="watcher",
        title="the process that evaluates rules",
        act=kill_watcher,
        ci_kills=4,
        soak_kills=50,
    ),
    Kind(name="ui", title="the server of the web UI", act=kill_ui, ci_kills=2, soak_kills=25),
    Kind(name="launcher", title="the launcher (`stepscope run`)", act=kill_launcher),
    Kind(name="all", title="all processes at once", act=kill_all),
    Kind(
        name="recover",
        title="all processes, then `stepscope recover` itself",
        act=kill_recovery,
        has_rules=False,
        ci_kills=5,
        soak_kills=10,
    ),
    Kind(
        name="parallel recover",
        title="all processes, then several `stepscope recover` at once",
        act=recover_in_parallel,
        has_rules=False,
        ci_kills=3,
        soak_kills=3,
    ),
    Kind(
        name="trainer in windows",
        title="the training process, with detailed windows open",
        act=kill_trainer,
        soak_kills=10,
        has_windows=True,
    ),
    Kind(
        name="monitor in windows",
        title="the monitor, with detailed windows open",
        act=kill_monitor,
        soak_kills=5,
        has_windows=True,
    ),
    Kind(
        name="recover in windows",
        title="all processes with detailed windows open, then `stepscope recover` itself",
        act=kill_recovery,
        has_rules=False,
        soak_kills=10,
        has_windows=True,
    ),
    Kind(
        name="parallel recover in windows",
        title="all processes with detailed windows open, then several `stepscope recover` at once",
        act=recover_in_parallel,
        has_rules=False,
        ci_kills=3,
        soak_kills=3,
        has_windows=True,
    ),
)
KINDS = {kind.name: kind for kind in _KINDS}


def run_round(kind: Kind, directory: Path, seed: str, kills: int) -> KillCounts:
    """Run one round in an empty directory."""
    kill_round = Round(
        directory, seed, kind.rank_count, has_windows=kind.has_windows, has_rules=kind.has_rules
    )
    try:
        kills = kind.act(kill_round, kills)
        return kill_round.end(kills)
    finally:
        (kill_round.truth / "end").touch()  # a job that outlives its launcher ends by itself
        kill_round.job.end()
