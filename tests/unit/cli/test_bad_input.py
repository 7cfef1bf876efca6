"""Bad input: one clear sentence, exit status 2, no traceback, and nothing left behind."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stepscope.schema import SCHEMA_VERSION
from stepscope.testing import RunBuilder
from tests.support.command import run_command, run_process
from tests.support.golden_runs import golden_run
from tests.support.kineto_files import trace, training
from tests.support.permissions import public_directory, restricted  # noqa: F401 - a fixture


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--no-such-option", "--", "true"], "No such option"),
        (["run"], "Missing argument"),
        (["run", "--interval", "250", "--", "true"], "'250' is not one of"),
        (["run", "--spool-limit", "many", "--", "true"], "is not a size, e.g. 256MB or 1GiB"),
        (
            ["run", "--spool-limit", "128KiB", "--", "true"],
            "is too small for span logs, which need at least 1 MiB",
        ),
        (["run", "--max-run-size", "many", "--", "true"], "is not a size"),
        (
            ["run", "--max-run-size", "1MB", "--", "true"],
            "1MB is too small for a run, whose newest files are kept in full detail; use at least",
        ),
        (["run", "--monitor-budget", "2%,lots", "--", "true"], "is not a size"),
        (
            ["run", "--monitor-budget", "0%", "--", "true"],
            "'0%' is not a share of a core, e.g. 2%.",
        ),
        (["attach", "1", "--monitor-budget", "1%,2%"], "'1%,2%' is not a budget, e.g. 2%,150MB"),
        (["run", "--", sys.executable, "missing.py"], "The script missing.py does not exist in"),
        (
            ["run", "--", "no-such-command"],
            "Command 'no-such-command' not found; check its spelling and PATH.",
        ),
        (["run", "--", "./here.py"], "./here.py is not executable. Run it with: stepscope run -- "),
        (["run", "--out", "here.py/run", "--", "true"], "here.py"),
        (["run", "--out", ".", "--", "true"], "is not empty; pass a new one to --out"),
        (["run", "--out", "s3://buc ket/run", "--", "true"], "is not a bucket URL"),
        (
            ["run", "--out", "s3://bucket/run", "--staging", "here.py", "--", "true"],
            "Pass another one to --staging.",
        ),
        (["recover", "s3://"], "is not a bucket URL"),
        (["diagnose", "s3://"], "is not a bucket URL"),
        (["diagnose", "http://host/run"], "http://host/run cannot be a run: use a directory, or a"),
        (["diagnose", "http://host/a b"], "with `stepscope import 'http://host/a b' -o RUN`."),
        (["show", "http://host/run", "steps"], "Import a trace from a URL with `stepscope import"),
        (
            ["show", "file:///run", "steps"],
            "file:///run cannot be a run: use a directory, or a URL",
        ),
        (["compare", ".", "ftp://host/run"], "ftp://host/run cannot be a run"),
        (["recover", "http://host/run"], "http://host/run cannot be a run"),
        (["run", "--out", "http://host/run", "--", "true"], "http://host/run cannot be a run"),
        (["try", "s3://bucket/run"], "A trial needs the job's machine and a local run directory"),
        (
            ["import", "gone", "-o", "new"],
            "gone does not exist; pass a trace, a directory or a URL",
        ),
        (["recover", "here.py"], "is a file, but a run is a directory"),
        (["import", "here.py", "-o", "."], "The directory . is not empty; pass a new one to -o"),
        (["import", "here.py", "-o", "http://host/run"], "http://host/run cannot be a run"),
        (["diagnose", "nowhere"], "nowhere does not exist. Pass the directory of a run."),
        (["diagnose", "here.py"], "here.py"),
        (["diagnose", "."], "run.json"),
        (["show", "nowhere", "steps"], "nowhere"),
        (["cost", "nowhere"], "nowhere"),
        (["cost", ".", "--epochs", "0"], "--epochs"),
        (["cost", ".", "--usd-per-hour", "much"], "'much' is not a price"),
        (["run", "--prices", "nowhere.toml", "--", "true"], "Cannot read price file nowhere.toml"),
        (
            ["run", "--prices", "here.py", "--", "true"],
            "not in the format described in docs/cost.md",
        ),
        (["show", ".", "no-such-view"], "no-such-view"),
        (["recover", "nowhere"], "nowhere"),
        (["no-such-command"], "No such command"),
    ],
)
def test_one_sentence(tmp_path: Path, arguments: list[str], says: str) -> None:
    (tmp_path / "here.py").write_text("print('hello')\n")
    done = run_command(tmp_path, *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["here.py"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["export", "job", "--to", "timeline", "--steps", "x", "-o", "f.html"],
            "is not a range of steps",
        ),
        (["export", "job", "--to", "chrome", "-o", "f.json"], "Nothing to export: "),
        (
            ["export", "job", "--to", "timeline", "--source", "x", "-o", "f.html"],
            "There is no source 'x'; there are ",
        ),
        (
            ["import", "empty", "-o", "new"],
            "No files in empty; pass a trace or a directory of traces",
        ),
        (["import", "nothing.json", "-o", "new"], "has no readable event"),
        (["try", "job", "--fix", "1", "--change", "num_workers=2"], "Give --fix or --change, not"),
        (["try", "elsewhere", "--change", "num_workers=2"], "try the change there, or record the"),
        (["capture", "job", "--steps", "1"], "is over"),
        (
            ["capture", "started", "--steps", "1"],
            "no monitor has written to started yet; is its job",
        ),
        (["show", "job", "timeline-slice"], "This view needs --track and --event."),
        (["show", "job", "kernels", "--by", "x"], "The view kernels cannot group by x. Use --by "),
        (["show", "job", "system-heat", "--name", "x"], "No node is called x; available: "),
    ],
)
def test_one_sentence_about_a_run(tmp_path: Path, arguments: list[str], says: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "nothing.json").write_text('{"traceEvents": []}')
    RunBuilder(tmp_path / "job").write()
    elsewhere = RunBuilder(tmp_path / "elsewhere")
    elsewhere.rank(node="another")
    elsewhere.write()
    RunBuilder(tmp_path / "started").write()
    shutil.rmtree(tmp_path / "started" / "nodes")
    done = run_command(tmp_path, *arguments)
    assert says in " ".join(done.stderr.split())
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "suggestion"),
    [
        (["python", "train.py", "--lr", "1 e"], "python3 train.py --lr '1 e'"),
        (["./here.py"], "python3 ./here.py"),
    ],
)
def test_a_machine_with_only_python3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], suggestion: str
) -> None:
    """Debian has no command named `python`."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    (tmp_path / "here.py").write_text("print('hello')\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    done = run_command(tmp_path, "run", "--", *command)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.endswith(f": stepscope run -- {suggestion}")
    if command[0] == "python":
        assert line.startswith("stepscope: python: command not found. python3 is available: ")


