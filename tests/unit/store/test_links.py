"""Runs with symbolic links, which are followed only if their reader allows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.errors import UsageError
from stepscope.store import FOLLOW_LINKS_VARIABLE, RunWriter, open_run, revision_of
from tests.unit.store.conftest import Columns


@pytest.fixture
def linked_run(run: Path, tmp_path: Path, spans: Callable[..., Columns]) -> Path:
    """A run whose files are links into a cache, as DVC leaves them."""
    with RunWriter(run, "n0") as writer:
        writer.append("spans", spans([0, 1]))
    cache = tmp_path / "cache"
    cache.mkdir()
    for number, path in enumerate(sorted(run.rglob("*"))):
        if path.is_file():
            target = path.rename(cache / f"{number}{path.suffix}")
            path.symlink_to(target)
    return run


def test_links_to_files_are_followed_on_request(
    linked_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the links, the run would be one that recorded nothing."""
    manifest = linked_run / "run.json"
    refusal = r"so it is not followed in a run. If you trust the run, set STEPSCOPE_FOLLOW_LINKS=1"
    with pytest.raises(UsageError, match=refusal):
        open_run(linked_run)
    content = manifest.read_bytes()
    manifest.unlink()
    manifest.write_bytes(content)
    with pytest.raises(UsageError, match=refusal):
        open_run(linked_run).table("spans")
    with pytest.raises(UsageError, match=refusal):
        revision_of(linked_run)
    monkeypatch.setenv(FOLLOW_LINKS_VARIABLE, "1")
    assert len(open_run(linked_run).table("spans")["depth"]) == 2
    assert revision_of(linked_run)


def test_links_to_directories_and_to_nothing_are_never_followed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLLOW_LINKS_VARIABLE, "1")
    link = run / "nodes" / "again"
    link.parent.mkdir()
    for target in (run / "nodes", tmp_path / "nothing", Path("/dev/zero"), link):
        link.symlink_to(target)
        with pytest.raises(UsageError, match="is a symbolic link that leads to no file"):
            open_run(run).statuses()
        link.unlink()
