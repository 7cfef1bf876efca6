"""Documents of an import: each trace of an archive or of concatenated text is a file of its own.

Importers read one trace from one file. Files that hold others come first:

    tar, zip            plain, or compressed with gzip, bzip2 or xz: their members, ARCHIVE/MEMBER
    bzip2, xz, gzip     around another form, or a database: the content
    several traces      one after the other in a text, plain or gzip: each of them, FILE/1, …

They are unpacked into a hidden directory of the run, as NUMBER OF THE FILE/ITS DIRECTORY/ARCHIVE/
MEMBER, which is removed after the import. Files with equal text are copies of one trace.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import shlex
import shutil
import stat
import struct
import sys
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Literal, cast

import msgspec
from msgspec.structs import replace

from stepscope import quantities, schema
from stepscope.importers import content
from stepscope.importers.content import GZIP_MAGIC, SQLITE_MAGIC, Imported, Refused, Result

if TYPE_CHECKING:
    import tarfile

MAX_DEPTH = 3
"""Archives around a file that are unpacked."""
MAX_MEMBERS = 10_000
MAX_INFLATION = 100
"""Bytes that may be unpacked per byte of an archive; one of zeros grows a thousandfold."""
_FREE_SHARE = 0.5
"""Share of the free space of the disk that an archive may fill."""
_COPY_BYTES = 1 << 20
_TAR_HEADER_BYTES, _CHECKSUM = 512, slice(148, 156)
_ZIP, _BZIP2, _XZ = b"PK\x03\x04", b"BZh", b"\xfd7zXZ\x00"
_SUFFIXES = (".gz", ".bz2", ".xz")
_RANK_KEY = b'"distributedInfo"'
_NAME_ERRORS = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL)  # of names of members
_COPY_AGAIN = "Copy the file again, as binary data"
_ENCRYPTED = "is encrypted: unpack the archive with its password, and import the files in it"
Form = Literal["tar", "zip", "compressed"]


class Document(msgspec.Struct, frozen=True):
    """A file that holds one document."""

    path: Path
    source: int
    """Number of the file of the import that holds it."""
    name: str
    """Its path as users know it."""


class _RefusedError(Exception):
    """An archive that is not unpacked, or not to its end; the reason as the rest of a sentence."""


class Unpacker:
    """Unpacks files of an import into a hidden directory of a run, until the end of a block."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._directory: Path | None = None
        self._names: dict[Path, str] = {}
        self._aside: dict[Path, Path] = {}
        """Where an unpacked archive was, which makes room for a directory of its name."""

    def __enter__(self) -> Unpacker:
        return self

    def __exit__(self, *_: object) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def expand(self, files: Sequence[Path]) -> list[Document | Refused]:
        """List the documents in files, in their order.

        Raises:
            OSError: the run cannot be written.
        """
        items: list[Document | Refused] = []
        for number, path in enumerate(files):
            items += self._expand(Document(path, number, str(path)), _Budget(path, self._run), 0)
        return items

    def split(self, document: Document, starts: Sequence[int]) -> list[Document | Refused]:
        """Write the traces of a text into files of their own; damage of the text comes last.

        Args:
            document: the file, plain or gzip.
            starts: positions in the text at which the traces start.

        Raises:
            OSError: the run cannot be written.
        """
        from stepscope.importers.kineto import Frame, read_text

        document = self._set_aside(document)
        budget, frame = _Budget(document.path, self._run), Frame()
        parts: list[Document | Refused] = []
        ends = iter((*starts[1:], sys.maxsize))
        position = end = 0
        try:
            with ExitStack() as stack:
                for piece in read_text(document.path, frame):
                    rest = memoryview(piece)
                    while len(rest):
                        if position == end:
                            part = self._place(document, str(len(parts) + 1), is_member=True)
                            parts.append(part)
                            stack.close()  # the file of the part before
                            file, end = stack.enter_context(part.path.open("wb")), next(ends)
                        written, rest = rest[: end - position], rest[end - position :]
                        budget.take(len(written), document)
                        file.write(written)
                        position += len(written)
        except _RefusedError as error:
            return [Refused(Path(document.name), f"{document.name} {error}.")]
        if frame.damage:
            reason = f"{document.name} was not read as it was written: {frame.damage}."
            parts.append(Refused(Path(document.name), reason))
        return parts

    def rename(self, result: Result) -> Result:
        """Replace paths of unpacked files in a result by the names that users know."""
        if isinstance(result, Refused) and result.path in self._names:
            name = self._names[result.path]
            reason = result.reason.replace(str(result.path), name)
            return replace(result, path=Path(name), reason=reason)
        if isinstance(result, Imported) and result.execution_trace is not None:
            path = Path(result.execution_trace)
            return replace(result, execution_trace=self._names.get(path, str(path)))
        return result

    def _expand(self, document: Document, budget: _Budget, depth: int) -> list[Document | Refused]:
        form = find_form(document.path)
        if form is None:
            return [document]
        if depth > MAX_DEPTH:
            reason = f"{document.name} is not unpacked: {MAX_DEPTH} archives are around it."
            return [Refused(document.path, reason)]
        unpack = {"tar": self._unpack_tar, "zip": self._unpack_zip, "compressed": self._inflate}
        items: list[Document | Refused] = []
        try:
            document = self._set_aside(document)
            for item in unpack[form](document, budget):
                items += (
                    [item] if isinstance(item, Refused) else self._expand(item, budget, depth + 1)
                )
        except _RefusedError as error:
            items.append(Refused(Path(document.name), f"{document.name} {error}."))
        except OSError as error:
            if error.errno not in _NAME_ERRORS:
                raise
            reason = f"{document.name} cannot be unpacked: {error.strerror}. {_COPY_AGAIN}."
            items.append(Refused(Path(document.name), reason))
        if not items:
            items.append(Refused(Path(document.name), f"{document.name} holds no files."))
        if depth:
            document.path.unlink(missing_ok=True)
        return items

    def _set_aside(self, document: Document) -> Document:
        """Move a file that was unpacked, so that a directory of its parts can have its name."""
        if self._directory is None or not document.path.is_relative_to(self._directory):
            return document
        target = self._directory / f"{len(self._aside)}.archive"
        self._aside[target] = document.path
        return replace(document, path=document.path.rename(target))

    def _place(self, document: Document, name: str, *, is_member: bool) -> Document:
        """Choose the file of a part of a document, and create the directory around it."""
        path = self._aside.get(document.path, document.path)
        if self._directory is None:
            directory = tempfile.mkdtemp(prefix=content.UNPACKED_PREFIX, dir=self._run)
            self._directory = Path(directory)
        if path.is_relative_to(self._directory):
            around = path
        else:
            parent = path.resolve().parent.name or "-"
            around = self._directory / str(document.source) / parent
            around = around / path.name if is_member else around
        target = around / name
        target.parent.mkdir(parents=True, exist_ok=True)
        self._names[target] = f"{document.name}/{name}" if is_member else document.name
        return Document(target, document.source, self._names[target])

    def _inflate(self, document: Document, budget: _Budget) -> Iterator[Document | Refused]:
        name = self._aside.get(document.path, document.path).name
        suffix = next((suffix for suffix in _SUFFIXES if name.endswith(suffix)), "")
        part = self._place(document, name.removesuffix(suffix) or name, is_member=False)
        with _refusing("cannot be decompressed: {}"), open_content(document.path) as source:
            budget.copy(source, part.path, document)
        yield part

    def _unpack_tar(self, document: Document, budget: _Budget) -> Iterator[Document | Refused]:
        """Unpack the files of a tar archive, which may be several that were concatenated."""
        import tarfile

        damage = f"is a tar archive that is damaged: {{}}. {_COPY_AGAIN}"
        has_end = False

        class Header(tarfile.TarInfo):
            """Header of a member that says whether it is damaged; others are skipped silently."""

            @classmethod
            def fromtarfile(cls, archive: tarfile.TarFile) -> Header:
                nonlocal has_end
                try:
                    header = super().fromtarfile(archive)
                except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
                    has_end = True
                    raise
                except tarfile.EmptyHeaderError:  # type: ignore[attr-defined]
                    raise
                except tarfile.HeaderError as error:
                    raise _RefusedError(damage.format(error)) from error
                has_end = False
                return header

        with (
            _refusing(damage),
            open_content(document.path) as source,
            tarfile.open(fileobj=source, mode="r|", ignore_zeros=True, tarinfo=Header) as archive,
        ):
            for member in archive:
                if member.isdir() or _is_hidden(member.name):
                    continue
                if not member.isreg():
                    kind = "a link" if member.issym() or member.islnk() else "a device"
                    yield _refuse_member(document, member.name, f"is {kind}")
                    continue
                part = self._choose_member(document, member.name)
                if isinstance(part, Document):
                    file = cast("IO[bytes]", archive.extractfile(member))
                    budget.copy(file, part.path, document)
                yield part
        if not has_end:
            raise _RefusedError(damage.format("its end is missing"))

    def _unpack_zip(self, document: Document, budget: _Budget) -> Iterator[Document | Refused]:
        """Unpack the files of a zip archive."""
        import zipfile

        damage = f"is a zip archive that cannot be read: {{}}. {_COPY_AGAIN}"
        with _refusing(damage), zipfile.ZipFile(document.path) as archive:
            members = archive.infolist()
            if any(PurePosixPath(m.filename).name == "data.pkl" for m in members):
                raise _RefusedError(
                    "is a checkpoint that torch.save wrote, not a trace; the method "
                    "export_chrome_trace of torch.profiler writes traces"
                )
            for member in members:
                if member.is_dir() or _is_hidden(member.filename):
                    continue
                is_link = stat.S_ISLNK(member.external_attr >> 16)
                if is_link or member.flag_bits & 1:
                    reason = "is a link" if is_link else _ENCRYPTED
                    yield _refuse_member(document, member.filename, reason)
                    continue
                part = self._choose_member(document, member.filename)
                if isinstance(part, Document):
                    with archive.open(member) as file:
                        budget.copy(file, part.path, document)
                yield part

    def _choose_member(self, document: Document, name: str) -> Document | Refused:
        """Choose the file of a member, whose path may not lead out of the directory."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts:
            return _refuse_member(document, name, "has a path that leads out of the archive")
        try:
            part = self._place(document, str(path), is_member=True)
            is_present = part.path.exists()
        except OSError as error:
            return _refuse_member(document, name, f"cannot be unpacked: {error.strerror}")
        twice = "is in the archive twice, and the first one was read"
        return _refuse_member(document, name, twice) if is_present else part


class _Budget:
    """Bytes and members that may still be unpacked of a file of the import."""

    def __init__(self, path: Path, run: Path) -> None:
        self._path = path
        self._run = run
        self._members = MAX_MEMBERS
        self._limit: int | None = None
        self._bytes = 0

    def copy(self, source: IO[bytes], target: Path, document: Document) -> None:
        """Write the content of a member to a file."""
        self._members -= 1
        if self._members < 0:
            count = quantities.count(MAX_MEMBERS)
            raise _RefusedError(f"holds more than {count} files. {advise_unpacking(document)}")
        with target.open("wb") as file:
            while piece := source.read(_COPY_BYTES):
                self.take(len(piece), document)
                file.write(piece)

    def take(self, size: int, document: Document) -> None:
        """Count bytes that are unpacked."""
        if self._limit is None:
            usual = max(content.MAX_INFLATED_BYTES, MAX_INFLATION * self._path.stat().st_size)
            free = shutil.disk_usage(self._run).free
            self._limit = self._bytes = int(min(usual, _FREE_SHARE * free))
        self._bytes -= size
        if self._bytes < 0:
            raise _RefusedError(
                f"holds more than {quantities.memory(self._limit)}. {advise_unpacking(document)}"
            )


def find_form(path: Path) -> Form | None:
    """Return the form of a file that has to be unpacked, by its content."""
    start = head = b""
    try:
        with path.open("rb") as file:
            start = file.read(8)
        if start.startswith(_ZIP):
            import zipfile

            return "zip" if zipfile.is_zipfile(path) else None  # it has a directory
        with open_content(path) as source:
            head = source.read(_TAR_HEADER_BYTES)
    except ImportError:
        return None  # Python was built without the library
    except _stream_errors():
        head = b""  # the damage is named where the content is read
    if _is_tar_header(head):
        return "tar"
    inner = (GZIP_MAGIC, _ZIP, _BZIP2, _XZ, SQLITE_MAGIC)
    is_packed = start.startswith(GZIP_MAGIC) and head.startswith(inner)
    return "compressed" if is_packed or start.startswith((_BZIP2, _XZ)) else None


def open_content(path: Path) -> IO[bytes]:
    """Open the content of a file, plain or compressed with gzip, bzip2 or xz."""
    with path.open("rb") as file:
        start = file.read(8)
    if start.startswith(GZIP_MAGIC):
        return cast("IO[bytes]", gzip.open(path))
    if start.startswith(_BZIP2):
        import bz2

        return cast("IO[bytes]", bz2.open(path))
    if start.startswith(_XZ):
        import lzma

        return cast("IO[bytes]", lzma.open(path))
    return path.open("rb")


def advise_unpacking(document: Document) -> str:
    """Return a sentence with the command that unpacks an archive, without its full stop."""
    if document.name != str(document.path):  # in another archive
        return "Unpack it, and import the files in it"
    path = shlex.quote(document.name)
    with document.path.open("rb") as file:
        start = file.read(8)
    if start.startswith(_ZIP):
        return f"Unpack it with `python -m zipfile -e {path} .`, and import the files in it"
    if find_form(document.path) == "tar":
        return f"Unpack it with `tar -xf {path}`, and import the files in it"
    tool = {_BZIP2: "bzip2", _XZ: "xz"}
    name = next((name for magic, name in tool.items() if start.startswith(magic)), "gzip")
    return f"Decompress it with `{name} -dc {path} > trace.json`, and import the result"


def find_copies(paths: Sequence[Path]) -> dict[int, int]:
    """Find files with the same text as an earlier one, by their positions.

    Few files have texts of equal length: only these are compared. Names and directories of ranks
    and workers tell files apart whose text states no rank.
    """
    groups: list[list[int]] = [list(range(len(paths)))]
    for measure in (_measure_text, content.read_head, _digest_text):
        parts: defaultdict[object, list[int]] = defaultdict(list)
        for number, group in enumerate(groups):
            for position in group:
                with suppress(OSError):
                    parts[number, measure(paths[position])].append(position)
        groups = [part for part in parts.values() if len(part) > 1]
    copies: dict[int, int] = {}
    for group in groups:
        has_rank = _states_rank(paths[group[0]])
        originals: dict[str | None, int] = {}
        for position in group:
            origin = None if has_rank else _find_origin(paths[position])
            if originals and (origin is None or origin in originals or None in originals):
                original = originals.get(origin, originals.get(None, group[0]))
                copies[position] = original
            else:
                originals[origin] = position
    return copies


def _states_rank(path: Path) -> bool:
    from stepscope.importers.kineto import read_text

    return any(_RANK_KEY in piece for piece in read_text(path))


def _find_origin(path: Path) -> str | None:
    """Return the worker or rank that the name of a file or of its directory states."""
    parsed = schema.parse_trace_name(path.name)
    if parsed is not None:
        return f"{parsed.worker}.{parsed.written_ns}"
    ranks = (schema.rank_in_name(part) for part in reversed(path.parts[-3:]))
    return next((str(rank) for rank in ranks if rank is not None), None)


def _measure_text(path: Path) -> int:
    """Return the length of a text modulo 2^32, as gzip notes it for its last member."""
    with path.open("rb") as file:
        if file.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
            return path.stat().st_size % 2**32
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(4), "little")


def _digest_text(path: Path) -> bytes:
    from stepscope.importers.kineto import read_text

    digest = hashlib.blake2b()
    for piece in read_text(path):
        digest.update(piece)
    return digest.digest()


def _stream_errors() -> tuple[type[Exception], ...]:
    """Return the errors of files that cannot be read or decompressed."""
    errors: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error, ImportError)
    if "lzma" in sys.modules:  # it may be missing, and takes time
        import lzma

        errors += (lzma.LZMAError,)
    return errors


@contextmanager
def _refusing(sentence: str) -> Iterator[None]:
    """Refuse an archive that is damaged, or compressed in an unknown way."""
    import tarfile
    import zipfile

    damage: tuple[type[Exception], ...] = (
        tarfile.TarError, zipfile.BadZipFile, RuntimeError, ValueError, OverflowError, struct.error
    )  # fmt: skip
    try:
        yield
    except (*damage, *_stream_errors()) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk is full, or the file cannot be read
        if isinstance(error, NotImplementedError):  # whole, in a way that Python cannot unpack
            sentence = sentence.replace(_COPY_AGAIN, "Unpack it, and import the files in it")
        raise _RefusedError(sentence.format(str(error).rstrip("."))) from error


def _is_tar_header(head: bytes) -> bool:
    """Return True for the first block of a tar archive, whose bytes have the sum that it states."""
    if len(head) < _TAR_HEADER_BYTES:
        return False
    try:
        checksum = int(head[_CHECKSUM].strip(b" \0"), 8)
    except ValueError:
        return False
    return checksum == sum(head) - sum(head[_CHECKSUM]) + 8 * ord(" ")


def _is_hidden(name: str) -> bool:
    """Return True for members that no directory of traces would be searched for."""
    return any(
        (part.startswith(".") and part not in {".", ".."}) or part == "__MACOSX"
        for part in PurePosixPath(name).parts
    )


def _refuse_member(document: Document, name: str, reason: str) -> Refused:
    shown = f"{document.name}/{name}"
    return Refused(Path(shown), f"{shown} {reason}; it was not imported.")
