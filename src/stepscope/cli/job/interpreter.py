"""Interpreter of a job: its examination for `doctor -- python`, and shims before PATH.

A wrapper, such as a shell script, often sets PYTHONPATH and then starts `python` or `torchrun` by
PATH. Where the command of a job is no Python, a directory of shims stands before each directory of
PATH that has such programs. A shim restores the start-up hook in PYTHONPATH, removes the shims from
PATH, and executes the program in the directory behind it, by its path, so that the process differs
from one without shims in nothing else. Where a wrapper puts other directories in front, as the
activation of a virtual environment does, these win.

    PATH=/tmp/stepscope-shims-x/0/bin:/opt/conda/bin:/usr/bin
         /tmp/stepscope-shims-x/0/bin/.shim
                                     python -> .shim
                                     torchrun -> .shim
         /tmp/stepscope-shims-x/0/lib -> /opt/conda/lib, for "$(dirname "$(which python)")/../lib"
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stepscope import errors, monitor
from stepscope.capture.bootstrap import EXAMINATION, OLDEST_RELEASES, SITE, environment
from stepscope.cli.output import suggest
from stepscope.spool import SPOOL_VARIABLE

LIMIT_S = 300
_SPOOL_BYTES = 1 << 20
_LAST_OPTION = re.compile(r"-$|-[bBdEiIOPqsSuvx]*[cm]")
"""Option of Python after which the program follows; single letters may stand together."""
_INTERPRETER = re.compile(r"(python|pypy)[\d.]*[a-z]?")
_MARK = "stepscope-examination:"
"""Beginning of the lines of answers."""


class Answer(NamedTuple):
    """Answer to one question about the interpreter."""

    name: str
    is_recorded: bool
    detail: str


def examine_interpreter(command: Sequence[str]) -> list[Answer]:
    """Start the interpreter of a job as `stepscope run` would, and ask it.

    Args:
        command: of a job, or its interpreter alone. Words before the interpreter, such as those of
            a wrapper, and its options stay.

    Raises:
        UsageError: the command has no Python interpreter, or it cannot be started.
    """
    modules = [f"{module},{adapted}" for module, (_, _, adapted) in OLDEST_RELEASES.items()]
    words = [*find_interpreter(command), "-c", Path(EXAMINATION).read_text()]
    spool = Path(tempfile.mkdtemp())
    job_environment = {**os.environ, **environment(str(spool), _SPOOL_BYTES)}
    path = insert_shims(command, spool, os.environ.get("PATH"))
    if path is not None:
        job_environment["PATH"] = path
    try:
        done = subprocess.run(
            [*words, _MARK, *modules],
            env=job_environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
    except OSError as error:
        raise errors.UsageError(f"{words[0]} cannot be started: {error.strerror}.") from None
    except subprocess.TimeoutExpired:
        raise errors.UsageError(f"{words[0]} did not answer within {LIMIT_S} s.") from None
    finally:
        monitor.remove_spool(spool)
    lines = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    answers = [json.loads(line.removeprefix(_MARK)) for line in lines]
    if not answers:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise errors.UsageError(f"{words[0]} does not run Python: {last}")
    return [*_explain(answers, done.stderr, done.returncode)]


def find_interpreter(command: Sequence[str]) -> list[str]:
    """Return the words of a command up to its interpreter, and the interpreter's options.

    Raises:
        UsageError: no word is an interpreter of Python, or a script of one.
    """
    for number, word in enumerate(command):
        if _INTERPRETER.fullmatch(Path(word).name) and shutil.which(word):
            return [*command[: number + 1], *_options(command[number + 1 :])]
    path = shutil.which(command[0])
    interpreter = _read_interpreter(Path(path)) if path else None
    if interpreter is None:
        example = suggest("doctor", "--", "python3")
        raise errors.UsageError(
            f"{command[0]} is no Python interpreter and no script of one. Pass the job's: {example}"
        )
    return interpreter


def _options(words: Sequence[str]) -> Iterator[str]:
    remaining = iter(words)
    for word in remaining:
        if not word.startswith("-") or _LAST_OPTION.match(word):
            return
        yield word
        if word in monitor.VALUED_OPTIONS:
            yield from [value for value in [next(remaining, None)] if value is not None]


def _read_interpreter(path: str | Path) -> list[str] | None:
    """Read the interpreter of a script's first line, such as that of torchrun."""
    lines = _read_start(path)
    if not lines:
        return None
    words = lines[0].removeprefix("#!").split()
    if words[:1] == ["/bin/sh"] and len(lines) > 1 and lines[1].startswith("'''exec'"):
        words = [lines[1].split('"')[1]] if '"' in lines[1] else lines[1].split()[1:2]  # pip's
    return words if any("python" in Path(word).name for word in words) else None


