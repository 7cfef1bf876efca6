"""Cuts of a recording into an object store at random instants, and the count of what they lost.

A round is one run with some cuts: the store goes away for a moment, single requests fail before or
after the server has acted on them, the monitor is killed, and at the end possibly everything is.
The truth is what the job announced in a file of its own (`faults/jobs/numbered_ranks.py`).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import psutil

from stepscope.store import open_run
from tests.faults.jobs.numbered_ranks import STRIDE
from tests.support.job_control import JOBS, STEPSCOPE, Job
from tests.support.kills import RELENTLESS_LAUNCHER, is_running
from tests.support.store_outages import Fault, Outages
from tests.support.waiting import wait_until

OUTAGES = (Fault.CUT_BEFORE, Fault.UNAVAILABLE, Fault.THROTTLED, Fault.DENIED, Fault.FULL)
SINGLE_FAULTS = (Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.UNAVAILABLE)
SINGLE_FAULT_SHARE = 0.1
MAX_OUTAGE_S = 2.0
MAX_REQUESTS_BETWEEN = 12
MAX_DELAY_S = 0.1
ENDING_SHARE = 0.3
"""Share of the rounds at whose end everything is killed."""


class CutCounts(msgspec.Struct, kw_only=True):
    """Cuts, and what was wrong after them."""

    cuts: int = 0
    runs: int = 0
    requests: int = 0
    failed_requests: int = 0
    steps: int = 0
    """Steps that the job had finished by its own account."""
    lost: int = 0
    double: int = 0
    """Rows of a step that has a row already, and rows of steps that the job did not take."""
    unreadable: int = 0
    """Runs with damage, and runs whose upload is not complete after `stepscope recover`."""
    unconditional: int = 0
    """Writes without a condition."""
    max_monitor_bytes: int = 0
    max_staging_bytes: int = 0

    def add(self, counts: CutCounts) -> None:
        """Add the counts of further rounds."""
        for field in self.__struct_fields__:
            both = getattr(self, field), getattr(counts, field)
            setattr(self, field, max(both) if field.startswith("max_") else sum(both))

    @property
    def is_clean(self) -> bool:
        """True if nothing was lost, counted twice, unreadable, or written without a condition."""
        return not (self.lost or self.double or self.unreadable or self.unconditional)


class CutRound:
    """One run that is recorded into an object store.

    Args:
        directory: an empty directory.
        url: URL of the run.
        relay: relay to the store.
        environment: variables that lead to the store, through the relay.
        seed: of the instants and the kinds of the cuts.
    """

    def __init__(
        self,
        directory: Path,
        url: str,
        relay: Outages,
        environment: Mapping[str, str],
        seed: str,
        options: tuple[str, ...] = (),
    ) -> None:
        self.chance = random.Random(seed)
        self.relay = relay
        self.url = url
        self.counts = CutCounts(runs=1)
        self.truth = directory / "truth"
        self.truth.mkdir()
        self.staging = directory / "staging"
        self.environment = {**os.environ, **environment}
        self._killed: set[int] = set()
        job = [sys.executable, str(JOBS / "numbered_ranks.py"), str(self.truth)]
        staging_options = ("--staging", str(self.staging), "--file-rotation", "1")
        self.job = Job(
            url,
            directory / "spool",
            *job,
            options=(*staging_options, "--window", "off", "--no-rules", *options),
            stepscope=RELENTLESS_LAUNCHER,
            environment=self.environment,
        )
        wait_until(lambda: self.steps, timeout_s=60, waiting_for="the first step")

    @property
    def steps(self) -> dict[int, int]:
        """Number of finished steps by number of the process."""
        return {
            int(path.name.partition("-")[0]): int.from_bytes(path.read_bytes(), "little")
            for path in self.truth.glob("*-*")
        }

    def cut(self) -> None:
        """Wait for a random number of requests to the store and a random delay, then cut."""
        target = self.relay.request_count + self.chance.randrange(1, MAX_REQUESTS_BETWEEN)
        wait_until(
            lambda: self.relay.request_count >= target, timeout_s=120, waiting_for="requests"
        )
        self.wait(self.chance.random() * MAX_DELAY_S)
        if self.chance.random() < 0.5:
            self.kill_monitor()
        else:
            self.relay.fault = self.chance.choice(OUTAGES)
            self.wait(self.chance.random() * MAX_OUTAGE_S)
            self.relay.fault = Fault.NONE
        self.counts.cuts += 1

    def kill_monitor(self) -> None:
        """Kill the monitor, which the launcher replaces."""
        pid = wait_until(self._monitor, timeout_s=60, waiting_for="a monitor")
        os.kill(pid, signal.SIGKILL)
        self._killed.add(pid)

    def wait(self, seconds: float) -> None:
        """Let the job work, and measure memory and disk meanwhile."""
        end_s = time.monotonic() + seconds
        while (remaining_s := end_s - time.monotonic()) > 0:
            time.sleep(min(0.25, remaining_s))
            self._measure()

    def end(self, *, by_kill: bool) -> CutCounts:
        """End the job, or kill everything; then recover, and compare the run with the truth."""
        if by_kill:
            victims = [*self.job.children().values(), self.job.launcher.pid]
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            self.job.launcher.wait(30)
            wait_until(lambda: not any(map(is_running, victims)), timeout_s=60)
            self.counts.cuts += 1
        else:
            (self.truth / "end").touch()
            self.job.launcher.wait(300)
        self.relay.random_share = 0.0
        (self.truth / "end").touch()
        wait_until(self._is_quiet, timeout_s=120, waiting_for="the end of the job's processes")
        command = [*STEPSCOPE, "recover", "--staging", str(self.staging), self.url]
        recovery = subprocess.run(command, env=self.environment, capture_output=True, timeout=200)
        self._compare(recovery.returncode)
        return self.counts

    def _compare(self, recovery_code: int) -> None:
        counts, relay = self.counts, self.relay
        counts.requests, counts.failed_requests = relay.request_count, relay.fault_count
        counts.unconditional = sum(not is_conditional for _, is_conditional in relay.puts)
        counts.steps = sum(self.steps.values())
        try:
            reader = open_run(self.url)
            values = np.asarray(
                reader.table("spans", ["value"], condition="kind = 'step'")["value"], np.int64
            )
            counts.unreadable = int(recovery_code != 0) + len(reader.damage)
            counts.unreadable += any(self.staging.glob("*"))
        except Exception as error:  # noqa: BLE001 - any failure to read counts
            print(f"{self.url}: {error}", file=sys.stderr)
            counts.unreadable = 1
            return
        recorded = set(values.tolist())
        promised = {n * STRIDE + k for n, count in self.steps.items() for k in range(count)}
        possible = promised | {n * STRIDE + count for n, count in self.steps.items()}
        counts.lost = len(promised - recorded)
        counts.double = len(values) - len(recorded & possible)

    def _monitor(self) -> int:
        pid = self.job.children().get("monitor", 0)
        return 0 if pid in self._killed else pid

    def _measure(self) -> None:
        counts = self.counts
        try:
            monitor_bytes = psutil.Process(self._monitor() or os.getppid()).memory_info().rss
        except psutil.Error:
            return
        if self._monitor():
            counts.max_monitor_bytes = max(counts.max_monitor_bytes, monitor_bytes)
        size_bytes = 0
        for path in self.staging.rglob("*"):
            try:
                size_bytes += path.stat().st_size if path.is_file() else 0
            except OSError:  # merged meanwhile
                continue
        counts.max_staging_bytes = max(counts.max_staging_bytes, size_bytes)

    def _is_quiet(self) -> bool:
        """Return True if no process of the run is left."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes()
            except OSError:
                continue
            if str(self.truth).encode() in words or str(self.staging).encode() in words:
                return False
        return True


def cut_run(
    directory: Path,
    url: str,
    relay: Outages,
    environment: Mapping[str, str],
    *,
    seed: str,
    cuts: int,
) -> CutCounts:
    """Record one run with this number of cuts, and count what they lost."""
    cut_round = CutRound(directory, url, relay, environment, seed)
    relay.random_share, relay.random_faults = SINGLE_FAULT_SHARE, SINGLE_FAULTS
    by_kill = cut_round.chance.random() < ENDING_SHARE
    try:
        for _ in range(cuts - by_kill):
            cut_round.cut()
        return cut_round.end(by_kill=by_kill)
    finally:
        cut_round.job.end()
