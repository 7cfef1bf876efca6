"""Faults of a rank, how a job with one is run, and what the views should say."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.late_ranks.hosts import Host, find_free_port, make_hosts
from stepscope.rule_feed import recorded_rules
from stepscope.run import Run
from stepscope.store import open_run

JOB = Path(__file__).with_name("job.py")
TIMEOUT_S = 600
BURNERS_PER_PEER = 12
"""Processes that share the core of the rank, for each of the other ranks: the core that these share
makes a step longer, in which the rank could do its work with a smaller share of its own core."""
SCAN_S = 10
RULE = "RankStraggler"
FIRST_BLOCK_END = 99
"""Last step of the first block that the rule compares: of 50 steps, after ten of warm-up."""
MAX_DELAY_SCANS = 2
HEALTHY = "none"
CAUSES = {
    "compute": ("slow forward passes",),
    "input": ("slow data loading",),
    "cpu": ("no free core for",),
    "bandwidth": ("a slow link",),
    "batches": ("larger inputs",),
}
"""Beginning of the right cause by fault."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One job."""

    fault: str
    seed: int
    rank_count: int
    rank: int
    """The rank with the fault; of a healthy job none has one."""
    extra: float
    """Factor of the slow part."""

    @property
    def ranks_by_host(self) -> list[list[int]]:
        """Ranks of each host, in blocks."""
        first = -(-self.rank_count // 2)
        return [list(range(first)), list(range(first, self.rank_count))]

    @property
    def host(self) -> int:
        """Index of the host of the rank with the fault."""
        return next(n for n, ranks in enumerate(self.ranks_by_host) if self.rank in ranks)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of one job."""

    fault: str
    seed: int
    rank_count: int
    rank: int | None
    sentence: str
    late_names: list[str]
    """Ranks that the view `ranks` calls late, or the host that it calls slow to send."""
    is_right_rank: bool
    is_right_cause: bool
    rule_names: list[str]
    """Ranks that the rule RankStraggler names while the job runs, or the host with a slow link."""
    rule_delay_scans: float | None
    """Scan intervals from the end of the first block of steps that the rule compares to the time at
    which its firing was recorded; None if it did not fire."""
    is_right_live: bool
    """True if the rule names the right rank within two scan intervals."""
    wall_s: float


def draw_case(fault: str, seed: int) -> Case:
    """Draw the number of ranks, the rank and the size of a fault."""
    generator = random.Random(f"{fault} {seed}")
    rank_count = 2 + seed % 3
    return Case(
        fault=fault,
        seed=seed,
        rank_count=rank_count,
        rank=generator.randrange(rank_count),
        extra=generator.uniform(4, 6),
    )


def run_case(case: Case, run: Path, *, steps: int, isolated: bool) -> Outcome:
    """Run a job and judge what the views say about it.

    Raises:
        RuntimeError: the job did not end well.
    """
    start_s = time.monotonic()
    with make_hosts(isolated=isolated) as hosts, _apply_fault(case, hosts):
        launchers = [
            _launch(case, run, host, ranks, address=hosts[0].address, steps=steps)
            for host, ranks in zip(hosts, case.ranks_by_host, strict=True)
        ]
        try:
            for launcher in launchers:
                _, errors = launcher.communicate(timeout=TIMEOUT_S)
                if launcher.returncode:
                    raise RuntimeError(f"{case}: exit {launcher.returncode}\n{errors[-2000:]}")
        finally:
            for launcher in launchers:
                if launcher.poll() is None:
                    os.killpg(launcher.pid, signal.SIGKILL)
                    launcher.wait()
    return judge(case, run, wall_s=time.monotonic() - start_s)


def judge(case: Case, run: Path, *, wall_s: float) -> Outcome:
    """Compare what the views say about a run with the fault."""
    ranks = _read_ranks(run)
    late_names = sorted(r["rank"] for r in ranks["ranks"] if r["persistence"] is not None)
    sentence = ranks["sentence"]
    rule_names, rule_delay_scans = _read_rule(run, by_node=case.fault == "bandwidth")
    is_prompt = rule_delay_scans is not None and rule_delay_scans <= MAX_DELAY_SCANS
    if case.fault == HEALTHY:
        is_right_rank, is_right_cause = not late_names, not late_names
        is_right_live = rule_delay_scans is None
    else:
        expected = [f"rank {case.rank}"]
        if case.fault == "bandwidth":  # all ranks of the host use its link
            expected = [f"host{case.host}"]
            late_names = [f"host{n}" for n in range(2) if f" from host{n}" in sentence]
        is_right_rank = late_names == expected
        is_right_cause = any(cause in sentence for cause in CAUSES[case.fault])
        is_right_live = is_prompt and rule_names == expected
    return Outcome(
        fault=case.fault,
        seed=case.seed,
        rank_count=case.rank_count,
        rank=None if case.fault == HEALTHY else case.rank,
        sentence=sentence,
        late_names=late_names,
        is_right_rank=is_right_rank,
        is_right_cause=is_right_cause,
        rule_names=rule_names,
        rule_delay_scans=rule_delay_scans,
        is_right_live=is_right_live,
        wall_s=round(wall_s, 1),
    )


@contextmanager
def _apply_fault(case: Case, hosts: Sequence[Host]) -> Iterator[None]:
    """Apply what is no part of the job: a slow link, and other processes on a core."""
    burners = []
    if case.fault == "bandwidth":
        hosts[case.host].limit_bandwidth(20 - 2 * case.extra)
    if case.fault == "cpu":
        core = min(os.sched_getaffinity(0))
        code = f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"
        burners = [  # in sessions of their own: the kernel shares a core between sessions
            subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
            for _ in range(BURNERS_PER_PEER * (case.rank_count - 1))
        ]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def _launch(
    case: Case, run: Path, host: Host, ranks: Sequence[int], *, address: str, steps: int
) -> subprocess.Popen[str]:
    arguments = [
        *("--ranks", ",".join(map(str, ranks)), "--world", str(case.rank_count)),
        *("--fault", case.fault, "--rank", str(case.rank), "--steps", str(steps)),
        *("--extra", f"{case.extra:.3f}"),
    ]
    command = [sys.executable, "-m", "stepscope", "run", "--out", str(run), "--job", run.name]
    command += [
        "--window",
        "off",
        "--quiet",
        "--scan-interval",
        str(SCAN_S),
        "--",
        sys.executable,
        str(JOB),
        *arguments,
    ]
    variables = {
        "STEPSCOPE_NODE": host.name,
        "GLOO_SOCKET_IFNAME": host.interface,
        "MASTER_ADDR": address,
        "MASTER_PORT": str(_PORTS.setdefault(run.name, find_free_port())),
    }
    return subprocess.Popen(
        [*host.prefix, *command],
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


_PORTS: dict[str, int] = {}
"""Port of the first rank by job."""


def _read_ranks(run: Path) -> dict[str, Any]:
    line = [sys.executable, "-m", "stepscope", "show", str(run), "ranks", "--json"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise RuntimeError(done.stderr)
    payload: dict[str, Any] = json.loads(done.stdout)
    return payload


def _read_rule(path: Path, *, by_node: bool) -> tuple[list[str], float | None]:
    """Read whom RankStraggler named while the job ran, and after how many scan intervals."""
    run = Run(open_run(path))
    record = recorded_rules(run.reader)
    finding = record and next((f for f in record.fired if f.rule == RULE), None)
    if record is None or finding is None:
        return [], None
    end_ns = max(int(rank.steps.end[FIRST_BLOCK_END]) for rank in run.ranks)
    delay_scans = (record.recorded_ns[RULE] - end_ns) / record.scan_ns
    return (finding.nodes if by_node else finding.ranks), round(delay_scans, 2)
