"""Lines of source files: the files that may be shown, and the links to editors."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support.served import Served, ServerResponse, serving
from tests.support.served_runs import draw_job

TEXT = "".join(f"line {number}\n" for number in range(1, 101))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make sources and runs: one of a job that was started there, others of other directories."""
    code = tmp_path / "code"
    (code / "deep").mkdir(parents=True)
    (code / "train.py").write_text(TEXT)
    (code / "prepare.py").write_text(TEXT)
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
def served(project: Path) -> Iterator[Served]:
    with serving(project / "runs") as server:
        yield server


def source(server: Served, file: object, line: object = 50, run: str = "here") -> ServerResponse:
    return server.request("/api/source", run=run, file=str(file), line=str(line))


@pytest.mark.seed("PTP-13")
def test_lines_around_a_line(served: Served, project: Path) -> None:
    file = project / "code" / "train.py"
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


def test_a_relative_name_is_resolved_below_the_directory_of_the_job(
    served: Served, project: Path
) -> None:
    assert source(served, "prepare.py").json["file"] == str(project / "code" / "prepare.py")
    # Another file of that name, whose lines are not those recorded.
    assert source(served, "train.py").status == 404
    link = source(served, "deep/naïve model.py").json["opens"]["vscode"]
    assert link.endswith("/deep/na%C3%AFve%20model.py:50")


def test_private_files(served: Served, project: Path) -> None:
    names = ["../outside.py", "link.py", "deep/../../outside.py", "secret.env", "binary.py"]
    names += ["large.py", "deep", "none.py", "train.py\0", "", "/etc/passwd"]
    for file in (*names, project / "outside.py", project / "runs/here/run.json"):
        response = source(served, file)
        assert response.status == 404, file
        assert "cannot be shown" in response.error
        assert "--source-root" in response.error


def test_invalid_line_numbers(served: Served) -> None:
    for line in ("0", "-1", "x", "", "1e3", "٣", "99999999999"):
        response = source(served, "train.py", line)
        assert response.status == 400, line
        assert "is not a line number" in response.error
    assert source(served, "train.py", 101).status == 404, "past the end"


def test_a_run_cannot_allow_arbitrary_files(served: Served, project: Path) -> None:
    for run in ("everywhere", "elsewhere"):
        assert source(served, project / "outside.py", run=run).status == 404


def test_recorded_lines_are_shown_without_the_file(served: Served, project: Path) -> None:
    shutil.rmtree(project / "code")
    process = next((project / "runs" / "here" / "processes").iterdir())
    facts = msgspec.json.decode(process.read_bytes())["facts"]
    recorded = next(fact for fact in facts if fact["fact"] == "source")
    response = source(served, recorded["file"], recorded["line"]).json
    assert response["lines"] == ["image.load()"]
    assert response["first_line"] == response["line"] == recorded["line"]
    assert response["recorded"]
    assert response["opens"] == {"vscode": None, "pycharm": None}
    name = Path(recorded["file"]).name  # as sentences of the verdict name it
    assert source(served, name, recorded["line"]).json == response
    assert source(served, recorded["file"], recorded["line"] + 1).status == 404


def test_a_name_of_several_recorded_files_is_refused(project: Path) -> None:
    process = next((project / "runs" / "here" / "processes").iterdir())
    content = msgspec.json.decode(process.read_bytes())
    recorded = next(fact for fact in content["facts"] if fact["fact"] == "source")
    name = Path(recorded["file"]).name
    content["facts"].append({**recorded, "file": f"/elsewhere/{name}"})
    process.write_bytes(msgspec.json.encode(content))
    with serving(project / "runs") as server:
        error = source(server, name, recorded["line"]).error
    assert "lines of several files with this name were recorded" in error


def test_roots_that_the_user_allows(project: Path) -> None:
    with serving(project / "runs", source_roots=(project,)) as server:
        assert source(server, project / "outside.py", run="elsewhere").status == 200
        assert source(server, "outside.py", run="elsewhere").status == 200
        # A link may lead to a file below a root.
        assert source(server, "code/link.py").json["file"] == str(project / "outside.py")


def test_other_machines_get_no_editor_links_and_no_job_directory(project: Path) -> None:
    token = "0123456789abcdef"  # noqa: S105
    with serving(project / "runs", host="0.0.0.0", token=token) as server:  # noqa: S104
        bearer = {"Authorization": f"Bearer {token}"}
        query = {"run": "here", "file": "prepare.py", "line": "5"}
        assert server.request("/api/source", headers=bearer, **query).status == 404
    allowed = {"host": "0.0.0.0", "token": token, "source_roots": (project / "code",)}  # noqa: S104
    with serving(project / "runs", **allowed) as server:
        response = server.request("/api/source", headers=bearer, **query)
        assert response.json["opens"] == {"vscode": None, "pycharm": None}