def _read_start(path: str | Path) -> list[str]:
    """Read the first lines of a script; empty for another file."""
    try:
        file = os.open(path, os.O_RDONLY)  # a PATH has thousands of programs
        try:
            start = os.read(file, 1024)
        finally:
            os.close(file)
    except OSError:  # it may be executed, and not be read
        return []
    return start.decode(errors="replace").splitlines() if start.startswith(b"#!") else []


def _explain(answers: list[Any], printed: str, status: int) -> Iterator[Answer]:
    by_name = dict(answers)
    version, executable = by_name["python"]
    yield Answer("Python", True, f"{version}, {executable}")
    reason = _explain_hook(by_name["hook"], version, printed)
    yield Answer("start-up hook", reason is None, reason or "runs, so its jobs are recorded")
    frameworks = [value for name, value in answers if name == "framework"]
    losses = dict(value for name, value in answers if name == "losses")
    for module, release, problem in frameworks:
        name, oldest, _ = OLDEST_RELEASES[module]
        if problem:
            yield Answer(name, False, f"cannot be imported: {problem}")
        elif _numbers(release) < _numbers(oldest):
            yield Answer(name, False, f"{release}; {oldest} and later are recorded")
        else:
            missing = " ".join(losses.get(module, []))
            yield Answer(name, reason is None, f"{release}; {missing}" if missing else release)
    imported = [value for name, value in answers if name == "import"]
    if len(imported) > len(frameworks):
        ended = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        name = OLDEST_RELEASES[imported[-1]][0]
        yield Answer(name, False, f"ends the process when it is imported ({ended})")
    elif not frameworks:
        yield Answer("frameworks", False, "none that is recorded is installed")


def _explain_hook(hook: dict[str, Any], version: str, printed: str) -> str | None:
    """Say why the start-up hook did not run; None if it did."""
    reported = [line for line in printed.splitlines() if line.startswith("stepscope: ")]
    if reported:
        return reported[-1].removeprefix("stepscope: ")
    if hook["runs"]:
        return None
    has_hook = SITE in hook["python_path"].split(os.pathsep)
    facts = monitor.HookFacts(
        flags=hook["flags"],
        release=tuple(_numbers(version)[:2]),
        has_variables=hook["sees_package"] is not None,
        sees_package=hook["sees_package"] is not False,
        python_path=hook["python_path"],
        has_hook=has_hook,
        shadow="another sitecustomize.py" if has_hook else None,
    )
    return f"does not run: {monitor.explain_hook(facts)}"


def _numbers(release: str) -> list[int]:
    """Return the numbers at the beginning of a version, such as 2, 9 and 0 of 2.9.0a0+git1."""
    match = re.match(r"[\d.]*", release)
    return [int(part) for part in match[0].split(".") if part] if match else []


