"""Archives and compressed files, made of other files."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Mapping

Members = Mapping[str, bytes]
"""Content by path."""


def tar(members: Members, form: str = "") -> bytes:
    """Return a tar archive."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=f"w:{form}") as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return target.getvalue()


def special_member(name: str, kind: bytes, target: str = "") -> bytes:
    """Return a tar archive with a member that is no file."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        header = tarfile.TarInfo(name)
        header.type, header.linkname = kind, target
        archive.addfile(header)
    return file.getvalue()


def zip_archive(members: Members) -> bytes:
    """Return a zip archive."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target.getvalue()


ARCHIVES: Mapping[str, Callable[[Members], bytes]] = {
    "tar": tar,
    "tar.gz": lambda members: tar(members, "gz"),
    "tar.bz2": lambda members: tar(members, "bz2"),
    "tar.xz": lambda members: tar(members, "xz"),
    "members of gzip": lambda members: _in_members(tar(members)),
    "zip": zip_archive,
    "one tar after the other": lambda members: b"".join(
        tar({name: content}) for name, content in members.items()
    ),
    "tar in a zip": lambda members: zip_archive({"inner.tar": tar(members)}),
    "zip in a tar": lambda members: tar({"a/inner.zip": zip_archive(members)}),
}
COMPRESSIONS: Mapping[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "gz in gz": lambda content: gzip.compress(gzip.compress(content)),
}


def _in_members(content: bytes) -> bytes:
    half = len(content) // 2
    return gzip.compress(content[:half]) + gzip.compress(content[half:])
