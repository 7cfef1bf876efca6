"""Examination of the interpreter of a job, before the job runs: `stepscope doctor -- python`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stepscope import errors
from stepscope.capture.bootstrap import EXAMINATION, OLDEST_RELEASES, environment
from stepscope.cli.output import suggest

LIMIT_S = 300
_SPOOL_BYTES = 1 << 20
_LAST_OPTION = re.compile(r"-$|-[bBdEiIOPqsSuvx]*[cm]")
"""Option of Python after which the program follows; single letters may stand together."""
_MARK = "stepscope-examination:"
"""Beginning of the lines of answers."""
_VALUED_OPTIONS = {"-X", "-W", "--check-hash-based-pycs"}
"""Options of Python that take the next word."""


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
    with tempfile.TemporaryDirectory() as spool:
        job_environment = {**os.environ, **environment(spool, _SPOOL_BYTES)}
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
        if re.fullmatch(r"(python|pypy)[\d.]*[a-z]?", Path(word).name) and shutil.which(word):
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
        if word in _VALUED_OPTIONS:
            yield from [value for value in [next(remaining, None)] if value is not None]


def _read_interpreter(path: Path) -> list[str] | None:
    """Read the interpreter of a script's first line, such as that of torchrun."""
    try:
        with path.open("rb") as file:
            lines = file.read(1024).decode(errors="replace").splitlines()
    except OSError:  # it may be executed, and not be read
        return None
    words = lines[0].removeprefix("#!").split() if lines and lines[0].startswith("#!") else []
    if words[:1] == ["/bin/sh"] and len(lines) > 1 and lines[1].startswith("'''exec'"):
        words = [lines[1].split('"')[1]] if '"' in lines[1] else lines[1].split()[1:2]  # pip's
    return words if any("python" in Path(word).name for word in words) else None


def _explain(answers: list[Any], printed: str, status: int) -> Iterator[Answer]:
    by_name = dict(answers)
    version, executable = by_name["python"]
    yield Answer("Python", True, f"{version}, {executable}")
    reason = _explain_hook(by_name["hook"], printed)
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


def _explain_hook(hook: dict[str, Any], printed: str) -> str | None:
    """Say why the start-up hook did not run; None if it did."""
    reported = [line for line in printed.splitlines() if line.startswith("stepscope: ")]
    if reported:
        return reported[-1].removeprefix("stepscope: ")
    if hook["runs"]:
        return None
    if hook["flags"]:
        return f"does not run with the option {hook['flags'][0]} of Python; leave it out"
    if hook["sees_package"] is None:
        return "does not run: a command before Python clears the environment; let it keep that"
    if not hook["sees_package"]:
        return (
            "does not run: the interpreter sees other files, as in a container. Install stepscope "
            "there, and start the job inside with `stepscope run -- CMD`"
        )
    return (
        f"does not run: something before Python sets PYTHONPATH to {hook['python_path']!r}. Let it "
        "prepend to the value that it finds"
    )


def _numbers(release: str) -> list[int]:
    """Return the numbers at the beginning of a version, such as 2, 9 and 0 of 2.9.0a0+git1."""
    match = re.match(r"[\d.]*", release)
    return [int(part) for part in match[0].split(".") if part] if match else []
