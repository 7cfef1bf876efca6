"""One run of a job with several launchers: join, restart, a host that is killed, bad input."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from stepscope.errors import NotARunError
from stepscope.run import Run, job_state
from stepscope.schema import JobState
from stepscope.store import SharedRun, open_run
from stepscope.watch import STOP_REQUEST_FILE, StopRequest, write_stop_request
from tests.support.command import run_command
from tests.support.under_stepscope import JOB_TIMEOUT_S, STEPSCOPE, TORCHRUN, command_json
from tests.support.waiting import wait_until

SCRIPTS = Path(__file__).parent / "shared_run"
STEPS = (sys.executable, str(SCRIPTS / "steps.py"))
in_detail = pytest.mark.extended(
    "more jobs; their rules are in tests/unit/store and tests/unit/cli"
)


def start(
    run: Path | None, node: str, *command: str, options: tuple[str, ...] = (), **variables: str
) -> subprocess.Popen[str]:
    """Start a launcher as if on a machine of its own."""
    out = () if run is None else ("--out", str(run))
    return subprocess.Popen(
        [*STEPSCOPE, "run", *out, "--window", "off", *options, "--", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "STEPSCOPE_NODE": node, "GLOO_SOCKET_IFNAME": "lo", **variables},
        start_new_session=True,
    )


def finish(launcher: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    out, err = launcher.communicate(timeout=JOB_TIMEOUT_S)
    return subprocess.CompletedProcess(launcher.args, launcher.returncode, out, err)


def torchrun(*arguments: str, script: str = "exchange.py", count: int = 30) -> tuple[str, ...]:
    module = (sys.executable, "-m", "torch.distributed.run")
    return (*module, "--nnodes=2", *arguments, str(SCRIPTS / script), str(count))


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def step_counts(run: Path) -> dict[tuple[int, int | None], int]:
    """Count the steps by incarnation and rank."""
    ranks = Run(open_run(run)).all_ranks
    return {(r.process.incarnation, r.process.rank): len(r.steps) for r in ranks}


def processes_of(node: str) -> set[int]:
    """Find all processes of a host, the monitor's included."""
    entry = f"STEPSCOPE_NODE={node}".encode()
    pids = set()
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if entry in (directory / "environ").read_bytes().split(b"\0"):
                pids.add(int(directory.name))
        except OSError:
            continue
    return pids


@pytest.mark.seed("SMP-31", "DBP-17")
def test_the_ranks_of_two_nodes_are_in_one_run(tmp_path: Path) -> None:
    run, port = tmp_path / "run", free_port()
    launchers = [
        start(
            run,
            f"host{node}",
            *torchrun(
                *(f"--node-rank={node}", "--nproc-per-node=2", "--master-addr=127.0.0.1"),
                f"--master-port={port}",
            ),
        )
        for node in range(2)
    ]
    ended = [finish(launcher) for launcher in launchers]
    assert [launcher.returncode for launcher in ended] == [0, 0], ended[0].stderr + ended[1].stderr
    reader = open_run(run)
    assert reader.info.job == f"torchrun 127.0.0.1:{port}@{socket.gethostname()}"
    assert {n: s.state for n, s in reader.statuses().items()} == {
        "host0": JobState.COMPLETED,
        "host1": JobState.COMPLETED,
    }
    assert step_counts(run) == {(1, rank): 30 for rank in range(4)}
    assert {p.rank: p.node for p in reader.processes() if p.rank is not None} == {
        0: "host0",
        1: "host0",
        2: "host1",
        3: "host1",
    }
    # One node evaluates rules, writes the verdict and prints it.
    lease = SharedRun(run).read_lease()
    assert lease is not None
    assert lease.number == 1
    assert sum("steps, mean" in one.stderr for one in ended) == 1
    assert sum("Another node writes the verdict" in one.stderr for one in ended) == 1
    assert 2 * 30 < reader.document("verdict")["step_count"] <= 4 * 30  # of both nodes
    assert reader.document("rules")["progress"] == "ended"
    assert sum(f"Joined the run {run} of the job" in one.stderr for one in ended) == 1


