"""Shims before PATH, with which a job is recorded whose wrapper replaces PYTHONPATH."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.capture.bootstrap import SITE
from stepscope.cli.job.interpreter import insert_shims
from stepscope.monitor import SHIMS_LINK, remove_spool


class Wrapped:
    """A directory `bin` with a program `python3`, and PATH with its shims."""

    def __init__(self, path: Path) -> None:
        self.programs = path / "a 'b'" / "bin"
        self.programs.mkdir(parents=True)
        (self.programs.parent / "lib").mkdir()
        (self.programs / "python3").symlink_to(sys.executable)
        self.write("launch", f"#!{sys.executable}\nimport os; print(os.environ['PYTHONPATH'])")
        self.write("tool", "#!/bin/sh\necho tool")
        os.mkfifo(self.programs / "pipe")
        self.spool = path / "spool"
        self.spool.mkdir()
        self.original = f"{self.programs}:/usr/bin:/bin"
        self.path = insert_shims(["sh", "job.sh"], self.spool, self.original)

    def write(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def run(
        self, script: str, *arguments: str, stdin: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.path), "STEPSCOPE_SPOOL": str(self.spool), **variables}
        return subprocess.run(
            ["bash", "-c", script, "bash", *arguments],
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
        )


@pytest.fixture
def wrapped(tmp_path: Path) -> Iterator[Wrapped]:
    wrapped = Wrapped(tmp_path)
    yield wrapped
    remove_spool(wrapped.spool)


def test_a_wrapper_that_replaces_pythonpath_keeps_the_hook(wrapped: Wrapped) -> None:
    """Interpreters and scripts of one; arguments, input, status and other variables stay."""
    code = (
        "import os, sys; print(sys.argv[1:], sys.stdin.read(), os.environ['PYTHONPATH'], "
        "os.environ['PATH'], os.environ['A.B'], sys.executable); sys.exit(7)"
    )
    script = 'export PYTHONPATH=/mine; exec env python3 -c "$@"'
    done = wrapped.run(script, code, "a b", "", "*", stdin="in", **{"A.B": "c"})
    expected = [["a b", "", "*"], "in", f"{SITE}:/mine", wrapped.original, "c"]
    assert done.stdout == f"{' '.join(map(str, expected))} {wrapped.programs}/python3\n"
    assert (done.returncode, done.stderr) == (7, "")
    assert wrapped.run("launch", PYTHONPATH=f"/mine:{SITE}").stdout == f"/mine:{SITE}\n"
    assert wrapped.run("launch").stdout == f"{SITE}\n"
    twice = wrapped.run("PATH=$PATH:$PATH python3 -c 'import os; print(os.environ[\"PATH\"])'")
    assert twice.stdout == f"{wrapped.original}:{wrapped.original}\n"
    killed = wrapped.run("python3 -c 'import os; os.kill(os.getpid(), 9)'; echo $?")
    assert killed.stdout == "137\n"


def test_a_shim_changes_nothing_else(wrapped: Wrapped) -> None:
    """A cleared environment, an activated one, programs of other kinds, a missing program."""
    first = wrapped.spool.with_name("first")
    first.mkdir()
    (first / "python3").write_text("#!/bin/sh\necho $PYTHONPATH first")
    (first / "python3").chmod(0o755)
    assert wrapped.run(f"PATH='{first}':$PATH; python3", PYTHONPATH="/x").stdout == "/x first\n"
    cleared = wrapped.run("STEPSCOPE_SPOOL= launch", PYTHONPATH="/x")
    assert cleared.stdout == "/x\n"
    assert wrapped.run("type -p tool; tool").stdout == f"{wrapped.programs}/tool\ntool\n"
    beside = wrapped.run('readlink -f "$(dirname "$(type -p python3)")/../lib"')
    assert beside.stdout == f"{wrapped.programs.parent}/lib\n"
    (wrapped.programs / "launch").unlink()
    assert wrapped.run("launch").returncode == 127
    shims = (wrapped.spool / SHIMS_LINK).readlink()
    remove_spool(wrapped.spool)
    assert not shims.exists()
    assert wrapped.run("python3 -c 'print(1)'").stdout == "1\n"


@pytest.mark.parametrize(
    ("command", "has_shims"),
    [
        (["python3", "train.py"], False),
        (["launch", "train.py"], False),
        (["launch", "--no-python", "sh", "job.sh"], True),
        (["/usr/bin/nice", "python3", "train.py"], False),  # it may be a debugger
        (["env", "PYTHONPATH=/x", "python3", "train.py"], True),
        (["tool", "python3", "train.py"], True),
        (["bash", "job.sh"], True),
        (["make", "train"], True),
    ],
)
def test_commands_with_shims(
    wrapped: Wrapped, monkeypatch: pytest.MonkeyPatch, command: list[str], has_shims: bool
) -> None:
    monkeypatch.setenv("PATH", wrapped.original)
    remove_spool(wrapped.spool)
    wrapped.spool.mkdir()
    path = insert_shims(command, wrapped.spool, wrapped.original)
    assert (path is not None) == has_shims
    assert (wrapped.spool / SHIMS_LINK).is_symlink() == has_shims
    remove_spool(wrapped.spool)


def test_without_bash_there_are_no_shims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert insert_shims(["make"], tmp_path, "/usr/bin") is None
    assert list(tmp_path.iterdir()) == []
