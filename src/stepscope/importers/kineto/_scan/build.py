"""Compiles the scanner: `python build.py`, and the build hook of the package (`hatch_build.py`).

Standard library only: it runs where the package is not installed yet.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("scan.c")
HEADERS = tuple(SOURCE.with_name(name) for name in ("texts.h", "values.h"))
LIBRARY = Path(__file__).with_name("_scan.so")
_FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")
_COMPILERS = ("cc", "gcc", "clang")


def find_compiler() -> str | None:
    """Return the C compiler: the variable CC, else the first one on the path; None without one."""
    names = [os.environ["CC"]] if os.environ.get("CC") else _COMPILERS
    return next(filter(None, map(shutil.which, names)), None)


def source_digest() -> str:
    """Return a digest of the source, which the library holds, too."""
    content = b"".join(path.read_bytes() for path in (SOURCE, *HEADERS))
    return hashlib.sha256(content).hexdigest()[:16]


def build(target: Path = LIBRARY, flags: Sequence[str] = ()) -> str | None:
    """Compile the scanner.

    Without a compiler, a library of an earlier build is removed: it may not fit the source.

    Args:
        target: the library.
        flags: further flags of the compiler.

    Returns:
        Why there is no library; None when it was built.
    """
    compiler = find_compiler()
    target.unlink(missing_ok=True)
    if compiler is None:
        return "there is no C compiler"
    # Never a half-written library, which a process that is running might load.
    staged = target.with_name(f"{target.name}.{os.getpid()}")
    command = [
        compiler,
        *_FLAGS,
        *flags,
        f'-DSOURCE_DIGEST="{source_digest()}"',
        str(SOURCE),
        "-o",
        str(staged),
    ]
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


if __name__ == "__main__":
    problem = build()
    if problem is not None:
        sys.exit(f"The scanner of traces was not built, because {problem}.")