@in_detail
@pytest.mark.parametrize("job", [None, "restarted"])
def test_torchrun_restarts_its_ranks(tmp_path: Path, job: str | None) -> None:
    """The ranks exchange nothing: torch's own groups over gloo do not always meet again after a
    restart. `test_incarnations.py` has the case of two nodes."""
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    run = tmp_path / "run"
    ended = finish(
        start(
            run,
            "host0",
            *(*TORCHRUN, "--max-restarts=2", str(SCRIPTS / "steps.py"), "30"),
            options=() if job is None else ("--job", job),
            MEETING=str(meeting),
        )
    )
    assert ended.returncode == 0, ended.stderr
    assert step_counts(run) == {(1, 0): 12, (1, 1): 12, (2, 0): 30, (2, 1): 30}
    overview = command_json("show", "overview", run=run)
    assert overview["job"] == job
    assert [(i["number"], i["step_count"], i["nodes"]) for i in overview["incarnations"]] == [
        (1, 12, ["host0"]),
        (2, 30, ["host0"]),
    ]
    # Figures are of the last start alone.
    assert overview["rank_count"] == 2
    assert any("figures are of incarnation 2" in note for note in overview["verdict"]["notes"])


@pytest.mark.extended("waits until a host counts as lost")
def test_a_host_that_is_killed_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, port, ready = tmp_path / "run", free_port(), tmp_path / "ready"
    hosts = [f"host{node}-{os.getpid()}" for node in range(2)]
    first = start(
        run, hosts[0], *torchrun("--node-rank=0", f"--master-port={port}"), READY=str(ready)
    )
    wait_until(lambda: SharedRun(run).read_lease(), timeout_s=60, waiting_for="lease")
    second = start(
        run, hosts[1], *torchrun("--node-rank=1", f"--master-port={port}"), READY=str(ready)
    )
    wait_until(ready.exists, timeout_s=120, waiting_for="step 10")
    wait_until(lambda: len(step_counts(run)) == 2, timeout_s=60, waiting_for="records of both")
    while pids := processes_of(hosts[1]):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        second.poll()
    second.communicate()
    ended = finish(first)
    assert ended.returncode == 1
    statuses = open_run(run).statuses()
    assert statuses[hosts[0]].state is JobState.FAILED
    assert statuses[hosts[1]].state is JobState.IN_PROGRESS  # a node writes for itself alone
    wait_until(
        lambda: job_state(open_run(run).statuses().values()) is JobState.FAILED, timeout_s=60
    )
    nodes = {node["node"]: node for node in command_json("show", "overview", run=run)["nodes"]}
    assert nodes[hosts[1]]["state"] == "Unknown"
    assert "the host, or stepscope on it, was killed" in nodes[hosts[1]]["reason"]
    # The verdict and the rules are of what both had recorded, and did not wait for long.
    assert open_run(run).document("verdict") is not None
    assert open_run(run).document("rules")["progress"] == "ended"
    # Its machine comes back, and stores what is left there.
    before = step_counts(run)[1, 1]
    monkeypatch.setenv("STEPSCOPE_NODE", hosts[1])
    recovered = run_command(tmp_path, "recover", str(run), "--json")
    assert recovered.returncode == 0, recovered.stderr
    assert json.loads(recovered.stdout)["state"] == "Unknown"
    assert open_run(run).statuses()[hosts[1]].state is JobState.UNKNOWN
    assert step_counts(run)[1, 1] >= before
    again = json.loads(run_command(tmp_path, "recover", str(run), "--json").stdout)
    assert (again["row_count"], again["spool"]) == (0, None)


def test_a_launcher_that_is_started_again(tmp_path: Path) -> None:
    run, job = tmp_path / "run", ("--job", "again")
    first = finish(start(run, "host0", *STEPS, "5", "1", options=job, RANK="0", WORLD_SIZE="2"))
    assert first.returncode == 1
    second = finish(start(run, "host0", *STEPS, "7", options=job, RANK="0", WORLD_SIZE="2"))
    assert second.returncode == 0, second.stderr
    assert "of the job again as node host0~2, incarnation 2." in second.stderr
    assert step_counts(run) == {(1, 0): 5, (2, 0): 7}
    reader = open_run(run)
    assert {name: info.host for name, info in reader.nodes().items()} == {
        "host0": "host0",
        "host0~2": "host0",
    }
    # The second start has succeeded, which is the state of the job.
    assert [status.state for status in reader.statuses().values()] == ["Failed", "Completed"]
    assert job_state(reader.statuses().values()) is JobState.COMPLETED


@in_detail
def test_a_name_of_a_job_that_has_completed(tmp_path: Path) -> None:
    run, job = tmp_path / "run", ("--job", "nightly")
    assert finish(start(run, "host0", *STEPS, "2", options=job)).returncode == 0
    again = finish(start(run, "host0", *STEPS, "2", options=job))
    assert again.returncode == 2
    assert "already holds a run of the job nightly, which has completed" in again.stderr


