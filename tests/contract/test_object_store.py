"""Contract of an object store. Inherit `StoreContract` and provide a store."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stepscope.errors import UsageError
from stepscope.store import Bucket, LocalStore, ObjectStore, open_store, remote
from stepscope.store.remote import RemoteStore
from tests.support.buckets import TestBucket
from tests.support.google_storage import google_storage


class StoreContract:
    """Requirements on an implementation of `ObjectStore`."""

    @pytest.fixture
    def store(self) -> ObjectStore:
        raise NotImplementedError("provide an empty store")

    def test_a_new_store_is_empty(self, store: ObjectStore) -> None:
        assert list(store.list("")) == []
        assert list(store.list("tables/spans/")) == []
        with pytest.raises(FileNotFoundError):
            store.get("run.json")

    def test_put_then_get(self, store: ObjectStore) -> None:
        store.put("nodes/a/status.json", b"one")
        assert store.get("nodes/a/status.json") == b"one"

    def test_get_several(self, store: ObjectStore) -> None:
        for number in range(40):
            store.put(f"processes/{number}.json", str(number).encode())
        keys = [f"processes/{number}.json" for number in range(39, -3, -1)]
        expected = [str(number).encode() for number in range(39, -1, -1)] + [None, None]
        assert store.get_all(keys) == expected
        assert store.get_all([]) == []

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
        assert list(store.list("")) == []  # not before it is published
        assert store.put_file("tables/x/1.parquet", staged)
        assert store.get("tables/x/1.parquet") == b"rows"
        assert not staged.exists()

    def test_put_file_never_replaces(self, store: ObjectStore) -> None:
        store.put("tables/x/1.parquet", b"old")
        staged = store.staging_path("tables/x/1.parquet")
        staged.write_bytes(b"new")
        assert not store.put_file("tables/x/1.parquet", staged)
        assert store.get("tables/x/1.parquet") == b"old"

    def test_one_of_several_writers_wins(self, store: ObjectStore) -> None:
        contents = [bytes([letter]) * 1000 for letter in range(8)]
        staged = [store.staging_path("tables/x/1.parquet") for _ in contents]
        for path, content in zip(staged, contents, strict=True):
            path.write_bytes(content)
        with ThreadPoolExecutor(len(staged)) as pool:
            moved = list(pool.map(lambda path: store.put_file("tables/x/1.parquet", path), staged))
            put = list(pool.map(lambda text: store.put_if_absent("run.json", text), contents))
        assert [moved.count(True), put.count(True)] == [1, 1]
        assert store.get("tables/x/1.parquet") == contents[moved.index(True)]
        assert store.get("run.json") == contents[put.index(True)]
        assert not any(path.exists() for path in staged)

    def test_an_object_as_a_file(self, store: ObjectStore) -> None:
        keys = [f"tables/x/{number}.parquet" for number in range(20)]
        for key in keys:
            store.put(key, key.encode())
        assert [path.read_bytes().decode() for path in store.local_paths(keys)] == keys
        assert store.local_path(keys[7]).read_bytes() == keys[7].encode()
        assert store.has_local_file(keys[7])
        store.local_path(keys[7]).unlink()
        assert not store.has_local_file(keys[7])

    def test_writes_are_listed_immediately(self, store: ObjectStore) -> None:
        for number in range(5):
            store.put(f"a/{number}", b"x")
            assert store.put_if_absent(f"b/{number}", b"x")
            assert len(list(store.list(""))) == 2 * number + 2
        store.delete("a/0")
        assert "a/0" not in store.list("a/")

    def test_hidden_objects_are_not_listed(self, store: ObjectStore) -> None:
        store.put("a/b", b"x")
        hide(store, "a/.c")
        hide(store, ".d/e")
        assert list(store.list("")) == ["a/b"]

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
    def test_invalid_keys(self, store: ObjectStore, key: str) -> None:
        with pytest.raises(ValueError, match="not a key"):
            store.put(key, b"x")

    def test_invalid_prefixes(self, store: ObjectStore) -> None:
        with pytest.raises(ValueError, match="ends with '/'"):
            store.list("tables/sp")


def hide(store: ObjectStore, key: str) -> None:
    """Create an object that no store writes."""
    if isinstance(store, LocalStore):
        (store.root / key).parent.mkdir(exist_ok=True)
        (store.root / key).write_bytes(b"x")
    else:
        assert isinstance(store, RemoteStore)
        Bucket(store.location).put(key, b"x")
        store.refresh()


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return LocalStore(tmp_path / "created on demand" / "run")


class TestLocalStoreWithoutHardLinks(TestLocalStore):
    test_one_of_several_writers_wins = None  # not possible without hard links

    @pytest.fixture(autouse=True)
    def _no_links(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(source: object, target: object) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)


class TestRemoteStore(StoreContract):
    @pytest.fixture
    def store(self, bucket: TestBucket) -> ObjectStore:
        return open_store(bucket.url("some/run"))


class TestRemoteStoreOfAWholeBucket(StoreContract):
    @pytest.fixture
    def store(self, bucket: TestBucket) -> ObjectStore:
        return open_store(bucket.url())


class TestGoogleStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
        with google_storage() as environment:
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
            yield open_store("gs://bucket/some/run")


class TestRemoteStoreWithManyObjects(StoreContract):
    """A store that lists only the requested prefixes."""

    @pytest.fixture
    def store(self, bucket: TestBucket, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
        monkeypatch.setattr(remote, "MAX_FULL_LISTING", 3)
        return open_store(bucket.url("a b/run=1"))


def test_a_store_ends_at_its_prefix(bucket: TestBucket) -> None:
    for key in ("run/a", "run2/a", "run/b/c", "running", "run"):
        bucket.put(key)
    assert list(open_store(bucket.url("run/")).list("")) == ["a", "b/c"]


def test_more_objects_than_one_response_holds(bucket: TestBucket) -> None:
    store = open_store(bucket.url("run"))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: bucket.put(f"run/a/{number:04}"), range(1100)))
    with bucket.server.counted() as requests:
        assert list(store.list("a/")) == [f"a/{number:04}" for number in range(1100)]
    assert [request.is_listing for request in requests] == [True, True]


@pytest.mark.parametrize(
    "url",
    [
        "s3://", "s3:///run", "s3://buc ket/run", "gs://b/../x", "az://c/a//b", "s3://-b/x",
        "s3://user:secret@bucket/run", "s3://b/\x00",
    ],
)  # fmt: skip
def test_invalid_bucket_urls(url: str) -> None:
    with pytest.raises(UsageError, match="is not a bucket URL"):
        open_store(url)


def test_a_path_is_not_a_url() -> None:
    with pytest.raises(UsageError, match="as a string"):
        open_store(Path("s3://bucket/run"))


def test_the_library_is_not_installed(bucket: TestBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(UsageError) as raised:
        open_store(bucket.url())
    assert str(raised.value) == "obstore is not installed: pip install 'stepscope[remote]'."


def test_files_of_a_killed_writer_are_hidden(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.staging_path("tables/spans/n/00000000-00000000.parquet").write_bytes(b"half a seg")
    assert list(store.list("")) == []


def test_a_failed_put_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        LocalStore(tmp_path).put("status.json", b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_store_survives_a_chdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = open_store("run")
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.put("a", b"x")
    assert (tmp_path / "run" / "a").read_bytes() == b"x"
