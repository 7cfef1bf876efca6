"""Python processes of a job that loaded a framework and are not recorded, and the reasons.

A process is recorded if its interpreter runs the start-up hook, which it finds on PYTHONPATH, and
may write to the spool. Whether it does follows from what the kernel shows of it: its program, its
command line, its environment at the start, its user and its root directory (proc(5)). A reason is
stated only if it is certain; a process that runs the hook and does not train has none.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import pwd
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from stepscope import masking, schema, spool
from stepscope.capture import bootstrap
from stepscope.monitor.samplers.base import read_bytes
from stepscope.monitor.samplers.processes import JobProcess

OLDEST_PYTHON = (3, 9)
FRAMEWORKS = {
    "PyTorch": rb"/libtorch[^/\n]*\.so|/torch/_C\.",
    "TensorFlow": rb"/libtensorflow[^/\n]*\.so|/_pywrap_tensorflow",
    "JAX": rb"/jaxlib/|/xla_extension",
    "XGBoost": rb"/libxgboost\.so",
}
"""Libraries that a process maps once it has loaded a framework."""
HELPERS = (
    *("torch._inductor.compile_worker", "torch/_inductor/compile_worker"),
    'from ctypes import cdll\ncdll.LoadLibrary("',
)
"""Processes of frameworks that load them and never train, by a part of the command line: workers
that compile for inductor, and its trials of vector instructions (`torch._inductor.cpu_vec_isa`)."""
SPAWNED = "multiprocessing."
"""Part of the command line of a process that `multiprocessing` has spawned."""
USER_CHANGES = frozenset(["doas", "runuser", "setpriv", "su", "sudo"])
"""Commands that start a program as another user, with an environment of that user's."""
MAX_COMMAND_CHARACTERS = 60
_LOOK_INTERVAL_NS = 1_000_000_000
_MAPS_INTERVAL_NS = 2_000_000_000
_MAX_MAPS_INTERVAL_NS = 32_000_000_000
_PROGRAM = re.compile(r"(?:python|pypy)(?:(\d+)(?:\.(\d+))?)?[a-z]*")
_LIBRARY = re.compile(rb"/(?:libpython|lib/python)(\d+)\.(\d+)")
_EMBEDDED = re.compile(rb"/lib(?:python|pypy)\d[^/\n]*\.so")
_OPTIONS = re.compile(r"-([^cmXW-]*)([cm]?)")
"""Letters of a word with options of Python, up to one after which the program follows."""
VALUED_OPTIONS = {"-X", "-W", "--check-hash-based-pycs"}
"""Options of Python that take the next word."""


class HookFacts(NamedTuple):
    """Facts about a Python process that decide whether it runs the start-up hook."""

    flags: Sequence[str] = ()
    """Options of Python that switch the hook off: -I, -E and -S."""
    release: tuple[int, ...] | None = None
    """Version of Python; None if unknown."""
    has_variables: bool = True
    """False if it was started without the variables of stepscope."""
    sees_package: bool = True
    """False if stepscope is not among the files that it sees."""
    python_path: str = ""
    has_hook: bool = True
    """False if PYTHONPATH lacks the directory of the hook."""
    shadow: str | None = None
    """Another `sitecustomize.py`, which is found first."""
    user: str | None = None
    """Its user, if that may not write to the spool."""
    is_job_hooked: bool = True
    """False if a process of the job has called `start_profiling`: others have no hook."""


def explain_hook(facts: HookFacts) -> str | None:
    """Say why the start-up hook does not run, or cannot record, and the remedy; None if it can."""
    if not facts.is_job_hooked:
        return (
            "stepscope.start_profiling records the process that calls it; start the other one with "
            "`stepscope run -- CMD`"
        )
    if facts.flags:
        return f"the option {facts.flags[0]} of Python switches the start-up hook off; leave it out"
    if facts.release is not None and facts.release < OLDEST_PYTHON:
        return (
            f"it runs Python {facts.release[0]}.{facts.release[1]}; Python "
            f"{OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} and later are recorded"
        )
    if not facts.sees_package:
        return (
            "the interpreter sees other files, as in a container. Install stepscope there, and "
            "start the job inside with `stepscope run -- CMD`"
        )
    if facts.user is not None:
        return (
            f"it runs as user {facts.user}, who may not write to the spool; start stepscope as "
            "that user, after the change of user: `stepscope run -- CMD`"
        )
    if not facts.has_variables:
        return (
            "a command before Python clears the environment, as `env -i` and sudo do; let it keep "
            "PYTHONPATH and the variables STEPSCOPE_*"
        )
    if not facts.has_hook and not facts.python_path:
        return (
            "something before Python clears PYTHONPATH, which removes the start-up hook; let it "
            "keep the value"
        )
    if not facts.has_hook:
        return (
            f"something before Python sets PYTHONPATH to {facts.python_path!r}, which removes the "
            "start-up hook. Prepend to its value there: export "
            f"PYTHONPATH={shlex.quote(facts.python_path)}:$PYTHONPATH"
        )
    if facts.shadow is not None:
        return (
            f"Python finds {facts.shadow} before the start-up hook; move its directory to the end "
            "of PYTHONPATH"
        )
    return None


