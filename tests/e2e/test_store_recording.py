"""Jobs that `stepscope run --out URL` records into object stores, as their users start them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.schema import JobState
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from tests.support.azure_storage import Storage
from tests.support.buckets import TestBucket
from tests.support.google_storage import google_storage
from tests.support.job_control import steps_command
from tests.support.store_outages import Fault, outages
from tests.support.tiers import extend_all_but
from tests.support.under_stepscope import JOB_TIMEOUT_S, STEPSCOPE

STEP_COUNT = 1500
in_detail = pytest.mark.extended(
    "more jobs of what test_a_job_is_recorded_into_an_object_store shows"
)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def stepscope(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*STEPSCOPE, *words],
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        env={**os.environ, **environment},
    )


def record(
    url: str, *command: str, options: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    words = ("--out", url, "--window", "off", *options, "--", *command)
    return stepscope("run", *words, **environment)


def steps(url: str) -> list[int]:
    rows = open_run(url).table("spans", ["value"], condition="kind = 'step'")
    values: list[int] = rows["value"].astype(int).tolist()
    return values


def staged(tmp_path: Path) -> list[Path]:
    return [*(tmp_path / "state" / "stepscope" / "uploads").glob("*")]


def check_recording(url: str, tmp_path: Path) -> None:
    done = record(url, *steps_command("--count", str(STEP_COUNT)))
    assert done.returncode == 0, done.stderr
    assert steps(url) == list(range(STEP_COUNT))
    reader = open_run(url)
    (status,) = reader.statuses().values()
    assert (status.state, status.notes) == (JobState.COMPLETED, [])
    assert reader.document("verdict") is not None  # it is written after the end of the monitor
    assert reader.document("rules")["progress"] == "ended"
    assert f"run  {url}" in done.stderr
    assert staged(tmp_path) == []


@pytest.mark.seed("DBP-14")
def test_a_job_is_recorded_into_an_object_store(storage: Storage, tmp_path: Path) -> None:
    check_recording(storage.url("runs/a"), tmp_path)


@in_detail
def test_a_job_is_recorded_into_google_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with google_storage() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        check_recording("gs://bucket/runs/a", tmp_path)


LOADED = """
import os, pathlib, sys
parent = pathlib.Path(f"/proc/{os.getppid()}/maps").read_text()
own = pathlib.Path("/proc/self/maps").read_text()
print(json.dumps({"launcher": "_obstore" in parent, "job": "_obstore" in own}))
"""


@in_detail
def test_the_library_is_neither_in_the_launcher_nor_in_the_job(
    bucket: TestBucket, tmp_path: Path
) -> None:
    open_run(bucket.put_run(RunBuilder(tmp_path / "run").write(), "b"))
    assert "_obstore" in Path("/proc/self/maps").read_text()  # where it is loaded, it shows
    done = record(bucket.url("a"), sys.executable, "-c", f"import json{LOADED}")
    assert json.loads(done.stdout) == {"launcher": False, "job": False}


@pytest.mark.extended("a minute without a store; a store that comes back is in tests/unit/monitor")
@pytest.mark.parametrize("code", extend_all_but({7}, [0, 7], "another exit status"))
def test_a_store_that_is_away_costs_the_job_nothing(
    bucket: TestBucket, tmp_path: Path, code: int
) -> None:
    """The job ends with its own status; the recording stays, and `recover` uploads it."""
    url = bucket.url("runs/a")
    job = f"import stepscope\nfor n in range(50): stepscope.step(n)\nraise SystemExit({code})"
    with outages(bucket.server.endpoint) as relay:
        relay.fault = Fault.UNAVAILABLE
        done = record(url, sys.executable, "-c", job, AWS_ENDPOINT_URL=relay.endpoint)
        assert done.returncode == code
        (directory,) = staged(tmp_path)
        assert f"The run in {url} is not complete: " in done.stderr
        assert "because s3://" in done.stderr
        assert "the service limits requests or is overloaded" in done.stderr
        assert f"The recording is in {directory}. Finish the upload with: " in done.stderr
        assert done.stderr.rstrip().endswith(f"recover {url}")
        assert bucket.keys() == []
        again = record(url, "true", AWS_ENDPOINT_URL=relay.endpoint)
        assert again.returncode == 2
        assert "or the upload of its recording was interrupted. Use a new URL" in again.stderr
        relay.fault = Fault.DENIED
        refused = stepscope("recover", str(directory), AWS_ENDPOINT_URL=relay.endpoint)
        assert refused.returncode == 1
        assert "access denied; check the credentials" in refused.stdout
    done = stepscope("recover", url, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["upload"]["complete"]
    assert steps(url) == list(range(50))
    assert staged(tmp_path) == []
    done = stepscope("recover", url)
    assert done.stdout == (
        f"Nothing to recover: this machine has no recording for {url} that is not uploaded yet.\n"
    )


@in_detail
def test_the_url_of_another_run(bucket: TestBucket, tmp_path: Path) -> None:
    bucket.put("runs/a/run.json", b"{}")
    done = record(bucket.url("runs/a"), "true")
    assert done.returncode == 0
    (directory,) = staged(tmp_path)
    assert done.stderr.rstrip().endswith(
        f"The run is not in the object store: {bucket.url('runs/a')} already holds a damaged run. "
        f"The recording is in {directory}, which is a complete run: move it, or copy it to "
        "another URL."
    )
    assert open_run(directory).info.command == ["true"]


@in_detail
def test_a_job_that_cannot_start_leaves_nothing(bucket: TestBucket, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("no program")
    (tmp_path / "script").chmod(0o755)
    done = record(bucket.url("runs/a"), str(tmp_path / "script"))
    assert done.returncode == 2
    assert staged(tmp_path) == []
    assert bucket.keys() == []


@in_detail
@pytest.mark.parametrize("disks", [("disk-a", "disk-b"), ("disk", "disk")])
def test_launchers_of_one_job_record_one_run(
    bucket: TestBucket, tmp_path: Path, disks: tuple[str, str]
) -> None:
    """Each machine uploads its part; one launcher waits for the other and writes the verdict.

    On one machine, one monitor uploads for both.
    """
    url = bucket.url("runs/a")

    def start(node: str, rank: int) -> subprocess.Popen[str]:
        variables = {
            "STEPSCOPE_NODE": node,
            "XDG_STATE_HOME": str(tmp_path / disks[rank]),
            "RANK": str(rank),
            "WORLD_SIZE": "2",
        }
        words = ("run", "--job", "nightly", "--out", url, "--window", "off", "--no-rules", "--")
        return subprocess.Popen(
            [*STEPSCOPE, *words, *steps_command("--count", str(STEP_COUNT))],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )

    launchers = [start("a", 0), start("b", 1)]
    errors = [launcher.communicate(timeout=JOB_TIMEOUT_S)[1] for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [0, 0], errors
    assert sum("Another node writes the verdict" in text for text in errors) == 1
    reader = open_run(url)
    assert {node: s.state for node, s in reader.statuses().items()} == {
        "a": JobState.COMPLETED,
        "b": JobState.COMPLETED,
    }
    assert sorted(steps(url)) == sorted([*range(STEP_COUNT)] * 2)
    ranks = {p.rank: (p.node, p.incarnation) for p in reader.processes() if p.rank is not None}
    assert ranks == {0: ("a", 1), 1: ("b", 1)}
    # It is of the records of both.
    assert reader.document("verdict")["step_count"] > STEP_COUNT
    if disks[0] != disks[1]:  # else the launcher that ends last removes them, if there is one
        assert not [*tmp_path.glob("disk*/**/*.parquet")]


def test_without_the_library_of_object_stores(tmp_path: Path) -> None:
    hook = tmp_path / "site"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        "def find_spec(name, *rest):\n"
        "    return None if name == 'obstore' else find(name, *rest)\n"
        "importlib.util.find_spec = find_spec\n"
    )
    path = f"{hook}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = record("s3://bucket/a", "true", PYTHONPATH=path)
    assert done.returncode == 2
    assert "--out s3://bucket/a needs obstore, which is not installed: pip install" in done.stderr
