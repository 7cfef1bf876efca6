"""Every block of console and Python in the README and on the site runs as printed.

Blocks of a page run one after the other, in a copy of the directory `prepared`. Options of
blocks that cannot run are parsed by tests/unit/test_suggested_commands.py.
"""

from __future__ import annotations

import doctest
import gzip
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.buckets import free_port
from tests.support.document_blocks import (
    ROOT,
    Block,
    Typed,
    find_missing_line,
    find_pages,
    read_blocks,
    read_commands,
)
from tests.support.served_runs import trace_events
from tests.support.stage_jobs import StageJob, play, write_parquet
from tests.support.under_stepscope import JOB_TIMEOUT_S
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.extended("records a job for most pages"), pytest.mark.quiet]
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "BROWSER": "true",
    "COLUMNS": "100",
    "STEPSCOPE_RUN_SCAN_INTERVAL": "1",
}
SHOWN_BY = {"docs/python.md": "tests/unit/access/test_python_doc.py"}
"""Tests of the pages whose examples have a run of their own."""
PID = "4711"
"""Process of the documents that trains, or is stuck, without stepscope."""
STUCK = """
import threading

def wait_for_batch(ready):
    ready.wait()

open("stuck.txt", "w").close()
wait_for_batch(threading.Event())
"""
CHANGES_A_JOB = ("stepscope configure", "stepscope capture")
SERVERS = ("stepscope ui",)
KERNELS = re.compile(r"\bkernels\b")
"""In commands about a run with a trace of a GPU."""
BUSY = "Processes outside the job kept"
"""In the output of a job that others kept from its cores, which is the verdict then."""
NAMES = """
import stepscope, torch
from train import Network, Photos
from torch.utils.data import DataLoader
model, loader = Network(), DataLoader(torch.utils.data.Subset(Photos(), range(32)), batch_size=8)
images, labels = next(iter(loader))
logits = model(images)
loss = torch.nn.functional.cross_entropy(logits, labels)
"""
"""What the scripts of the documents have made before."""
BLOCKS = {
    page.relative_to(ROOT).as_posix(): blocks
    for page in find_pages()
    if (blocks := read_blocks(page))
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory with what the commands name: a job, two runs of it, and traces."""
    directory = tmp_path_factory.mktemp("documents")
    for block in itertools.chain(*BLOCKS.values()):
        if block.title:
            (directory / block.title).write_text(block.text)
    train = (directory / "train.py").read_text()
    for folder, text in {
        "main": train.replace("2400", "800"),
        "branch": train.replace("2400", "800"),
        "long": train.replace("2400", "6000"),
        "stuck": STUCK,
    }.items():
        (directory / folder).mkdir()
        (directory / folder / "train.py").write_text(text)
    shutil.copy(ROOT / "tests" / "e2e" / "scripts" / "ddp_gloo.py", directory / "ddp.py")
    for run in ("RUN", "BASE"):
        done = execute(f"stepscope run --out {run} -- python train.py", directory)
        assert done.returncode == 0, done.stderr
    shutil.copytree(directory / "RUN", directory / "runs" / "a")
    (directory / "traces").mkdir()
    trace = json.dumps({"traceEvents": trace_events()}).encode()
    for name in ("trace.json", "traces/rank0.json"):
        (directory / name).write_bytes(trace)
    (directory / "trace.json.gz").write_bytes(gzip.compress(trace))
    assert execute("stepscope import trace.json -o TRACED", directory).returncode == 0
    nodes = {"schema": "1.1.1-chakra.0.0.4", "pid": 10, "start_ts": 1, "nodes": []}
    (directory / "execution_trace.json").write_text(json.dumps(nodes))
    job = StageJob(stages=2, data_ranks=2, microbatches=3, steps=2)
    write_parquet(play(job, job.draw_times(1)).operations, directory / "job.parquet")
    return directory


def execute(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in Bash, with its output and its messages in one text."""
    return subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT if "benchmarks." in command else directory,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=4 * JOB_TIMEOUT_S,
    )


@contextmanager
def training(directory: Path, script: str, *launcher: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a job until the end of the block; its launcher gets the signal of Ctrl-C."""
    command = [*launcher, "python", script]
    job = subprocess.Popen(command, cwd=directory, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    try:
        yield job
    finally:
        job.send_signal(signal.SIGINT)
        job.wait(JOB_TIMEOUT_S)


def serve(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a server until it prints its address; a server of the user may have the port."""
    words = ["bash", "-c", f"exec {command.replace('8420', str(free_port()))}"]
    options = {"cwd": directory, "env": ENVIRONMENT, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **options) as server:
        address = next(line for line in server.stdout if "http://" in line)
        server.send_signal(signal.SIGINT)
        return subprocess.CompletedProcess(command, server.wait(JOB_TIMEOUT_S), address)


def run_command(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of a document, and meanwhile the process that it looks at."""
    if command.startswith(SERVERS):
        return serve(command, directory)
    if PID in command:
        script = "stuck/train.py" if "--once" in command else "long/train.py"
        with training(directory, script) as job:
            workers = psutil.Process(job.pid).children
            wait_until(lambda: workers() or (directory / "stuck.txt").exists())
            return execute(command.replace(PID, str(job.pid)), directory)
    if command.startswith(CHANGES_A_JOB):
        shutil.rmtree(directory / "RUN")
        with training(directory, "long/train.py", "stepscope", "run", "--out", "RUN", "--"):
            wait_until(lambda: list((directory / "RUN").glob("tables/spans/*/*.parquet")))
            return execute(command, directory)
    if KERNELS.search(command):
        command = command.replace("RUN", "TRACED")
    for run in re.findall(r"(?:--out|-o) (RUN|slow|fixed)\b", command):
        shutil.rmtree(directory / run, ignore_errors=True)  # which the command creates
    return execute(command, directory)


def expected_codes(command: str) -> set[int]:
    """Return the exit status that a comment states, or success."""
    stated = re.search(r"exits with (\d+)( if)?", command)
    if command.startswith("stepscope rules check"):
        return {0, 3}
    if stated:
        return {int(stated[1]), 0} if stated[2] else {int(stated[1])}
    return {0}


def shell_code(done: subprocess.CompletedProcess[str]) -> int:
    """Return the exit status as a shell has it."""
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def check_command(typed: Typed, directory: Path) -> None:
    done = run_command(typed.command, directory)
    assert shell_code(done) in expected_codes(typed.command), (typed.command, done.stdout)
    missing = find_missing_line(typed.output, done.stdout)
    if missing and BUSY in done.stdout:
        pytest.skip("other processes use the cores")
    assert missing is None, f"{typed.command}\nprints no {missing!r}:\n{done.stdout}"


def check_session(block: Block, names: dict[str, object]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, names, block.address, None, block.line)
    results = doctest.DocTestRunner().run(test, clear_globs=False)
    assert results.failed == 0


def check_script(block: Block, directory: Path) -> None:
    command = [sys.executable, "-c", NAMES + block.text]
    options = {"cwd": directory, "env": ENVIRONMENT, "timeout": JOB_TIMEOUT_S}
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", BLOCKS)
def test_the_blocks_of_a_page_run_as_printed(
    page: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = shutil.copytree(prepared, tmp_path / "job")
    monkeypatch.chdir(directory)
    names: dict[str, object] = {}
    for block in BLOCKS[page]:
        if block.title or block.needs or page in SHOWN_BY:
            continue
        if block.language == "console":
            for typed in read_commands(block):
                check_command(typed, directory)
        elif block.language == "python" and block.is_session:
            check_session(block, names)
        elif block.language == "python":
            check_script(block, directory)