def find_flags(command: Sequence[str]) -> list[str]:
    """Find the options of a Python command line that switch the start-up hook off."""
    flags: list[str] = []
    words = iter(command[1:])
    for word in words:
        options = _OPTIONS.match(word)
        if options is None or word == "-":
            break
        if word in VALUED_OPTIONS:
            next(words, None)
        flags += [f"-{letter}" for letter in options[1] if letter in "IES"]
        if options[2]:
            break
    return flags


class _Unrecorded(NamedTuple):
    """A process that is not recorded."""

    pid: int
    command: list[str]
    framework: str | None
    """None if the kernel hides its libraries from this user."""
    reason: str


Key = tuple[int, int]
"""Process id and start ticks."""


class UnrecordedProcesses:
    """Processes of one job that are not recorded.

    Each process is looked at once per second, until it is registered in the spool or the reason is
    known: Python may replace a shell, and it loads a framework later. While its program stays the
    same and can be recorded, only the name of that is read; libraries are read less and less often.

    Args:
        tree: the spool.
        earlier: last status of the monitor that this one replaces.
        is_hooked: False if the job was not started with the hook.
        proc: mount point of procfs.
    """

    def __init__(
        self,
        tree: spool.SpoolTree,
        earlier: schema.JobStatus | None = None,
        *,
        is_hooked: bool = True,
        proc: str = "/proc",
    ) -> None:
        self._is_hooked = is_hooked
        self._earlier = earlier.unrecorded if earlier is not None else []
        self._tree = tree
        self._proc = proc
        self._next_ns = 0
        self._maps_interval_ns: dict[Key, int] = {}
        self._next_maps_ns: dict[Key, int] = {}
        self._programs: dict[Key, str] = {}
        """Programs for which no reason was found, by process."""
        self._registered: set[Key] = set()
        self._found: dict[Key, _Unrecorded] = {}

    def look(self, processes: Mapping[int, JobProcess], now_ns: int) -> None:
        """Look at the processes of the job, if it is time."""
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + _LOOK_INTERVAL_NS
        for name in self._tree.process_directories():
            self._registered.add(_parse_key(name))
        for pid, process in processes.items():
            key = pid, process.start_ticks
            if key in self._registered or key in self._found:
                continue
            try:
                unrecorded = self._examine(key, now_ns, processes)
            except (OSError, ValueError):  # it has ended
                continue
            parent = processes.get(process.parent_pid)
            of_parent = self._found.get((parent.pid, parent.start_ticks)) if parent else None
            if unrecorded is None:
                continue
            if of_parent is not None and unrecorded._replace(pid=of_parent.pid) == of_parent:
                self._registered.add(key)  # a fork, such as a DataLoader worker
            else:
                self._found[key] = unrecorded

    @property
    def sentences(self) -> list[str]:
        """One sentence for each reason, with the first process."""
        by_reason: dict[str, list[_Unrecorded]] = {}
        for key, process in self._found.items():
            if key not in self._registered:  # its script may use annotations without the hook
                by_reason.setdefault(process.reason, []).append(process)
        sentences = [_describe(processes) for processes in by_reason.values()]
        return list(dict.fromkeys([*self._earlier, *sentences]))

    def _examine(
        self, key: Key, now_ns: int, processes: Mapping[int, JobProcess]
    ) -> _Unrecorded | None:
        """Return a process if it is not recorded for a reason; None if not, or not yet.

        Raises:
            OSError: it has ended.
        """
        directory = f"{self._proc}/{key[0]}"
        program = _read_link(f"{directory}/exe")
        if program is not None and self._programs.get(key) == program:
            return None
        if now_ns < self._next_maps_ns.get(key, 0):
            return None
        command = _split(read_bytes(f"{directory}/cmdline"))
        if not command or any(helper in word for helper in HELPERS for word in command):
            return None
        if not self._is_hooked and any(SPAWNED in word for word in command):
            return None  # a worker, which is part of the process that is recorded
        name = Path(program or command[0]).name
        is_python, release = _parse_program(name)
        facts = _read_facts(directory, command)
        facts = facts._replace(release=release, is_job_hooked=self._is_hooked)
        is_clear = program is not None and (release is not None or not is_python)
        if is_clear and explain_hook(facts) is None:
            self._programs[key] = program or ""
            return None
        interval_ns = self._maps_interval_ns.get(key, _MAPS_INTERVAL_NS)
        self._next_maps_ns[key] = now_ns + interval_ns
        self._maps_interval_ns[key] = min(2 * interval_ns, _MAX_MAPS_INTERVAL_NS)
        try:
            maps = read_bytes(f"{directory}/maps")
        except PermissionError:  # a process of another user
            reason = explain_hook(facts) or self._explain_user(key[0], processes)
            is_certain = is_python and reason is not None
            return _Unrecorded(key[0], command, None, reason or "") if is_certain else None
        is_python |= _EMBEDDED.search(maps) is not None
        reason = explain_hook(facts._replace(release=release or _find_release(maps)))
        names = (name for name, pattern in FRAMEWORKS.items() if re.search(pattern, maps))
        framework = next(names, None)
        if not is_python or reason is None or framework is None:
            return None
        return _Unrecorded(key[0], command, framework, reason)

    def _explain_user(self, pid: int, processes: Mapping[int, JobProcess]) -> str | None:
        """Say why a process that this user cannot look into is not recorded, if a command above it
        changes the user; None without one.

        Raises:
            OSError: one of them has ended.
        """
        process = processes.get(pid)
        while process is not None and process.parent_pid in processes:
            process = processes[process.parent_pid]
            command = _split(read_bytes(f"{self._proc}/{process.pid}/cmdline"))
            name = Path(command[0]).name if command else ""
            if name in USER_CHANGES:
                return (
                    f"{name} starts it as another user, without the variables of stepscope; start "
                    f"stepscope as that user: `{name} … stepscope run -- CMD`"
                )
        return None


