"""Libraries in C that make a few loops fast. Without a compiler, Python takes their place.

A directory of the package with C files is one library, `<directory>/<directory name>.so`. It calls
nothing of Python, or only its stable ABI (`spool/_hot`), so that one build serves every version.
One that calls nothing of Python exports

    const char *stepscope_source_digest(void) { return SOURCE_DIGEST; }

`python native_library.py` builds all of them, as the build hook of the package (`hatch_build.py`)
does. Standard library only: it runs where the package is not installed yet.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# `-ftree-vectorize` without -O3, which unrolls loops over lanes before it vectorizes them.
_FLAGS = ("-std=gnu11", "-O2", "-ftree-vectorize", "-Wall", "-Wextra", "-Werror", "-fPIC")
_COMPILERS = ("cc", "gcc", "clang")
DIGEST_PRIME = (1 << 30) - 35
"""The digest of a source is its bytes as one number, modulo this: a job that checks it needs no
module for that (`spool/_hot`)."""


def find_compiler() -> str | None:
    """Return the C compiler: the variable CC, else the first one on the path; None without one."""
    names = [os.environ["CC"]] if os.environ.get("CC") else _COMPILERS
    return next(filter(None, map(shutil.which, names)), None)


class NativeLibrary:
    """The library of a directory.

    Args:
        directory: its C files and headers.
    """

    def __init__(self, directory: Path) -> None:
        self.sources = sorted(directory.glob("*.c"))
        self._headers = sorted(directory.glob("*.h"))
        self.path = directory / f"{directory.name}.so"

    def source_digest(self) -> str:
        """Return a digest of the source, which the library holds, too."""
        content = b"".join(path.read_bytes() for path in (*self.sources, *self._headers))
        return f"{int.from_bytes(content, 'little') % DIGEST_PRIME:016x}"

    def open(self, path: Path | None = None) -> ctypes.CDLL | None:
        """Load the library.

        Args:
            path: another build of it.

        Returns:
            None where it was not built, or for another machine or from another source.
        """
        try:
            library: Any = ctypes.CDLL(str(path or self.path))
            library.stepscope_source_digest.restype = ctypes.c_char_p
            digest = library.stepscope_source_digest().decode()
            return library if digest == self.source_digest() else None
        except (OSError, AttributeError):
            return None

    def build(self, target: Path | None = None, flags: Sequence[str] = ()) -> str | None:
        """Compile the library.

        Without a compiler, one of an earlier build is removed: it may not fit the source.

        Args:
            target: another place for it.
            flags: further flags of the compiler.

        Returns:
            Why there is no library; None when it was built.
        """
        target = target or self.path
        compiler = find_compiler()
        target.unlink(missing_ok=True)
        if compiler is None:
            return "there is no C compiler"
        # Never a half-written library, which a process that is running might load.
        staged = target.with_name(f"{target.name}.{os.getpid()}")
        digest = f'-DSOURCE_DIGEST="{self.source_digest()}"'
        options = [*_FLAGS, "-shared", *flags, digest, "-o", str(staged)]
        command = [compiler, *options, *map(str, self.sources)]
        try:
            result = subprocess.run(command, check=False, capture_output=True, text=True)
            if result.returncode:
                return f"{compiler} failed: {result.stderr.strip()}"
            staged.replace(target)
        except OSError as error:
            return f"{compiler} cannot be run: {error}"
        finally:
            staged.unlink(missing_ok=True)
        return None


def address_of(values: Any) -> int:
    """Return the address of a contiguous array of NumPy, as a library takes it."""
    address: int = values.ctypes.data
    return address


def find_libraries(package: Path) -> list[NativeLibrary]:
    """Return the libraries of a package."""
    return [
        NativeLibrary(directory) for directory in sorted({p.parent for p in package.rglob("*.c")})
    ]


def describe_libraries(package: Path) -> tuple[bool, str]:
    """Tell whether the libraries that call nothing of Python can be loaded, and what computes: they
    may not be built, or from another source."""
    libraries = [
        library
        for library in find_libraries(package)
        if any(b"stepscope_source_digest" in source.read_bytes() for source in library.sources)
    ]
    missing = [lib.path.stem.strip("_") for lib in libraries if lib.open() is None]
    if not missing:
        return True, "the libraries in C"
    return False, f"Python, slower: not built from this source: {', '.join(missing)}"


def build_libraries(package: Path) -> str | None:
    """Compile the libraries of a package.

    Returns:
        Why one of them is missing; None when all were built.
    """
    problems = [library.build() for library in find_libraries(package)]
    return next(filter(None, problems), None)


if __name__ == "__main__":
    problem = build_libraries(Path(__file__).parent)
    if problem is not None:
        sys.exit(f"The libraries in C were not built, because {problem}.")
