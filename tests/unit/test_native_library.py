"""Libraries in C: built for other machines as well."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

import stepscope
from stepscope.native_library import NativeLibrary, describe_libraries, find_libraries

LIBRARIES = find_libraries(Path(stepscope.__file__).parent)
CROSS_COMPILER = "aarch64-linux-gnu-gcc"
ELF_MACHINE_OFFSET = 18
AARCH64 = 183


@pytest.mark.skipif(shutil.which(CROSS_COMPILER) is None, reason=f"there is no {CROSS_COMPILER}")
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.path.stem)
def test_each_library_compiles_for_arm(
    library: NativeLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", CROSS_COMPILER)
    path = tmp_path / "arm.so"
    assert library.build(path) is None
    assert struct.unpack_from("<H", path.read_bytes(), ELF_MACHINE_OFFSET) == (AARCH64,)


def test_libraries_of_another_source_are_named(tmp_path: Path) -> None:
    installed = Path(stepscope.__file__).parent
    assert describe_libraries(installed) == (True, "the libraries in C")
    package = tmp_path / "package"
    shutil.copytree(
        installed,
        package,
        ignore=lambda _, names: [
            name for name in names if Path(name).suffix not in {"", ".c", ".h", ".so"}
        ],
    )
    (source,) = package.rglob("nesting.c")
    source.write_bytes(source.read_bytes() + b"\n")
    next(package.rglob("_paths.so")).unlink()
    assert describe_libraries(package) == (
        False,
        "Python, slower: not built from this source: paths, nesting",
    )