def test_a_run_of_a_later_version(tmp_path: Path) -> None:
    manifest = RunBuilder(tmp_path / "run").write() / "run.json"
    later = json.loads(manifest.read_text()) | {"schema_version": SCHEMA_VERSION + 1}
    manifest.write_text(json.dumps(later))
    done = run_command(tmp_path, "diagnose", "run")
    assert done.returncode == 2
    assert str(SCHEMA_VERSION + 1) in done.stderr
    assert str(SCHEMA_VERSION) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_that_cannot_start_leaves_no_trace(tmp_path: Path) -> None:
    script = tmp_path / "no_shebang"
    script.write_text("print('hello')\n")
    script.chmod(0o755)
    (tmp_path / "empty").mkdir()
    done = run_process(tmp_path, "run", "--out", "empty", "--", "./no_shebang")
    assert done.returncode == 2
    assert "Cannot start './no_shebang': Exec format error" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["no_shebang"]


def test_json_of_a_recorded_job_is_json(tmp_path: Path) -> None:
    done = run_process(tmp_path, "run", "--json", "--out", "run", "--", "true")
    assert done.returncode == 0
    assert json.loads(done.stdout)["suspect"] == "insufficient_evidence"
    before = (tmp_path / "run" / "run.json").read_bytes()
    second = run_command(tmp_path, "run", "--out", "run", "--", "true")
    assert second.returncode == 2
    assert "already holds a run" in second.stderr
    assert (tmp_path / "run" / "run.json").read_bytes() == before
    for words in ("diagnose run", "show run overview", "recover run"):  # and see test_show.py
        answer = run_command(tmp_path, *words.split(), "--json")
        assert answer.returncode == 0, answer.stderr
        assert isinstance(json.loads(answer.stdout), dict)


def test_json_before_the_command_is_the_option_of_the_command(tmp_path: Path) -> None:
    RunBuilder(tmp_path / "run").write()
    answer = run_command(tmp_path, "--json", "show", "run", "overview")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == run_command(tmp_path, "show", "run", "overview", "--json").stdout


