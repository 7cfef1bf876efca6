"""Execution of one training job under `stepscope run` or torch.profiler, as its label describes.

The script runs as a copy without the label, called `train.py`, so that neither reveals the planted
cause; modules in its original directory stay importable.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import psutil

from benchmarks.diagnosis.catalogue import Label, Scenario, strip_label
from benchmarks.diagnosis.outcomes import Answer, Job, Metered, NamedStage, Outcome, SuggestedFix
from stepscope.diagnosis import diagnose
from stepscope.run import Run
from stepscope.store import open_run

SOURCES = Path(__file__).resolve().parents[2] / "src"
PROFILED_SCRIPT = Path(__file__).with_name("profiled_script.py")
TIMEOUT_S = 150.0
"""Time limit of a job."""
SHARED = ("common.py", "drawn.py")
"""Modules that scripts import from their directory."""
BUSY = "while True: pass"
_STEP = re.compile(r"([\d.]+) ms a step")
_SAMPLES = re.compile(r"steps of ([\d.e+]+) samples")


class CannotRunError(Exception):
    """Scenario that this machine cannot run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedRun:
    """Completed command."""

    stdout: str
    wall_s: float
    outside_cores: float


class JobFailedError(Exception):
    """Command that failed, or exceeded the time limit."""


def run_job(job: Job, scenario: Scenario, *, keep: Path | None = None) -> Outcome:
    """Run a scenario under stepscope, or record and import its traces, and diagnose the run.

    Args:
        job: severity, seed and variant.
        scenario: the scenario.
        keep: directory to which the run directory is moved; None to delete it.
    """
    digest = compute_digest(scenario)
    try:
        with copied_script(scenario) as work:
            run, traces = work / "run", work / "traces"
            command = _command(job, scenario.label, work / "train.py", run=run, traces=traces)
            completed = run_in_environment(command, job, scenario, cwd=work)
            if job.tool == "traces":
                _import_traces(traces, run)
            verdict = json.loads(_stepscope("diagnose", str(run), "--json"))
            if keep is not None:
                _move(run, keep / job.directory)
    except CannotRunError as error:
        return Outcome(job=job, depends_on=digest, status="not run", reason=str(error))
    except JobFailedError as error:
        return Outcome(job=job, depends_on=digest, status="failed", reason=str(error))
    return Outcome(
        job=job,
        depends_on=digest,
        status="done",
        answer=parse_answer(verdict),
        metered=parse_metered(completed.stdout),
        wall_s=completed.wall_s,
        outside_cores=completed.outside_cores,
    )


def rediagnose(outcome: Outcome, run: Path) -> Outcome:
    """Replace the answer of an outcome by the current verdict.

    Args:
        outcome: outcome of an earlier run.
        run: the run directory.
    """
    verdict = diagnose(Run(open_run(run)))
    return msgspec.structs.replace(outcome, answer=parse_answer(msgspec.to_builtins(verdict)))


def _command(job: Job, label: Label, path: Path, *, run: Path, traces: Path) -> list[str]:
    script = [str(path), *script_arguments(job)]
    if label.drawn:
        return [sys.executable, *script, "--run", str(run)]
    launcher = [sys.executable, *launcher_arguments(label)]
    if job.tool == "traces":
        return [*launcher, str(PROFILED_SCRIPT), str(traces), *script]
    command = [sys.executable, "-m", "stepscope", "run", "--quiet", "--no-rules"]
    return [*command, "--out", str(run), "--", *launcher, *script]


def _import_traces(traces: Path, run: Path) -> None:
    if not any(traces.glob("*.json")):
        raise CannotRunError("the script ended before its traces, or has no torch optimizer")
    _stepscope("import", str(traces), "-o", str(run))