def _parse_key(name: str) -> Key:
    """Parse the name of a directory in the spool."""
    pid, ticks, *_ = name.split("-")
    return int(pid), int(ticks)


def _read_facts(directory: str, command: Sequence[str]) -> HookFacts:
    """Read from procfs what decides whether a process runs the hook, except for its version."""
    facts = HookFacts(flags=find_flags(command), user=_find_user(directory))
    variables = _read_environment(directory)
    if variables is None:
        return facts
    paths = variables.get("PYTHONPATH", "").split(os.pathsep)
    site = os.path.realpath(bootstrap.SITE)
    before = list(itertools.takewhile(lambda path: os.path.realpath(path) != site, paths))
    root = f"{directory}/root"
    shadows = (f"{path}/sitecustomize.py" for path in before if pathlib.Path(path).is_absolute())
    return facts._replace(
        has_variables=spool.SPOOL_VARIABLE in variables,
        sees_package=_may_exist(root + bootstrap.SITE),
        python_path=variables.get("PYTHONPATH", ""),
        has_hook=len(before) < len(paths),
        shadow=next((path for path in shadows if pathlib.Path(root + path).exists()), None),
    )


def _read_environment(directory: str) -> dict[str, str] | None:
    """Read the environment with which a process was started; None if it is unknown: hidden, or
    overwritten with a title, as setproctitle does."""
    try:
        data = read_bytes(f"{directory}/environ")
    except PermissionError:
        return None
    entries = _split(data)
    if any("=" not in entry for entry in entries):
        return None
    return dict(entry.split("=", 1) for entry in entries)


def _find_user(directory: str) -> str | None:
    """Return the user of a process if that may not write to the spool of this user."""
    match = re.search(rb"^Uid:\s+\d+\s+(\d+)", read_bytes(f"{directory}/status"), re.MULTILINE)
    uid = int(match[1]) if match is not None else os.geteuid()
    if uid in {0, os.geteuid()}:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _read_link(path: str) -> str | None:
    """Read a link of procfs; None if it is hidden.

    Raises:
        FileNotFoundError: the process has ended.
    """
    try:
        return os.readlink(path)  # noqa: PTH115 - Path takes four times as long
    except PermissionError:
        return None


def _may_exist(path: str) -> bool:
    """Return False if there is certainly no such file."""
    try:
        Path(path).stat()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def _split(data: bytes) -> list[str]:
    return data.decode(errors="replace").rstrip("\0").split("\0") if data else []


def _parse_program(name: str) -> tuple[bool, tuple[int, int] | None]:
    """Return whether a program is Python by its name, and the version in the name."""
    match = _PROGRAM.fullmatch(name)
    if match is None or match[2] is None:
        return match is not None, None
    return True, (int(match[1]), int(match[2]))


def _find_release(maps: bytes) -> tuple[int, int] | None:
    match = _LIBRARY.search(maps)
    return None if match is None else (int(match[1]), int(match[2]))


def _describe(processes: Sequence[_Unrecorded]) -> str:
    first = processes[0]
    command = shlex.join(masking.mask(first.command))
    if len(command) > MAX_COMMAND_CHARACTERS:
        command = f"{command[:MAX_COMMAND_CHARACTERS]}…"
    loading = "" if first.framework is None else f"loaded {first.framework} and "
    if len(processes) == 1:
        return f"process {first.pid} ({command}) {loading}was not recorded: {first.reason}"
    return (
        f"{len(processes)} processes, the first of them {first.pid} ({command}), {loading}were not "
        f"recorded: {first.reason}"
    )
