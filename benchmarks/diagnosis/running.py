"""One training job under `stepscope run`, with what its label asks for around it.

The script runs as a copy called `train.py` without the label, so that neither tells anybody what
is planted; the directory that it came from stays importable.
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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import psutil

from benchmarks.diagnosis.catalogue import Label, Scenario, without_label
from benchmarks.diagnosis.outcomes import Answer, FixSaid, Job, Metered, Outcome, StageSaid
from stepscope.diagnosis import diagnose
from stepscope.run import Run
from stepscope.store import open_run

SOURCES = Path(__file__).resolve().parents[2] / "src"
LIMIT_S = 150.0
"""More than this and a job has failed."""
SHARED = ("common.py", "drawn.py")
"""What scripts import from beside them."""
BUSY = "while True: pass"
_STEP = re.compile(r"([\d.]+) ms a step")
_SAMPLES = re.compile(r"steps of ([\d.e+]+) samples")


class CannotRunError(Exception):
    """Something that a scenario asks for cannot be had on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that ended by itself."""

    stdout: str
    wall_s: float
    outside_cores: float


class JobFailedError(Exception):
    """A command that failed, or had to be ended."""


def run_job(job: Job, scenario: Scenario, *, keep: Path | None = None) -> Outcome:
    """Run a scenario under stepscope and ask for the verdict.

    Args:
        job: how it runs.
        scenario: what runs.
        keep: where the run directory is put afterwards, None to throw it away.
    """
    digest = depends_on(scenario)
    try:
        with copied(scenario) as work:
            script = [str(work / "train.py"), *script_arguments(job)]
            run = work / "run"
            command = (
                _drawing(script, run)
                if scenario.label.drawn
                else _training(scenario.label, script, run)
            )
            ended = run_around(command, job, scenario, cwd=work)
            verdict = _verdict(run)
            if keep is not None:
                _keep(run, keep / job.directory)
    except CannotRunError as error:
        return Outcome(job=job, depends_on=digest, status="not run", reason=str(error))
    except JobFailedError as error:
        return Outcome(job=job, depends_on=digest, status="failed", reason=str(error))
    return Outcome(
        job=job,
        depends_on=digest,
        status="done",
        answer=answer_of(verdict),
        metered=metered(ended.stdout),
        wall_s=ended.wall_s,
        outside_cores=ended.outside_cores,
    )


def judge_again(outcome: Outcome, run: Path) -> Outcome:
    """An outcome with the verdict that stepscope gives now.

    Args:
        run: the directory that was kept of the run.
    """
    verdict = diagnose(Run(open_run(run)))
    return msgspec.structs.replace(outcome, answer=answer_of(msgspec.to_builtins(verdict)))


def _training(label: Label, script: Sequence[str], run: Path) -> list[str]:
    command = [sys.executable, "-m", "stepscope", "run", "--quiet", "--no-rules"]
    return [*command, "--out", str(run), "--", sys.executable, *launcher(label), *script]


def _drawing(script: Sequence[str], run: Path) -> list[str]:
    return [sys.executable, *script, "--run", str(run)]


def answer_of(verdict: Mapping[str, Any]) -> Answer:
    """What scores are made of, from a verdict's JSON."""
    abstains = verdict["suspect"] == "insufficient_evidence"
    step_ns = verdict.get("mean_step_ns")
    return Answer(
        suspect=None if abstains else verdict["suspect"],
        cause=None if abstains else verdict["cause"],
        confidence_ratio=verdict["confidence_ratio"],
        stages=[
            StageSaid(name=" ".join([s["name"], s["detail"]]).strip(), share_ratio=s["share_ratio"])
            for s in verdict["stages"]
        ],
        fixes=[
            FixSaid(title=fix["title"], how=fix["how"], step_ms=_predicted_ms(fix, step_ns))
            for fix in verdict["fixes"]
        ],
        step_ms=step_ns / 1e6 if step_ns is not None else None,
        words=verdict["headline"],
    )


def metered(stdout: str) -> Metered | None:
    """What a script printed about its steps; None where it printed nothing of the kind."""
    step, samples = _STEP.search(stdout), _SAMPLES.search(stdout)
    if step is None:
        return None
    count = float(samples[1]) if samples else 1.0
    return Metered(step_ms=float(step[1]), samples_per_step=count)


def depends_on(scenario: Scenario) -> str:
    """Digest of a scenario, of stepscope and of how it is read here."""
    return scenario_digest(scenario, _tree_digest(SOURCES).encode(), Path(__file__).read_bytes())


