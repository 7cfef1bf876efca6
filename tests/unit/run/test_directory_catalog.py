"""Runs below a directory: a name leads to a directory below the root, or nowhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stepscope.errors import NotARunError, UsageError
from stepscope.run.catalog import resolve_root
from stepscope.run.catalog.base import RunRemovedError
from stepscope.run.catalog.directory import DirectoryCatalog
from tests.support.permissions import public_directory, restricted  # noqa: F401 - a fixture
from tests.support.served_runs import draw_job

OUTSIDE = "outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Directory to serve, with one run, next to a private run."""
    root = tmp_path / "served"
    draw_job(root / "a" / "run", 3)
    draw_job(tmp_path / OUTSIDE, 3)
    return root


def ids(root: Path) -> set[str]:
    return {run.id for run in DirectoryCatalog(root.resolve()).list_runs().runs}


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "a/../../outside",
        "a/run/../../../outside",
        "/etc",
        "..",
        "a//run",
        "a/./run",
        "./a/run",
        "a/run/",
        "",
        "a\0run",
        "a/run\0",
        "%2e%2e/outside",
        "..%2foutside",
        "..\\outside",
        "a" * 100_000,
        "a/run/run.json",
        "no/such",
        "\ud800",
    ],
)
def test_names_that_lead_nowhere(root: Path, name: str) -> None:
    with pytest.raises(NotARunError) as caught:
        DirectoryCatalog(root.resolve()).locate(name)
    assert not isinstance(caught.value, RunRemovedError)
    assert len(str(caught.value)) < 1000


def test_links_that_leave_the_directory(root: Path) -> None:
    (root / "link").symlink_to(root.parent / OUTSIDE)
    (root / "up").symlink_to(root.parent)
    (root / "a" / "inside").symlink_to(root / "a" / "run")
    (root / "a" / "circle").symlink_to(root)
    (root / "loop").symlink_to(root / "loop")
    assert ids(root) == {"a/run"}
    catalog = DirectoryCatalog(root.resolve())
    for name in ("link", "up/outside", "loop"):
        with pytest.raises(NotARunError):
            catalog.locate(name)
    assert catalog.locate("a/inside") == str(root / "a" / "run")


def test_a_directory_whose_manifest_is_a_link_is_no_run_unless_links_are_followed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "b").mkdir()
    (root / "b" / "run.json").symlink_to(root.parent / OUTSIDE / "run.json")
    assert ids(root) == {"a/run"}
    with pytest.raises(NotARunError):
        DirectoryCatalog(root.resolve()).locate("b")
    monkeypatch.setenv("STEPSCOPE_FOLLOW_LINKS", "1")
    assert ids(root) == {"a/run", "b"}


def test_directories_below_a_run_and_hidden_ones_are_not_runs(root: Path) -> None:
    shutil.copytree(root / "a" / "run", root / "a" / "run" / "raw" / "inner")
    shutil.copytree(root / "a" / "run", root / ".trash" / "run")
    assert ids(root) == {"a/run"}


def test_directories_that_cannot_be_served(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a directory"):
        resolve_root(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="is not a bucket URL"):
        resolve_root("s3://")


def test_a_directory_that_cannot_be_read_is_not_empty(public_directory: Path) -> None:  # noqa: F811
    served = public_directory / "served"
    draw_job(served / "mine", 3).chmod(0o755)
    draw_job(served / "other" / "run", 3).chmod(0o755)
    with restricted([served / "other"], 0):
        listing = DirectoryCatalog(served).list_runs()
    assert [run.id for run in listing.runs] == ["mine"]
    assert listing.notes == [
        "No permission to read 1 directory, e.g. other; runs in there are not listed."
    ]
    for mode in (0, 0o444):  # names can be listed, but nothing in it can be opened
        with (
            restricted([served], mode),
            pytest.raises(UsageError, match="served cannot be read: Permission denied"),
        ):
            resolve_root(str(served))
