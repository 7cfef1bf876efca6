"""Libraries in C: built for other machines as well."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

import stepscope
from stepscope.native_library import NativeLibrary, find_libraries

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