@in_detail
def test_a_rank_twice(tmp_path: Path) -> None:
    run, end, job = tmp_path / "run", tmp_path / "end", ("--job", "twice")
    ranks = {"RANK": "0", "WORLD_SIZE": "2"}
    first = start(run, "host0", *STEPS, "5", "0", str(end), options=job, **ranks)
    wait_until(lambda: step_counts_or_none(run), timeout_s=60, waiting_for="steps")
    second = start(run, "host0", *STEPS, "6", "0", str(end), options=job, **ranks)
    wait_until(lambda: len(step_counts(run)) == 2, timeout_s=60, waiting_for="steps of both")
    end.touch()
    ended = [finish(first), finish(second)]
    assert [launcher.returncode for launcher in ended] == [0, 0]
    assert "Another launcher of this job runs as host0 rank 0 (process" in ended[1].stderr
    assert "set STEPSCOPE_NODE on each" in ended[1].stderr
    assert step_counts(run) == {(1, 0): 5, (2, 0): 6}


@in_detail
def test_two_jobs_and_one_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert finish(start(run, "a", "true", options=("--job", "one"))).returncode == 0
    refusal = finish(start(run, "b", "true", options=("--job", "two")))
    assert refusal.returncode == 2
    assert "already holds a run of the job one, and this launcher belongs to the job two" in (
        refusal.stderr
    )
    alone = finish(start(run, "c", "true"))
    assert alone.returncode == 2
    assert "this launcher belongs to no job of several launchers" in alone.stderr
    single = tmp_path / "single"
    assert finish(start(single, "a", "true")).returncode == 0
    joining = finish(start(single, "b", "true", options=("--job", "one")))
    assert joining.returncode == 2
    assert "already holds a run of a single launcher, and this launcher belongs to" in (
        joining.stderr
    )
    unnamed = finish(start(tmp_path / "c", "a", "true", options=("--job", " ")))
    assert unnamed.returncode == 2
    assert "--job needs a name that is the same on all nodes" in unnamed.stderr


@in_detail
def test_the_name_of_the_run_follows_from_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task: dict[str, Any] = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "3", "SLURM_NTASKS": "2"}
    launchers = [
        start(None, f"host{n}", *STEPS, "3", SLURM_PROCID=str(n), SLURM_LOCALID="0", **task)
        for n in range(2)
    ]
    for launcher in launchers:
        assert finish(launcher).returncode == 0
    assert [path.name for path in (tmp_path / "stepscope-runs").iterdir()] == ["slurm-4711.3"]
    assert step_counts(tmp_path / "stepscope-runs" / "slurm-4711.3") == {(1, 0): 3, (1, 1): 3}


def step_counts_or_none(run: Path) -> dict[tuple[int, int | None], int] | None:
    try:
        return step_counts(run)
    except NotARunError:  # not created yet
        return None


@in_detail
def test_a_stop_stops_the_job_on_all_nodes(tmp_path: Path) -> None:
    """Jobs that wait for a file that never comes end by the request of a person on one node."""
    run, never = tmp_path / "run", str(tmp_path / "never")
    options = ("--job", "stopped", "--no-rules", "--allow-stop")
    spools = {node: tmp_path / f"spool-{node}" for node in ("host0", "host1")}
    launchers = {
        node: start(run, node, *STEPS, "5", "0", never, options=(*options, "--spool", str(spool)))
        for node, spool in spools.items()
    }
    wait_until(lambda: run.exists() and len(SharedRun(run).list_launchers()) == 2)
    for node in spools:
        wait_until(lambda node=node: SharedRun(run).read_status(node) is not None)
    (spool,) = spools["host1"].iterdir()
    write_stop_request(spool / STOP_REQUEST_FILE, StopRequest(by="ann"))
    ended = {node: finish(launcher) for node, launcher in launchers.items()}
    assert [one.returncode for one in ended.values()] == [-signal.SIGTERM] * 2
    assert "ann stopped the job (signal 15)" in ended["host1"].stderr
    assert "ann stopped the job on node host1 (signal 15)" in ended["host0"].stderr
    statuses = open_run(run).statuses()
    assert {status.state for status in statuses.values()} == {JobState.STOPPED}
    assert statuses["host0"].reason == "ann stopped the job on node host1 (signal 15)"


