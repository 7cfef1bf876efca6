"""What every place that can hold a run must do. Inherit `StoreContract` and give it a store."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from stepscope.errors import UsageError
from stepscope.store import LocalStore, ObjectStore, open_store


class StoreContract:
    """The promises of `ObjectStore`."""

    @pytest.fixture
    def store(self) -> ObjectStore:
        raise NotImplementedError("a store that holds nothing yet")

    def test_nothing_is_there_at_first(self, store: ObjectStore) -> None:
        assert list(store.list("")) == []
        assert list(store.list("tables/spans/")) == []
        with pytest.raises(FileNotFoundError):
            store.get("run.json")

    def test_put_then_get(self, store: ObjectStore) -> None:
        store.put("nodes/a/status.json", b"one")
        assert store.get("nodes/a/status.json") == b"one"

    def test_put_replaces_the_whole_object(self, store: ObjectStore) -> None:
        store.put("status.json", b"a long first version")
        store.put("status.json", b"short")
        assert store.get("status.json") == b"short"

    def test_put_if_absent_keeps_the_first(self, store: ObjectStore) -> None:
        assert store.put_if_absent("run.json", b"first")
        assert not store.put_if_absent("run.json", b"second")
        assert store.get("run.json") == b"first"

    def test_list_is_sorted_and_ends_at_the_prefix(self, store: ObjectStore) -> None:
        for key in ("t/b/2", "t/b/1", "t/bb/1", "t/a", "u"):
            store.put(key, b"")
        assert list(store.list("t/b/")) == ["t/b/1", "t/b/2"]
        assert list(store.list("t/")) == ["t/a", "t/b/1", "t/b/2", "t/bb/1"]
        assert list(store.list("")) == ["t/a", "t/b/1", "t/b/2", "t/bb/1", "u"]

    def test_put_file_moves_a_staged_file(self, store: ObjectStore) -> None:
        staged = store.staging_path("tables/x/1.parquet")
        staged.write_bytes(b"rows")
        assert list(store.list("")) == []  # not before it is finished
        assert store.put_file("tables/x/1.parquet", staged)
        assert store.get("tables/x/1.parquet") == b"rows"
        assert not staged.exists()

    def test_put_file_never_replaces(self, store: ObjectStore) -> None:
        store.put("tables/x/1.parquet", b"old")
        staged = store.staging_path("tables/x/1.parquet")
        staged.write_bytes(b"new")
        assert not store.put_file("tables/x/1.parquet", staged)
        assert store.get("tables/x/1.parquet") == b"old"

    def test_staging_paths_differ(self, store: ObjectStore) -> None:
        assert store.staging_path("a/b") != store.staging_path("a/b")

    def test_delete_is_idempotent(self, store: ObjectStore) -> None:
        store.put("a/b", b"x")
        store.delete("a/b")
        store.delete("a/b")
        assert list(store.list("")) == []

    @pytest.mark.parametrize("name", ["q'u\"ote", "spa ce", "ünï·code", "a=b", "100%25", "x*?[y]"])
    def test_any_printable_name(self, store: ObjectStore, name: str) -> None:
        store.put(f"d/{name}/f", b"x")
        assert list(store.list("d/")) == [f"d/{name}/f"]
        assert store.get(f"d/{name}/f") == b"x"

    @pytest.mark.parametrize("key", ["", "/etc/passwd", "../out", "a/../b", "a//b", "a/.hidden"])
    def test_what_is_no_key(self, store: ObjectStore, key: str) -> None:
        with pytest.raises(ValueError, match="not a key"):
            store.put(key, b"x")

    def test_what_is_no_prefix(self, store: ObjectStore) -> None:
        with pytest.raises(ValueError, match="ends with '/'"):
            store.list("tables/sp")


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return LocalStore(tmp_path / "made on demand" / "run")


class TestLocalStoreWithoutHardLinks(TestLocalStore):
    @pytest.fixture(autouse=True)
    def _no_links(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(source: object, target: object) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)


def test_a_dead_writer_leaves_nothing_that_is_seen(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.staging_path("tables/spans/n/00000000-00000000.parquet").write_bytes(b"half a seg")
    assert list(store.list("")) == []


def test_a_failed_put_leaves_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        LocalStore(tmp_path).put("status.json", b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_store_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = open_store("run")
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.put("a", b"x")
    assert (tmp_path / "run" / "a").read_bytes() == b"x"


@pytest.mark.parametrize("url", ["s3://bucket/run", "gs://bucket/run", "az://container/run"])
def test_object_stores_are_refused_in_words(url: str) -> None:
    with pytest.raises(UsageError, match="not supported yet"):
        open_store(url)
