"""Lines of source files: those that were recorded with a run, or of files below an allowed root.

A run may come from anywhere, and the names in it with it. So a name in a run allows nothing to be
read; what it has recorded of a file may be shown, and else only source files below a root.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from stepscope.errors import UsageError
from stepscope.schema import ProcessInfo
from stepscope.server.open_runs import OpenRuns
from stepscope.server.payloads import Editors, SourceLines

AROUND = 20
"""Lines shown before and after the one that is asked for."""
LARGEST_FILE = 4_000_000
LONGEST_LINE = 2000
SUFFIXES = frozenset(
    {".py", ".pyi", ".pyx", ".pxd", ".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh"}
    | {".hpp", ".hxx", ".inl", ".jl", ".rs", ".go", ".js", ".ts", ".java", ".scala", ".f90"}
)
"""What a source file's name ends with: a root may hold other things that are nobody's business."""
_NO_EDITOR = Editors(vscode=None, pycharm=None)


def source(
    runs: OpenRuns,
    *,
    location: str,
    revision: int,
    file: str,
    line: str,
    roots: list[str],
    local: bool,
) -> SourceLines:
    """Some lines around one of a file.

    Args:
        runs: the open runs.
        location: of the run.
        revision: of the run.
        file: as a stack names it; a relative name counts from each root.
        line: its number, counted from 1.
        roots: allowed directories.
        local: whether the browser is on this machine. Then files can be opened in an editor, and
            the directory in which the job was started is an allowed one as well. Not where the
            run lies in a bucket: that directory is one of another machine, and whoever may write
            there would say what may be read here. What lay below it is looked for below `roots`.

    Raises:
        FileNotFoundError: there is no such file that may be shown.
        UsageError: the line is none.
    """
    if not line.isascii() or not line.isdecimal() or not 0 < int(line) < 1 << 31:
        raise UsageError(f"{line!r} is no number of a line.")
    run = runs.open(location, revision)
    allowed = [Path(root) for root in roots]
    started_in, names = run.reader.info.working_directory, [file]
    if not run.reader.is_local:
        names += _below(started_in, file)
    elif local:
        allowed += _started_in(started_in)
    path = next((each for name in names for each in _allowed(name, allowed)), None)
    found = None if path is None else _read(path, int(line), local=local)
    found = found or _recorded(run.processes, file, int(line))
    if found is None:
        where = "below " + ", ".join(map(str, allowed)) if allowed else "anywhere"
        raise FileNotFoundError(
            f"{file[:300]!r} may not be shown: it was not recorded with the run, and there is no "
            f"such source file with that line {where}. stepscope ui --source-root DIR allows more."
        )
    return found


def _below(directory: str, file: str) -> list[str]:
    """The name of a file relative to the directory of the job, where it lay below that."""
    path, place = PurePosixPath(file), PurePosixPath(directory)
    if not place.is_absolute() or not path.is_relative_to(place):
        return []
    return [str(path.relative_to(place))]


def _started_in(directory: str) -> list[Path]:
    """The directory of the job, where it is one of this machine and not all of the machine."""
    place = Path(directory)
    return [place] if place.is_absolute() and place.parent != place and place.is_dir() else []


def _allowed(file: str, roots: Iterable[Path]) -> Iterator[Path]:
    """The files that a name may mean, as they are called without links."""
    if not file or "\0" in file:
        return
    for root in roots:
        try:
            real_root, path = root.resolve(strict=True), (root / file).resolve(strict=True)
        except (OSError, RuntimeError):
            continue
        if path.is_relative_to(real_root) and path.is_file() and path.suffix in SUFFIXES:
            yield path


def _read(path: Path, line: int, *, local: bool) -> SourceLines | None:
    """Lines of a file; None where it has no such line, or is no text."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            return None
        text = path.read_bytes()
    except OSError:
        return None
    if b"\0" in text:
        return None
    lines = text.decode("utf-8", "replace").splitlines()
    if line > len(lines):
        return None
    first = max(1, line - AROUND)
    place = quote(str(path), safe="/")
    return SourceLines(
        file=str(path),
        first_line=first,
        lines=[each[:LONGEST_LINE] for each in lines[first - 1 : line + AROUND]],
        line=line,
        recorded=False,
        opens=Editors(
            vscode=f"vscode://file{place}:{line}",
            pycharm=f"jetbrains://pycharm/navigate/reference?path={place}:{line}",
        )
        if local
        else _NO_EDITOR,
    )


def _recorded(processes: Iterable[ProcessInfo], file: str, line: int) -> SourceLines | None:
    """The lines next to this one that processes of the job have read out."""
    texts = {
        fact["line"]: str(fact["text"])
        for process in processes
        for fact in process.facts
        if fact.get("fact") == "source" and fact.get("file") == file
    }
    if line not in texts:
        return None
    first, last = line, line
    while first - 1 in texts and line - first < AROUND:
        first -= 1
    while last + 1 in texts and last - line < AROUND:
        last += 1
    return SourceLines(
        file=file,
        first_line=first,
        lines=[texts[number][:LONGEST_LINE] for number in range(first, last + 1)],
        line=line,
        recorded=True,
        opens=_NO_EDITOR,
    )