@in_detail
def test_a_rank_alone_on_its_node_tells_where_it_is(tmp_path: Path) -> None:
    """It waits for nothing, while the rank of the other node waits for it."""
    run, address = tmp_path / "run", f"--master-port={free_port()}"
    job = Path(__file__).parent / "stuck" / "faulty_job.py"
    module = (sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1")
    launchers = [
        start(
            run, f"host{node}", *module, f"--node-rank={node}", "--master-addr=127.0.0.1", address,
            str(job), "sleep",
            options=("--stuck-after", "4", "--on-stuck", "stop", "--stop-grace", "1"),
            OMP_NUM_THREADS="1",
        )
        for node in range(2)
    ]  # fmt: skip
    errors = [finish(launcher).stderr for launcher in launchers]
    stuck = command_json("diagnose", run=run)["stuck"]
    assert stuck is not None, errors
    assert (stuck["culprits"], stuck["kind"]) == ([1], "missing")
    line = 1 + next(n for n, text in enumerate(job.read_text().splitlines()) if "# asleep" in text)
    (culprit,) = (rank for rank in stuck["ranks"] if rank["rank"] == 1)
    assert (culprit["node"], culprit["location"]) == ("host1", f"{job}:{line}")
    # Either node may hold the lease, and the other one repeats what it did.
    stops = ("--on-stuck stopped the job (signal", "--on-stuck stopped the job on node host")
    assert [sum(stop in error for error in errors) for stop in stops] == [1, 1], errors


@in_detail
@pytest.mark.parametrize("shift_s", [-31_536_000, 31_536_000])
def test_a_node_whose_clock_is_a_year_off_runs(tmp_path: Path, shift_s: int) -> None:
    """The clock of all processes of stepscope on one node differs, as Python reads it."""
    shim = tmp_path / "shim"
    shim.mkdir()
    (shim / "sitecustomize.py").write_text(
        "import time\n"
        f"shift_s, time_s, time_ns = {shift_s}, time.time, time.time_ns\n"
        "time.time = lambda: time_s() + shift_s\n"
        "time.time_ns = lambda: time_ns() + 10**9 * shift_s\n"
    )
    run, end = tmp_path / "run", tmp_path / "end"
    options = ("--job", "clocks", "--no-rules")
    path = os.pathsep.join(filter(None, (str(shim), os.environ.get("PYTHONPATH"))))
    launchers = [
        start(run, "host0", *STEPS, "5", "0", str(end), options=options),
        start(run, "host1", *STEPS, "5", "0", str(end), options=options, PYTHONPATH=path),
    ]
    wait_until(lambda: run.exists() and len(SharedRun(run).list_launchers()) == 2)

    def read_elapsed() -> int:
        status = SharedRun(run).read_status("host1")
        return 0 if status is None else status.elapsed_ns or 0

    wait_until(lambda: read_elapsed() > 3e9, waiting_for="a heartbeat of host1")
    statuses = open_run(run).statuses()
    raw = SharedRun(run).read_status("host1")
    assert raw is not None
    assert abs(raw.heartbeat_ns - statuses["host0"].heartbeat_ns) > 30_000_000 * 1e9
    assert [n for n, s in statuses.items() if s.is_silent(time.time_ns())] == []
    assert job_state(statuses.values()) is JobState.IN_PROGRESS
    end.touch()
    ended = [finish(launcher) for launcher in launchers]
    assert [one.returncode for one in ended] == [0, 0], ended[0].stderr + ended[1].stderr
    states = {status.state for status in open_run(run).statuses().values()}
    assert states == {JobState.COMPLETED}


@in_detail
def test_scripts_that_profile_themselves_share_one_run(tmp_path: Path) -> None:
    """As launchers do: torchrun on two nodes, two ranks on each, without `stepscope run`."""
    port = free_port()
    agents = [
        subprocess.Popen(
            torchrun(
                *(f"--node-rank={node}", "--nproc-per-node=2", "--master-addr=127.0.0.1"),
                f"--master-port={port}",
                script="self_profiling.py",
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "STEPSCOPE_NODE": f"host{node}", "GLOO_SOCKET_IFNAME": "lo"},
        )
        for node in range(2)
    ]
    ended = [finish(agent) for agent in agents]
    assert [one.returncode for one in ended] == [0, 0], ended[0].stderr + ended[1].stderr
    (run,) = (tmp_path / "stepscope-runs").iterdir()
    assert run.name == f"torchrun-127.0.0.1-{port}-{socket.gethostname()}"
    reader = open_run(run)
    assert reader.info.job == f"torchrun 127.0.0.1:{port}@{socket.gethostname()}"
    assert {n: s.state for n, s in reader.statuses().items()} == dict.fromkeys(
        ("host0", "host0~2", "host1", "host1~2"), JobState.COMPLETED
    )
    counts = step_counts(run)
    assert set(counts) == {(1, rank) for rank in range(4)}
    assert min(counts.values()) >= 29
