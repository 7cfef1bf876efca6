"""Commands on runs in a bucket: the same answers, and one sentence where there are none."""

from __future__ import annotations

import http.server
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope import open as open_in_python
from stepscope.store import Bucket, BucketLocation
from stepscope.testing import RunBuilder
from tests.support.azure_storage import Storage
from tests.support.buckets import TestBucket
from tests.support.command import run_command
from tests.support.google_storage import google_storage
from tests.support.kineto_files import kernel, launch, op, trace


def stepscope(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(Path.cwd(), *arguments)


def answered(*arguments: str) -> str:
    done = stepscope(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small ones, so that they are imported side by side."""
    directory = tmp_path_factory.mktemp("traces")
    for rank in range(2):
        events = []
        for number in range(1, 30):
            at = 1_000_000 * number
            events += [
                op(f"aten::op{number % 3}", at, 400_000, external=number),
                launch(at + 1_000, 5_000, number, external=number),
                kernel(at + 100_000, 200_000, number, name="gemm"),
            ]
        info = {"backend": "nccl", "rank": rank, "world_size": 2}
        (directory / f"rank{rank}.json").write_bytes(trace(*events, distributedInfo=info))
    return directory


@pytest.mark.seed("DBP-14", "PTP-12")
def test_an_import_reads_the_same_from_a_bucket(
    traces: Path, tmp_path: Path, storage: Storage
) -> None:
    here, there = str(tmp_path / "run"), storage.url("team/run/")
    answered("import", str(traces), "-o", here)
    text = answered("import", str(traces), "-o", there)
    assert text.splitlines()[-1].endswith(f"stepscope diagnose {there}")
    files = {str(p.relative_to(here)) for p in Path(here).rglob("*") if p.is_file()}
    of_large_runs = {"results/verdict.json"}  # it is computed in less time than requests take
    assert set(storage.keys()) == {f"team/run/{item}" for item in files - of_large_runs}
    for view in ("gpu-time", "operators"):
        assert answered("show", there, view, "--json") == answered("show", here, view, "--json")
    assert json.loads(answered("diagnose", there, "--json")) == json.loads(
        answered("diagnose", here, "--json")
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "run"]

    again = stepscope("import", str(traces), "-o", there)
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr == f"stepscope: {there} already holds a run. Use a new URL.\n"
    beside = stepscope("import", str(traces), "-o", storage.url("team"))
    assert beside.returncode == 2
    assert "is not empty" in beside.stderr


@pytest.mark.seed("PTP-12")
def test_traces_in_a_bucket(traces: Path, tmp_path: Path, storage: Storage) -> None:
    """A prefix is a directory of traces, without the objects of other types, and a file a file."""
    storage.put("log/rank0/a.json", (traces / "rank0.json").read_bytes())
    storage.put("log/rank1/a.json", (traces / "rank1.json").read_bytes())
    storage.put("log/checkpoint.pt")
    storage.put("log/.cache/old.json", (traces / "rank0.json").read_bytes())
    done = stepscope("import", storage.url("log"), "-o", str(tmp_path / "both"), "--json")
    assert done.returncode == 0, done.stderr
    names = [(item["name"], item["rank"]) for item in json.loads(done.stdout)["traces"]]
    assert names == [("rank0/a.json", 0), ("rank1/a.json", 1)]
    (line,) = done.stderr.splitlines()
    assert line.startswith("stepscope: Downloaded 2 files of ")
    assert line.endswith(f"from {storage.url('log')}; ignored 1 object of other types.")

    one = storage.url("log/rank1/a.json")
    done = stepscope("import", one, "-o", storage.url("run"), "--json")
    assert [item["rank"] for item in json.loads(done.stdout)["traces"]] == [1]
    shown = json.loads(answered("show", storage.url("run"), "recordings", "--json"))
    assert [item["rank"] for item in shown["recordings"]] == [1]


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("log", "There is no trace at or below"),
        ("nothing/trace.json", "There is no trace at or below"),
        ("run", "is a run already"),
    ],
)
def test_prefixes_without_traces(tmp_path: Path, storage: Storage, key: str, says: str) -> None:
    storage.put("log/checkpoint.pt")
    storage.put("run/run.json", b"{}")
    done = run_command(tmp_path, "import", storage.url(key), "-o", "run")  # without a trace
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("stepscope: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr
    assert storage.url(key) in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.extended("traces in a bucket are imported above")
@pytest.mark.seed("PTP-12")
def test_a_trace_in_google_storage(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with google_storage() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        client = Bucket(BucketLocation.parse("gs://bucket/log"))
        client.put("trace.json", (traces / "rank1.json").read_bytes())
        for number, url in enumerate(("gs://bucket/log", "gs://bucket/log/trace.json")):
            run = tmp_path / f"run{number}"
            done = stepscope("import", url, "-o", str(run), "--json")
            assert done.returncode == 0, done.stderr
            assert [item["rank"] for item in json.loads(done.stdout)["traces"]] == [1]


def test_an_import_of_nothing_leaves_nothing(tmp_path: Path, bucket: TestBucket) -> None:
    (tmp_path / "no-trace.json").write_text("{}")
    done = stepscope("import", str(tmp_path / "no-trace.json"), "-o", bucket.url("run"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert bucket.keys() == []


@pytest.mark.seed("DBP-14", "DBU-02")
def test_a_watched_job_reads_the_same_from_a_bucket(tmp_path: Path, bucket: TestBucket) -> None:
    run = RunBuilder(tmp_path / "job", sampling_ms=100)
    run.rank(0).draw("wait 60 | forward 12 | backward 20 | optimizer 8", 40)
    here = str(run.write())
    there = bucket.put_run(Path(here), "job")
    for command in ("diagnose RUN", "show RUN overview", "show RUN steps", "rules check RUN"):
        both = [
            stepscope(*command.replace("RUN", directory).split(), "--json")
            for directory in (here, there)
        ]
        assert both[0].returncode == both[1].returncode
        assert json.loads(both[0].stdout) == json.loads(both[1].stdout)
    assert answered("compare", here, there, "--json")
    assert "report on" in answered("report", there, "-o", str(tmp_path / "report.json"))
    assert answered("export", there, "--to", "timeline", "-o", str(tmp_path / "timeline.json"))
    assert answered("watch", there, "--json")
    assert open_in_python(there).job_statistics() == open_in_python(here).job_statistics()


@pytest.fixture
def silent() -> Iterator[str]:
    """Provide an address that accepts connections and never responds."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


class _Refusing(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(403)
        self.end_headers()
        self.wfile.write(b"<Error><Code>AccessDenied</Code></Error>")

    do_HEAD = do_PUT = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def refusing() -> Iterator[str]:
    """Provide a server that refuses every user."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


DEAD = "http://127.0.0.1:1"
COMMANDS = {
    "show": ["show", "{}", "overview"],
    "ui": ["ui", "{}", "--no-browser"],
    "import": ["import", "{traces}", "-o", "{}"],
}
SAYS = {
    "bucket": "s3://no-such-bucket: the bucket does not exist",
    "dead": "cannot connect; check the network and the endpoint",
    "refused": "access denied; check the credentials in the environment",
    "plain": "the endpoint has no TLS; allow that with AWS_ALLOW_HTTP=true",
    "silent": "cannot connect",
    "credentials": "no credentials found; set them in the environment",
}


@pytest.mark.seed("SMP-32")
@pytest.mark.parametrize(
    ("words", "trouble"),
    [
        *((COMMANDS["show"], trouble) for trouble in SAYS if trouble != "silent"),
        pytest.param(
            COMMANDS["show"], "silent", marks=pytest.mark.extended("waits until it times out")
        ),
        *((COMMANDS[name], "dead") for name in ("ui", "import")),
    ],
)
def test_one_sentence_soon(
    words: list[str],
    trouble: str,
    traces: Path,
    bucket: TestBucket,
    refusing: str,
    silent: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = "s3://no-such-bucket/run" if trouble == "bucket" else bucket.url("run")
    variables = {
        "dead": ("AWS_ENDPOINT_URL", DEAD),
        "refused": ("AWS_ENDPOINT_URL", refusing),
        "plain": ("AWS_ALLOW_HTTP", "false"),
        "silent": ("AWS_ENDPOINT_URL", silent),
        "credentials": ("AWS_METADATA_ENDPOINT", DEAD),
    }
    if trouble in variables:
        monkeypatch.setenv(*variables[trouble])
    if trouble == "credentials":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    began = time.monotonic()
    done = stepscope(*(word.format(url, traces=traces) for word in words))
    assert time.monotonic() - began < 40
    assert done.returncode == 2
    assert done.stderr.startswith("stepscope: s3://")
    assert SAYS[trouble] in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_commands_that_need_the_machine_of_the_job(bucket: TestBucket, tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "job", sampling_ms=100)
    run.rank(0).draw("wait 60 | forward 12", 3)
    url = bucket.put_run(run.write(), "job")
    done = stepscope("capture", url, "--steps", "3")
    assert done.returncode == 2
    assert "no monitor looks for requests" in done.stderr
    assert done.stderr.count("\n") == 1


def test_where_there_is_no_run(bucket: TestBucket) -> None:
    done = stepscope("diagnose", bucket.url("none"))
    assert done.returncode == 2
    assert done.stderr == (
        f"stepscope: {bucket.url('none')} is not a run: it has no run.json, or not yet, if its job "
        "has just started. Pass the URL of a "
        "run; `stepscope ui URL` lists the runs below a URL.\n"
    )


def test_a_cache_that_cannot_be_written(
    bucket: TestBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunBuilder(tmp_path / "job", sampling_ms=100)
    run.rank(0).draw("wait 60 | forward 12", 3)
    url = bucket.put_run(run.write(), "job")
    (tmp_path / "file").touch()
    with monkeypatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        done = stepscope("diagnose", url)
    assert done.returncode == 2
    assert "set XDG_CACHE_HOME to another directory" in done.stderr
    monkeypatch.setenv("STEPSCOPE_CACHE_GB", "much")
    done = stepscope("diagnose", url)
    assert done.stderr == "stepscope: STEPSCOPE_CACHE_GB='much' is not a number of gigabytes.\n"