@pytest.mark.parametrize(
    ("words", "is_json"),
    [
        (("run", "no-such-program", "--json"), False),
        (("run", "--interval", "100", "--quiet", "no-such-program", "--json"), False),
        (("run", "--interval=100", "--json", "no-such-program"), True),
        (("run", "--json", "--", "no-such-program"), True),
        (("--json", "run", "no-such-program"), True),
        (("diagnose", "no-such-run", "--json"), True),
    ],
)
def test_json_among_the_words_of_a_job_is_the_job_s(
    words: tuple[str, ...], is_json: bool, tmp_path: Path
) -> None:
    error = run_command(tmp_path, *words).stderr
    assert error.startswith('{"error": ' if is_json else "stepscope: "), error


@pytest.mark.parametrize("table", ["spans", "*"])
def test_damage_is_said_before_what_is_made_of_the_rest(tmp_path: Path, table: str) -> None:
    run = shutil.copytree(golden_run(SCHEMA_VERSION) / "run", tmp_path / "run")
    for file in run.glob(f"tables/{table}/**/*.parquet"):
        with file.open("r+b") as segment:
            segment.truncate(100)
    first = "A part of the run is damaged: tables/spans/n0/00000000-00000000.parquet cannot be read"

    exported = run_command(tmp_path, "export", "run", "--to", "timeline", "-o", "t.json")
    assert " 0 spans, " in exported.stdout
    assert exported.stderr.startswith(
        f"stepscope: {first}: it is cut short or no Parquet file (and "
    )
    done = run_command(tmp_path, "export", "run", "--to", "timeline", "-o", "t.json", "--json")
    damage = json.loads(done.stdout)["damage"]
    assert damage[0].removesuffix(".") in exported.stderr
    assert len(damage) >= len(list(run.glob("tables/spans/*/*.parquet")))

    if table == "*":
        for refused in (
            run_command(tmp_path, "export", "run", "--to", "chrome", "-o", "c.json"),
            run_command(tmp_path, "export", "run", "--to", "speedscope", "-o", "s.json"),
            run_command(tmp_path, "show", "run", "ranks", "--csv", "r.csv"),
        ):
            assert refused.returncode == 2
            assert refused.stderr.startswith("stepscope: A part of the run is damaged: tables/")
            assert "Traceback" not in refused.stderr
    else:
        shown = run_command(tmp_path, "show", "run", "gpu-time", "--csv", "-")
        assert (shown.returncode, shown.stderr) == (0, "")
    text = run_command(tmp_path, "show", "run", "overview").stdout
    assert text.startswith("! A part of the run cannot be read")


def test_a_directory_of_runs_names_them(tmp_path: Path) -> None:
    for name in ("a", "b/c"):
        RunBuilder(tmp_path / "many" / name).write()
    error = run_command(tmp_path, "show", "many").stderr
    below = tmp_path / "many"
    assert f"many is not a run, but there are runs below it: {below}/a, {below}/b/c. " in error
    for number in range(3):
        RunBuilder(tmp_path / "many" / f"more{number}").write()
    error = run_command(tmp_path, "show", "many").stderr
    assert " and others. Pass one of them, or see all of them with: " in error
    assert error.count(f"{below}/") == 3


class _LoginPage(BaseHTTPRequestHandler):
    """A proxy that answers every request with a page."""

    def do_GET(self) -> None:
        page = b"<!doctype html><title>Log in</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_proxy_that_answers_with_a_page(tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="obstore, which reads buckets, is not installed")
    with ThreadingHTTPServer(("127.0.0.1", 0), _LoginPage) as proxy:
        threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
        url = f"http://127.0.0.1:{proxy.server_port}"
        store = {"AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true", "AWS_SKIP_SIGNATURE": "true"}
        show = run_process(tmp_path, "diagnose", "s3://bucket/run", **store)
        fetched = run_process(tmp_path, "import", f"{url}/trace.json", "-o", "new")
        proxy.shutdown()
    for answer, sentence in (
        (show, "is damaged: it is a web page; a proxy or a login page answered in place of the"),
        (fetched, "trace.json is a web page. If it was downloaded, a proxy or a login page"),
    ):
        assert answer.returncode == 2
        assert sentence in answer.stderr
        assert answer.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_is_read_only(
    public_directory: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (public_directory / "trace.json").write_bytes(trace(*training()))
    monkeypatch.setenv("HOME", str(public_directory))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with restricted([public_directory], 0o555):
        answer = run_command(public_directory, "show", "trace.json", "recordings")
    assert answer.returncode == 2
    assert "cannot cache imports here: Permission denied; set XDG_CACHE_HOME" in answer.stderr
    assert answer.stderr.count("\n") == 1
