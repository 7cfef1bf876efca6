"""Which lines of which files are shown, and which editors can open them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support.served import Answered, Served, serving
from tests.support.served_runs import draw_job

TEXT = "".join(f"line {number}\n" for number in range(1, 101))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Runs beside sources: one of a job that was started there, one that names other places."""
    code = tmp_path / "code"
    (code / "deep").mkdir(parents=True)
    (code / "train.py").write_text(TEXT)
    (code / "deep" / "naïve model.py").write_text(TEXT)
    (code / "secret.env").write_text(TEXT)
    (code / "binary.py").write_bytes(b"import os\n\0\n" * 10)
    (code / "large.py").write_bytes(b"#" * 5_000_000)
    (tmp_path / "outside.py").write_text(TEXT)
    (code / "link.py").symlink_to(tmp_path / "outside.py")
    for name, directory in (("here", str(code)), ("everywhere", "/"), ("elsewhere", "/no/such")):
        run = draw_job(tmp_path / "runs" / name, 3)
        info = msgspec.json.decode((run / "run.json").read_bytes())
        (run / "run.json").write_bytes(msgspec.json.encode(info | {"working_directory": directory}))
    return tmp_path


@pytest.fixture
def served(place: Path) -> Iterator[Served]:
    with serving(place / "runs") as server:
        yield server


def source(server: Served, file: object, line: object = 50, run: str = "here") -> Answered:
    return server.ask("/api/source", run=run, file=str(file), line=str(line))


def test_lines_around_one_of_a_file(served: Served, place: Path) -> None:
    file = place / "code" / "train.py"
    assert source(served, file).json == {
        "file": str(file),
        "first_line": 30,
        "lines": [f"line {number}" for number in range(30, 71)],
        "line": 50,
        "recorded": False,
        "opens": {
            "vscode": f"vscode://file{file}:50",
            "pycharm": f"jetbrains://pycharm/navigate/reference?path={file}:50",
        },
    }
    assert source(served, file, 1).json["lines"] == [f"line {n}" for n in range(1, 22)]
    assert source(served, file, 100).json["lines"] == [f"line {n}" for n in range(80, 101)]


def test_a_relative_name_counts_from_the_directory_of_the_job(served: Served, place: Path) -> None:
    assert source(served, "train.py").json["file"] == str(place / "code" / "train.py")
    found = source(served, "deep/naïve model.py").json["opens"]["vscode"]
    assert found.endswith("/deep/na%C3%AFve%20model.py:50")


@pytest.mark.parametrize(
    "file",
    [
        "{place}/outside.py",
        "../outside.py",
        "link.py",
        "deep/../../outside.py",
        "secret.env",
        "binary.py",
        "large.py",
        "deep",
        "none.py",
        "train.py\0",
        "",
        "/etc/passwd",
        "{place}/runs/here/run.json",
    ],
)
def test_files_that_are_nobodys_business(served: Served, place: Path, file: str) -> None:
    answer = source(served, file.replace("{place}", str(place)))
    assert answer.status == 404
    assert "may not be shown" in answer.error
    assert "--source-root" in answer.error


@pytest.mark.parametrize("line", ["0", "-1", "x", "", "1e3", "٣", "99999999999"])
def test_lines_that_are_none(served: Served, line: str) -> None:
    assert source(served, "train.py", line).status == 400


def test_a_line_past_the_end(served: Served) -> None:
    assert source(served, "train.py", 101).status == 404


def test_a_run_cannot_open_the_whole_machine(served: Served, place: Path) -> None:
    for run in ("everywhere", "elsewhere"):
        assert source(served, place / "outside.py", run=run).status == 404


def test_what_the_job_has_read_out_is_shown_without_the_file(served: Served, place: Path) -> None:
    shutil.rmtree(place / "code")
    process = next((place / "runs" / "here" / "processes").iterdir())
    facts = msgspec.json.decode(process.read_bytes())["facts"]
    told = next(fact for fact in facts if fact["fact"] == "source")
    answer = source(served, told["file"], told["line"]).json
    assert answer["lines"] == ["image.load()"]
    assert answer["first_line"] == answer["line"] == told["line"]
    assert answer["recorded"]
    assert answer["opens"] == {"vscode": None, "pycharm": None}
    assert source(served, told["file"], told["line"] + 1).status == 404


def test_roots_that_the_user_allows(place: Path) -> None:
    with serving(place / "runs", source_roots=(place,)) as server:
        assert source(server, place / "outside.py", run="elsewhere").status == 200
        assert source(server, "outside.py", run="elsewhere").status == 200
        # A link may lead to where a root allows it.
        assert source(server, "code/link.py").json["file"] == str(place / "outside.py")


def test_others_machines_open_no_editor_and_see_no_directory(place: Path) -> None:
    token = "0123456789abcdef"  # noqa: S105
    with serving(place / "runs", host="0.0.0.0", token=token) as server:  # noqa: S104
        bearer = {"Authorization": f"Bearer {token}"}
        query = {"run": "here", "file": "train.py", "line": "5"}
        assert server.ask("/api/source", headers=bearer, **query).status == 404
    allowed = {"host": "0.0.0.0", "token": token, "source_roots": (place / "code",)}  # noqa: S104
    with serving(place / "runs", **allowed) as server:
        answer = server.ask("/api/source", headers=bearer, **query)
        assert answer.json["opens"] == {"vscode": None, "pycharm": None}