def parse_answer(verdict: Mapping[str, Any]) -> Answer:
    """Parse the JSON of a verdict."""
    abstains = verdict["suspect"] == "insufficient_evidence"
    step_ns = verdict.get("mean_step_ns")
    return Answer(
        suspect=None if abstains else verdict["suspect"],
        cause=None if abstains else verdict["cause"],
        confidence_ratio=verdict["confidence_ratio"],
        stages=[
            NamedStage(
                name=" ".join([s["name"], s["detail"]]).strip(), share_ratio=s["share_ratio"]
            )
            for s in verdict["stages"]
        ],
        fixes=[
            SuggestedFix(
                title=fix["title"], description=fix["how"], step_ms=_predicted_ms(fix, step_ns)
            )
            for fix in verdict["fixes"]
        ],
        step_ms=step_ns / 1e6 if step_ns is not None else None,
        words=verdict["headline"],
    )


def parse_metered(stdout: str) -> Metered | None:
    """Parse the step time that a script printed; None if it printed none."""
    step, samples = _STEP.search(stdout), _SAMPLES.search(stdout)
    if step is None:
        return None
    count = float(samples[1]) if samples else 1.0
    return Metered(step_ms=float(step[1]), samples_per_step=count)


def compute_digest(scenario: Scenario) -> str:
    """Compute the digest of a scenario, of stepscope and of this module."""
    modules = [Path(__file__).read_bytes(), PROFILED_SCRIPT.read_bytes()]
    return scenario_digest(scenario, _tree_digest(SOURCES).encode(), *modules)


