"""Reasons for which a process is not recorded, on processes of a fake /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stepscope.capture.bootstrap import SITE
from stepscope.monitor import unrecorded
from stepscope.monitor.samplers.processes import JobProcess
from stepscope.monitor.unrecorded import UnrecordedProcesses, find_flags
from stepscope.schema import JobState, JobStatus
from stepscope.spool import SpoolTree

S = 1_000_000_000
HOOKED = {"STEPSCOPE_SPOOL": "/spool", "PYTHONPATH": f"{SITE}:/mine"}
TORCH = "7f00-7f10 r-xp 0 08:01 7 /lib/python3.12/site-packages/torch/lib/libtorch_cpu.so\n"


class FakeProc:
    """Processes that a test describes."""

    def __init__(self, path: Path) -> None:
        self.path = path / "proc"
        (path / "spool").mkdir()
        self.spool = path / "spool"
        self.observed = UnrecordedProcesses(
            SpoolTree(str(self.spool), 1 << 20), proc=str(self.path)
        )
        self.processes: dict[int, JobProcess] = {}

    def add(
        self,
        pid: int,
        command: str | list[str] = "python train.py",
        *,
        program: str = "/usr/bin/python3.12",
        environment: dict[str, str] | bytes = HOOKED,
        maps: str = TORCH,
        uid: int = os.geteuid(),
        root: Path = Path("/"),
        parent: int = 0,
    ) -> None:
        """Add a process, or replace its image."""
        directory = self.path / str(pid)
        directory.mkdir(parents=True, exist_ok=True)
        words = command.split() if isinstance(command, str) else command
        for name, target in (("exe", program), ("root", str(root))):
            (directory / name).unlink(missing_ok=True)
            (directory / name).symlink_to(target)
        (directory / "cmdline").write_text("".join(f"{word}\0" for word in words))
        if isinstance(environment, dict):
            lines = [f"{name}={value}\0" for name, value in environment.items()]
            environment = "".join(lines).encode()
        (directory / "environ").write_bytes(environment)
        (directory / "maps").write_text(maps)
        (directory / "status").write_text(f"Name:\tx\nUid:\t0\t{uid}\t0\t0\nGid:\t0\t0\t0\t0\n")
        self.processes[pid] = JobProcess(pid, parent, 10 * pid, 0, 0, 0, None, ended=False)

    def look(self, at_s: float = 0) -> list[str]:
        self.observed.look(self.processes, round(at_s * S))
        return self.observed.sentences


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def test_a_process_with_the_hook_has_no_reason(proc: FakeProc) -> None:
    proc.add(1)
    proc.add(2, environment=HOOKED | {"PYTHONPATH": f"/project:{SITE}"})
    proc.add(3, program="/bin/bash", command="sh job.sh", environment={}, maps="")
    proc.add(4, environment={}, maps="")  # Python that has loaded no framework
    proc.add(5, "python -m torch._inductor.compile_worker", environment={})
    trial = 'import sys\nfrom ctypes import cdll\ncdll.LoadLibrary("/tmp/torchinductor/x.so")\n'
    proc.add(8, ["python", "-c", trial], environment={})
    proc.add(6, environment=b"\0" * 20)  # overwritten with a title
    proc.add(7, command="", environment={}, maps="")  # has exited
    assert proc.look() == []


@pytest.mark.parametrize(
    ("process", "reason"),
    [
        ({"environment": {}}, "a command before Python clears the environment"),
        (
            {"environment": HOOKED | {"PYTHONPATH": "/a b"}},
            "something before Python sets PYTHONPATH to '/a b', which removes the start-up hook. "
            "Prepend to its value there: export PYTHONPATH='/a b':$PYTHONPATH",
        ),
        ({"environment": {"STEPSCOPE_SPOOL": "/x"}}, "something before Python clears PYTHONPATH"),
        ({"command": "python -uB -Im train"}, "the option -I of Python switches the start-up hook"),
        ({"program": "/usr/bin/python3.8"}, "it runs Python 3.8; Python 3.9 and later are"),
        (
            {"program": "/x/python", "maps": f"1-2 r 0 0 0 /x/lib/python3.7/a.so\n{TORCH}"},
            "it runs Python 3.7; Python 3.9 and later are recorded",
        ),
        (
            {"program": "/opt/app", "maps": f"1-2 r 0 0 0 /x/libpython3.12.so\n{TORCH}",
             "environment": {}},
            "clears the environment",
        ),
        ({"uid": 65533}, "it runs as user 65533, who may not write to the spool"),
    ],
)  # fmt: skip
def test_the_reason_of_a_process(proc: FakeProc, process: dict[str, object], reason: str) -> None:
    proc.add(7, **process)  # type: ignore[arg-type]
    (sentence,) = proc.look()
    command = process.get("command", "python train.py")
    assert sentence.startswith(f"process 7 ({command}) loaded PyTorch and was not recorded: ")
    assert reason in sentence


def test_a_container_and_a_sitecustomize_that_is_found_first(
    proc: FakeProc, tmp_path: Path
) -> None:
    (tmp_path / "image").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/sitecustomize.py").write_text("")
    proc.add(1, root=tmp_path / "image", maps=TORCH.replace("libtorch_cpu", "libtensorflow_cc"))
    proc.add(2, environment=HOOKED | {"PYTHONPATH": f"{tmp_path}/mine:{SITE}"})
    container, shadow = proc.look()
    assert "loaded TensorFlow and was not recorded: the interpreter sees other files" in container
    assert f"Python finds {tmp_path}/mine/sitecustomize.py before the start-up hook" in shadow


def test_a_process_is_looked_at_until_its_reason_is_certain(proc: FakeProc) -> None:
    """A shell becomes Python, which loads a framework later and registers last."""
    proc.add(1, program="/bin/sh", command="sh job.sh", maps="")
    assert proc.look(0) == []
    proc.add(1, environment=HOOKED | {"PYTHONPATH": "/x"}, maps="")
    assert proc.look(1) == []
    proc.add(1, environment=HOOKED | {"PYTHONPATH": "/x"})
    assert proc.look(2) == []  # its libraries were read a second ago
    assert len(proc.look(3)) == 1
    (proc.spool / "p-1-10-0").mkdir()
    assert proc.look(4) == []


def test_one_sentence_per_reason(proc: FakeProc) -> None:
    """Forks count with their parent, and secrets are masked."""
    proc.add(1, "python -E train.py --token hunter2")
    proc.add(2, "python -E train.py --token hunter2", parent=1)
    proc.add(3, "python -E other.py")
    proc.add(4, "python -S other.py")
    ignoring, bare = proc.look()
    assert ignoring.startswith(
        "2 processes, the first of them 1 (python -E train.py --token '****'), loaded PyTorch and "
        "were not recorded: the option -E of Python"
    )
    assert "process 4 (python -S other.py) loaded PyTorch" in bare


def test_sentences_of_an_earlier_monitor_stay(tmp_path: Path) -> None:
    status = JobStatus(
        state=JobState.IN_PROGRESS, heartbeat_ns=0, started_ns=0, unrecorded=["process 1 was not"]
    )
    tree = SpoolTree(str(tmp_path), 1 << 20)
    assert UnrecordedProcesses(tree, status).sentences == ["process 1 was not"]


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("python -I -S train.py -E", ["-I", "-S"]),
        ("python -W ignore -X utf8 -sE train.py", ["-E"]),
        ("python -Xdev -uSc print()", ["-S"]),
        ("python -m -E", []),
        ("python -c -I", []),
        ("python - -I", []),
        ("python --check-hash-based-pycs never -I", ["-I"]),
    ],
)
def test_options_of_python(command: str, flags: list[str]) -> None:
    assert find_flags(command.split()) == flags


def test_programs_beside_a_process_that_profiles_itself(proc: FakeProc) -> None:
    proc.observed = UnrecordedProcesses(
        SpoolTree(str(proc.spool), 1 << 20), is_hooked=False, proc=str(proc.path)
    )
    proc.add(1)
    (proc.spool / "p-1-10-0").mkdir()
    proc.add(2, "python -c from multiprocessing.spawn import spawn_main;", environment={})
    proc.add(3, environment={})
    (sentence,) = proc.look()
    assert sentence == (
        "process 3 (python train.py) loaded PyTorch and was not recorded: "
        "stepscope.start_profiling records the process that calls it; start the other one with "
        "`stepscope run -- CMD`"
    )


HIDDEN = ("exe", "maps", "environ")
"""Files of a process of another user, which the kernel hides."""


def test_a_process_of_root_that_this_user_cannot_look_into(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        if path.endswith(tuple(f"/{pid}/{name}" for pid in (3, 4) for name in HIDDEN)):
            raise PermissionError

    def read(path: str) -> bytes:
        refuse(path)
        return Path(path).read_bytes()

    def read_link(path: str) -> str:
        refuse(path)
        return original_read_link(path)

    original_read_link = os.readlink
    monkeypatch.setattr(unrecorded, "read_bytes", read)
    monkeypatch.setattr(os, "readlink", read_link)
    proc.add(1, "sudo -u root python train.py", program="/usr/bin/sudo", environment={}, maps="")
    proc.add(3, parent=1)
    proc.add(4, "python serve.py")  # nothing certain
    (sentence,) = proc.look()
    assert sentence == (
        "process 3 (python train.py) was not recorded: sudo starts it as another user, without the "
        "variables of stepscope; start stepscope as that user: `sudo … stepscope run -- CMD`"
    )
