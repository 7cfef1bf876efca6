"""Lines of source files: those recorded with a run, or those of files below an allowed root.

A run and the file names in it may come from an untrusted source. A name in a run therefore grants
no access: only the lines recorded in the run and source files below a root may be shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from stepscope import errors, schema
from stepscope.server.payloads import EditorLinks, SourceLines
from stepscope.server.worker import OpenRuns

CONTEXT_LINES = 20
"""Number of lines shown before and after the requested one."""
MAX_FILE_BYTES = 4_000_000
MAX_LINE_LENGTH = 2000
SUFFIXES = frozenset(
    {".py", ".pyi", ".pyx", ".pxd", ".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh"}
    | {".hpp", ".hxx", ".inl", ".jl", ".rs", ".go", ".js", ".ts", ".java", ".scala", ".f90"}
)
"""Suffixes of source files: a root may contain other, private files."""
_NO_EDITOR = EditorLinks(vscode=None, pycharm=None)


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
    """Read lines around one line of a file.

    Args:
        runs: the open runs.
        location: location of the run.
        revision: revision of the run.
        file: name of the file in a stack; a relative name is resolved below each root, a name
            without a directory is also that of the only such file whose lines were recorded.
        line: number of the line, counted from 1.
        roots: allowed directories.
        local: whether the browser is on this machine. Then files can be opened in an editor, and
            the directory in which the job was started is allowed as well. This does not apply to a
            run in a bucket: the directory is one of another machine, and anyone with write access
            to the bucket could choose which files of this machine are read. Files that were below
            that directory are looked up below `roots`.

    Raises:
        FileNotFoundError: no such file may be shown.
        UsageError: the line number is invalid.
    """
    if not line.isascii() or not line.isdecimal() or not 0 < int(line) < 1 << 31:
        raise errors.UsageError(f"{line!r} is not a line number.")
    run = runs.open(location, revision)
    allowed = [Path(root) for root in roots]
    job_directory = run.reader.info.working_directory
    full = _full_name(run.processes, file)
    names = [full, *_relative_names(job_directory, full)]
    if run.reader.is_local and local:
        allowed += _local_directories(job_directory)
    texts = _recorded_texts(run.processes, full)
    paths = [path for name in names for path in _resolve(name, allowed)]
    if full != file:  # the job may have run on another machine
        paths += [path for path in _resolve(file, allowed) if _has_lines(path, texts)]
    path = next(iter(paths), None)
    lines = None if path is None else _read_lines(path, int(line), local=local)
    lines = lines or _recorded_lines(texts, full, int(line))
    if lines is None:
        searched = "below " + ", ".join(map(str, allowed)) if allowed else "in an allowed directory"
        raise FileNotFoundError(
            f"{file[:300]!r} cannot be shown: the line was not recorded with the run, and there is "
            f"no such source file {searched}. Allow more with `stepscope ui --source-root DIR`."
        )
    return lines


def _full_name(processes: Iterable[schema.ProcessInfo], file: str) -> str:
    """Return the only recorded file with the name of a file; the name itself if there is none.

    Raises:
        FileNotFoundError: there are several.
    """
    names = {
        fact.file
        for process in processes
        for fact in process.facts_of(schema.SourceLineFact)
        if PurePosixPath(fact.file).name == file
    }
    if len(names) > 1:
        raise FileNotFoundError(
            f"{file[:300]!r} cannot be shown: lines of several files with this name were recorded: "
            f"{', '.join(sorted(names)[:5])}."
        )
    return names.pop() if names else file


def _relative_names(directory: str, file: str) -> list[str]:
    """Name of a file relative to the directory of the job, if it was below that."""
    path, base = PurePosixPath(file), PurePosixPath(directory)
    if not base.is_absolute() or not path.is_relative_to(base):
        return []
    return [str(path.relative_to(base))]


def _local_directories(directory: str) -> list[Path]:
    """Directory of the job, if it exists on this machine and is not its root directory."""
    path = Path(directory)
    return [path] if path.is_absolute() and path.parent != path and path.is_dir() else []


def _resolve(file: str, roots: Iterable[Path]) -> Iterator[Path]:
    """Resolve a name to the allowed files below the roots, with links followed."""
    if not file or "\0" in file:
        return
    for root in roots:
        try:
            real_root, path = root.resolve(strict=True), (root / file).resolve(strict=True)
        except (OSError, RuntimeError):
            continue
        if path.is_relative_to(real_root) and path.is_file() and path.suffix in SUFFIXES:
            yield path


def _split_lines(path: Path) -> list[str] | None:
    """Read all lines of a file; None if it is too large, cannot be read, or is not text."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return None
        text = path.read_bytes()
    except OSError:
        return None
    return None if b"\0" in text else text.decode("utf-8", "replace").splitlines()


def _read_lines(path: Path, line: int, *, local: bool) -> SourceLines | None:
    """Read lines of a file; None if it has no such line, or is not text."""
    lines = _split_lines(path)
    if lines is None or line > len(lines):
        return None
    first = max(1, line - CONTEXT_LINES)
    url_path = quote(str(path), safe="/")
    return SourceLines(
        file=str(path),
        first_line=first,
        lines=[text[:MAX_LINE_LENGTH] for text in lines[first - 1 : line + CONTEXT_LINES]],
        line=line,
        recorded=False,
        opens=EditorLinks(
            vscode=f"vscode://file{url_path}:{line}",
            pycharm=f"jetbrains://pycharm/navigate/reference?path={url_path}:{line}",
        )
        if local
        else _NO_EDITOR,
    )


def _recorded_texts(processes: Iterable[schema.ProcessInfo], file: str) -> dict[int, str]:
    """Return the recorded lines of a file by number."""
    return {
        source_line.line: source_line.text
        for process in processes
        for source_line in process.facts_of(schema.SourceLineFact)
        if source_line.file == file and not source_line.call
    }


def _has_lines(path: Path, texts: Mapping[int, str]) -> bool:
    """Return True if a file has all of these lines, but for blanks around them."""
    lines = _split_lines(path)
    if lines is None:
        return False
    return all(
        number <= len(lines) and lines[number - 1].strip().startswith(text.strip())
        for number, text in texts.items()
    )


def _recorded_lines(texts: Mapping[int, str], file: str, line: int) -> SourceLines | None:
    """Find the recorded lines that are contiguous with this one; None if it was not recorded."""
    if line not in texts:
        return None
    first, last = line, line
    while first - 1 in texts and line - first < CONTEXT_LINES:
        first -= 1
    while last + 1 in texts and last - line < CONTEXT_LINES:
        last += 1
    return SourceLines(
        file=file,
        first_line=first,
        lines=[texts[number][:MAX_LINE_LENGTH] for number in range(first, last + 1)],
        line=line,
        recorded=True,
        opens=_NO_EDITOR,
    )
