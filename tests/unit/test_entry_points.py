"""Entry points of packages, however they are installed."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from stepscope.entry_points import entry_points

GROUP = "stepscope.tests"
CONTENT = f"[{GROUP}]\nname = module:value\n"


@pytest.mark.parametrize(
    ("path", "information"),
    [("site", "a-1.0.dist-info"), ("site", "a.egg-info"), ("a-1.0-py3.egg", "EGG-INFO")],
)
@pytest.mark.parametrize("is_zip", [False, True])
def test_entry_points_are_found(
    path: str, information: str, is_zip: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = tmp_path / path
    files = {"PKG-INFO": "Name: a\n", "METADATA": "Name: a\n", "entry_points.txt": CONTENT}
    if is_zip:
        with zipfile.ZipFile(location, "w") as archive:
            for name, content in files.items():
                archive.writestr(f"{information}/{name}", content)
    else:
        directory = location / information
        directory.mkdir(parents=True)
        for name, content in files.items():
            (directory / name).write_text(content)
    assert list(entry_points(GROUP)) == []
    monkeypatch.setattr(sys, "path", [str(location), *sys.path])
    assert [point.value for point in entry_points(GROUP)] == ["module:value"]
    assert list(entry_points(f"{GROUP}.others")) == []


def test_the_metadata_of_packages_is_not_imported_in_vain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    library.write_bytes(b"")
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), str(library), str(tmp_path / "missing")])
    monkeypatch.setitem(sys.modules, "importlib.metadata", None)  # type: ignore[arg-type]
    assert list(entry_points(GROUP)) == []