def scenario_digest(scenario: Scenario, *more: bytes) -> str:
    """Compute the digest of all inputs of a run, without the expectations of its label."""
    label = scenario.label
    environment = f"{label.neighbours} {label.ranks} {label.cpu_limit}"
    parts = [strip_label(scenario.path.read_text()).encode(), environment.encode(), *more]
    shared = [scenario.path.parent / name for name in SHARED]
    parts += [path.read_bytes() for path in shared if path.exists()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def script_arguments(job: Job) -> list[str]:
    """Return the arguments that every scenario accepts."""
    arguments = ["--severity", f"{job.severity:g}", "--seed", str(job.seed)]
    return [*arguments, "--fixed"] if job.fixed else arguments


def launcher_arguments(label: Label) -> list[str]:
    """Return the arguments between the interpreter and the script."""
    if label.ranks == 1:
        return []
    return [
        *("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={label.ranks}"),
        "--local-addr=127.0.0.1",  # the name of the machine may have no address
    ]


@contextmanager
def copied_script(scenario: Scenario) -> Iterator[Path]:
    """Create a directory with the script as `train.py`, without its label."""
    work = Path(tempfile.mkdtemp(prefix="bench-diagnosis-"))
    try:
        (work / "train.py").write_text(strip_label(scenario.path.read_text()))
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def run_in_environment(
    command: Sequence[str], job: Job, scenario: Scenario, *, cwd: Path
) -> CompletedRun:
    """Run a command with the neighbour processes and the CPU limit of the label.

    Raises:
        CannotRunError: the limit cannot be set on this machine.
        JobFailedError: the command failed or exceeded the time limit.
    """
    label = scenario.label
    with ExitStack() as stack:
        procs_file: Path | None = None
        if not job.fixed:
            stack.enter_context(neighbours(round(label.neighbours * job.severity)))
            if label.cpu_limit is not None:
                procs_file = stack.enter_context(cpu_limit(label.cpu_limit / job.severity))
        return _run(_in_cgroup(command, procs_file), cwd=cwd, extra_path=scenario.path.parent)


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Run processes outside the job that keep cores busy.

    Each process has its own session, like those of other users: if the kernel schedules by session,
    many processes in one session would have little effect.
    """
    started = [
        subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True) for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextmanager
def cpu_limit(cores: float) -> Iterator[Path]:
    """Create a cgroup with a CPU limit and yield the file through which processes join it.

    Raises:
        CannotRunError: this user cannot create a cgroup for the CPU.
    """
    period_us = 100_000
    quota_us = round(cores * period_us)
    settings = {
        Path("/sys/fs/cgroup/cpu"): {
            "cpu.cfs_period_us": f"{period_us}",
            "cpu.cfs_quota_us": f"{quota_us}",
        },
        Path("/sys/fs/cgroup"): {"cpu.max": f"{quota_us} {period_us}"},
    }
    for root, files in settings.items():
        group = root / f"bench-diagnosis-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if not all((group / name).exists() for name in files):
                continue
            for name, value in files.items():
                (group / name).write_text(value)
            _check_limit(group, cores)
            yield group / "cgroup.procs"
            return
        except OSError:
            continue
        finally:
            _remove_cgroup(group)
    raise CannotRunError("cannot create a cgroup for the CPU")


@cache
def _check_limit(group: Path, cores: float) -> None:
    """Check that the limit has an effect; without one, the label would be wrong."""
    code = "import time\nend = time.time() + 1\nwhile time.time() < end: pass\n"
    code += "print(time.process_time())"
    command = _in_cgroup([sys.executable, "-c", code], group / "cgroup.procs")
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    throttled = re.search(r"nr_throttled (\d+)", (group / "cpu.stat").read_text())
    if cores < 1 and (throttled is None or throttled[1] == "0"):
        used = float(result.stdout or "nan")
        raise CannotRunError(
            f"a cgroup with a limit of {cores:g} cores did not throttle: {used:.2f} cores used"
        )


def _in_cgroup(command: Sequence[str], procs: Path | None) -> list[str]:
    if procs is None:
        return list(command)
    return ["/bin/sh", "-c", f'echo $$ > {procs} && exec "$@"', "sh", *command]


def _remove_cgroup(group: Path) -> None:
    for _ in range(50):
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:  # the last process has not exited yet
            time.sleep(0.1)


def _run(command: Sequence[str], *, cwd: Path, extra_path: Path) -> CompletedRun:
    inherited = os.environ.get("PYTHONPATH")
    paths = [str(extra_path), str(SOURCES), *([inherited] if inherited else [])]
    busy_before, own_before, start = _busy_s(), _own_s(), time.monotonic()
    with (
        (cwd / "stdout").open("w+") as stdout,
        (cwd / "stderr").open("w+") as stderr,
        subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        ) as process,
    ):
        try:
            process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            _kill_all(process.pid)
            raise JobFailedError(f"still running after {TIMEOUT_S:g} s") from error
        except BaseException:
            _kill_all(process.pid)
            raise
        wall = time.monotonic() - start
        stdout.seek(0)
        stderr.seek(0)
        output, errors = stdout.read(), stderr.read()
    if process.returncode:
        raise JobFailedError(f"exit code {process.returncode}: {errors[-800:]}")
    outside_s = (_busy_s() - busy_before) - (_own_s() - own_before)
    return CompletedRun(stdout=output, wall_s=wall, outside_cores=max(0.0, outside_s / wall))


def _kill_all(pid: int) -> None:
    """Kill a command with its descendants: ranks are in sessions of their own."""
    descendants = psutil.Process(pid).children(recursive=True)
    os.killpg(pid, signal.SIGKILL)
    for process in descendants:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


def _own_s() -> float:
    """Sum the CPU time of completed child processes and of the running neighbours."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = used.ru_utime + used.ru_stime
    for child in psutil.Process().children():
        try:
            times = child.cpu_times()
            total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


def _stepscope(command: str, *arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "stepscope", command, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        check=False,
    )
    if result.returncode:
        raise JobFailedError(f"stepscope {command} failed: {result.stderr[-800:]}")
    return result.stdout


def _move(run: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(run, target)


def _predicted_ms(fix: Mapping[str, Any], step_ns: float | None) -> float | None:
    """Compute the predicted step time from the predicted share of saved time.

    Some predictions are about the time from step to step including evaluation, but the mean step
    that they are compared with excludes it.
    """
    prediction = fix.get("prediction")
    if prediction is None or step_ns is None:
        return None
    return float(step_ns * (1 - prediction["saving_ratio"])) / 1e6


@cache
def _tree_digest(directory: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