def scenario_digest(scenario: Scenario, *more: bytes) -> str:
    """Digest of all that a run comes from, but for what its label expects."""
    label = scenario.label
    around = f"{label.neighbours} {label.ranks} {label.cpu_limit}"
    parts = [without_label(scenario.path.read_text()).encode(), around.encode(), *more]
    shared = [scenario.path.parent / name for name in SHARED]
    parts += [path.read_bytes() for path in shared if path.exists()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def script_arguments(job: Job) -> list[str]:
    """As every scenario takes them."""
    found = ["--severity", f"{job.severity:g}", "--seed", str(job.seed)]
    return [*found, "--fixed"] if job.fixed else found


def launcher(label: Label) -> list[str]:
    """What stands between the interpreter and the script."""
    if label.ranks == 1:
        return []
    return ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={label.ranks}"]


@contextmanager
def copied(scenario: Scenario) -> Iterator[Path]:
    """A directory with the script as `train.py`, without its label."""
    work = Path(tempfile.mkdtemp(prefix="bench-diagnosis-"))
    try:
        (work / "train.py").write_text(without_label(scenario.path.read_text()))
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def run_around(command: Sequence[str], job: Job, scenario: Scenario, *, cwd: Path) -> Ended:
    """Run a command with the neighbours and the limit that the label plants.

    Raises:
        CannotRunError: the limit cannot be had here.
        JobFailedError: it did not end well.
    """
    label = scenario.label
    with ExitStack() as around:
        joins: Path | None = None
        if not job.fixed:
            around.enter_context(neighbours(round(label.neighbours * job.severity)))
            if label.cpu_limit is not None:
                joins = around.enter_context(cpu_limit(label.cpu_limit / job.severity))
        return _run(_inside(command, joins), cwd=cwd, extra_path=scenario.path.parent)


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Processes outside the job that keep cores busy.

    Each in a session of its own, as those of other people are: where the kernel shares cores out
    by session, many in one would hardly be felt.
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
    """A control group that allows so many cores; the file that a process joins it by.

    Raises:
        CannotRunError: there are no control groups for the CPU that this user may make.
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
            _remove(group)
    raise CannotRunError("no control group for the CPU can be made here")


@cache
def _check_limit(group: Path, cores: float) -> None:
    """A group that exists and limits nothing would make the label wrong."""
    code = "import time\nend = time.time() + 1\nwhile time.time() < end: pass\n"
    code += "print(time.process_time())"
    command = _inside([sys.executable, "-c", code], group / "cgroup.procs")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    throttled = re.search(r"nr_throttled (\d+)", (group / "cpu.stat").read_text())
    if cores < 1 and (throttled is None or throttled[1] == "0"):
        used = float(done.stdout or "nan")
        raise CannotRunError(
            f"a control group for {cores:g} cores stopped nobody, who used {used:.2f}"
        )


def _inside(command: Sequence[str], procs: Path | None) -> list[str]:
    if procs is None:
        return list(command)
    return ["/bin/sh", "-c", f'echo $$ > {procs} && exec "$@"', "sh", *command]


def _remove(group: Path) -> None:
    for _ in range(50):
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:  # the last process has not quite gone
            time.sleep(0.1)


def _run(command: Sequence[str], *, cwd: Path, extra_path: Path) -> Ended:
    inherited = os.environ.get("PYTHONPATH")
    paths = [str(extra_path), str(SOURCES), *([inherited] if inherited else [])]
    before, own_before, began = _busy_s(), _own_s(), time.monotonic()
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
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            raise JobFailedError(f"it was still running after {LIMIT_S:g} s") from error
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        wall = time.monotonic() - began
        stdout.seek(0)
        stderr.seek(0)
        printed, complaint = stdout.read(), stderr.read()
    if process.returncode:
        raise JobFailedError(f"it ended with {process.returncode}: {complaint[-800:]}")
    others = (_busy_s() - before) - (_own_s() - own_before)
    return Ended(stdout=printed, wall_s=wall, outside_cores=max(0.0, others / wall))


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


def _own_s() -> float:
    """CPU time of what was started here: what has ended, and the neighbours, which still run."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = used.ru_utime + used.ru_stime
    for child in psutil.Process().children():
        try:
            times = child.cpu_times()
            total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


def _verdict(run: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "stepscope", "diagnose", str(run), "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        check=False,
    )
    if done.returncode:
        raise JobFailedError(f"no verdict: {done.stderr[-800:]}")
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict


def _keep(run: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(run, place)


def _predicted_ms(fix: Mapping[str, Any], step_ns: float | None) -> float | None:
    """The predicted step, from the share that is saved: some predictions are about the time from
    step to step, evaluation included, and the mean step that they are checked against is not."""
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