_SHIM = """\
#!{bash} --posix
# Execute the program of this name in a directory of PATH, with stepscope's start-up hook.
_stepscope_site={site} _stepscope_shims={shims}
if [ -n "${{{variable}-}}" ]; then
  case ":${{PYTHONPATH-}}:" in
    *:"$_stepscope_site":*) ;;
    *) export PYTHONPATH="$_stepscope_site${{PYTHONPATH:+:$PYTHONPATH}}" ;;
  esac
fi
PATH=":${{PATH-}}:"
while case $PATH in *:"$_stepscope_shims"/*) true ;; *) false ;; esac; do
  _stepscope_rest=${{PATH#*:"$_stepscope_shims"/}}
  PATH=${{PATH%%:"$_stepscope_shims"/*}}:${{_stepscope_rest#*:}}
done
PATH=${{PATH#:}} PATH=${{PATH%:}}
exec {directory}/"${{0##*/}}" "$@"
"""
_WRAPPERS = {"env", "sh", "bash", "dash", "ksh", "zsh"}
"""Programs that often set PYTHONPATH before they start Python."""
_OTHER_PROGRAM = {"--no-python", "--no_python"}
"""Options of torchrun and deepspeed: what they start is no script of Python, but a program."""
_LINKED = ("lib", "lib64", "include", "share", "etc", "conda-meta", "pyvenv.cfg")
"""What scripts look for beside the directory of a program."""


def insert_shims(command: Sequence[str], spool: Path, path: str | None) -> str | None:
    """Insert directories of shims into a PATH for a command that is no Python; see the module.

    They are removed with the spool.

    Args:
        path: PATH of the job.

    Returns:
        None where nothing is inserted.
    """
    bash = shutil.which("bash")  # other shells drop variables with names such as BASH_FUNC_f%%
    if bash is None or not path or _is_python(command):
        return None
    try:
        root = Path(tempfile.mkdtemp(prefix=monitor.SHIMS_PREFIX))
    except OSError:
        return None
    try:
        (spool / monitor.SHIMS_LINK).symlink_to(root)
        if os.statvfs(root).f_flag & os.ST_NOEXEC:
            return None
        directories: list[str] = []
        targets: set[str] = set()
        for directory in path.split(os.pathsep):
            target = os.path.realpath(directory)
            if Path(directory).is_absolute() and target not in targets:
                targets.add(target)
                directories += _make_shims(root / str(len(targets)), directory, bash)
            directories.append(directory)
    except OSError:  # a full disk: the job runs without them
        shutil.rmtree(root, ignore_errors=True)
        return None
    return os.pathsep.join(directories)


def _is_python(command: Sequence[str]) -> bool:
    """Return True if a command is an interpreter or a script of one, or has one as an argument of a
    program, such as a debugger, that may need the file of an interpreter."""
    if not _OTHER_PROGRAM.isdisjoint(command):
        return False
    path = Path(shutil.which(command[0]) or command[0])
    if _INTERPRETER.fullmatch(path.name) or _read_interpreter(path):
        return True
    has_interpreter = any(_INTERPRETER.fullmatch(Path(word).name) for word in command)
    return has_interpreter and path.name not in _WRAPPERS and not _read_start(path)


def _list_python_programs(directory: str) -> Iterator[str]:
    """List the interpreters and the scripts of one in a directory."""
    try:
        files = [entry for entry in os.scandir(directory) if entry.is_file()]
    except OSError:
        return
    for file in files:
        is_python = _INTERPRETER.fullmatch(file.name) or _read_interpreter(file.path)
        if is_python and os.access(file.path, os.X_OK):
            yield file.name


def _make_shims(root: Path, directory: str, bash: str) -> list[str]:
    """Make shims for the Python programs of a directory of PATH, if it has any.

    Args:
        root: receives the directory of shims, and links to what is beside the programs.

    Raises:
        OSError: they cannot be written.
    """
    names = list(_list_python_programs(directory))
    if not names:
        return []
    original = Path(directory)
    shims = root / original.name
    shims.mkdir(parents=True)
    for name in _LINKED:
        if (original.parent / name).exists():
            (root / name).symlink_to(original.parent / name)
    shim = shims / ".shim"
    shim.write_text(
        _SHIM.format(
            bash=bash,
            directory=shlex.quote(directory),
            shims=shlex.quote(str(root.parent)),
            site=shlex.quote(SITE),
            variable=SPOOL_VARIABLE,
        )
    )
    shim.chmod(0o700)
    for name in names:
        (shims / name).symlink_to(shim.name)
    return [str(shims)]
