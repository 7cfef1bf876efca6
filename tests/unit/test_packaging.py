"""Metadata of the package: version, interpreters, dependencies, notices of third parties."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import stepscope

ROOT = Path(__file__).parents[2]
WEB = ROOT / "src" / "stepscope" / "assets" / "web"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOTICE = (ROOT / "NOTICE").read_text()
MAX_BASE_DEPENDENCIES = 11
"""Another one needs a reason: every user installs it."""


def test_a_release_has_one_version() -> None:
    """The tag of a release is `v` and the version that the code and the changelog state."""
    version = stepscope.__version__
    heading = re.search(r"^## (\S+)( \(unreleased\))?$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert heading is not None
    assert heading[1] == version
    command = ["git", "-C", str(ROOT), "tag", "--points-at", "HEAD", "v*"]
    tags = subprocess.run(command, check=False, capture_output=True, text=True).stdout.split()
    assert tags in ([], [f"v{version}"])
    assert not tags or heading[2] is None, "a released version is not unreleased"


def test_interpreters() -> None:
    stated = [
        name.rpartition(" ")[2]
        for name in PROJECT["classifiers"]
        if name.startswith("Programming Language :: Python :: 3.")
    ]
    assert stated == [f"3.{minor}" for minor in range(11, 15)]
    assert PROJECT["requires-python"] == f">={stated[0]}"


def test_the_base_installation_stays_small() -> None:
    assert len(PROJECT["dependencies"]) <= MAX_BASE_DEPENDENCIES


def test_notices_name_every_bundled_library() -> None:
    licenses = [WEB / "app" / "licenses.md", WEB / "report.licenses.md"]
    bundled = {
        name for file in licenses for name in re.findall(r"^## (\S+) - ", file.read_text(), re.M)
    }
    (names,) = (line for line in NOTICE.splitlines() if line.startswith("@preact/signals,"))
    assert set(names.split(", ")) == bundled
    modules = ROOT / "web" / "node_modules"
    for name in bundled:
        if (modules / name / "NOTICE").exists():
            assert (modules / name / "NOTICE").read_text().strip() in NOTICE
