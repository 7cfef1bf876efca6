"""The object stores of the package under `StoreContract`, and properties beyond it."""

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
from tests.support.azure_storage import AzureContainer
from tests.support.buckets import TestBucket
from tests.support.google_storage import google_storage

pytest.register_assert_rewrite("stepscope.testing.store_contract")
from stepscope.testing.store_contract import StoreContract  # noqa: E402


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return LocalStore(tmp_path / "created on demand" / "run")

    def put_hidden(self, store: ObjectStore, key: str) -> None:
        assert isinstance(store, LocalStore)
        (store.root / key).parent.mkdir(exist_ok=True)
        (store.root / key).write_bytes(b"x")

    def test_what_is_published_together_is_made_durable_together(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Files, and the names of all that leads to them."""
        durable = set()
        monkeypatch.setattr(os, "fsync", lambda file: durable.add(os.fstat(file).st_ino))
        paths = [store.root / f"tables/x/{number}.parquet" for number in range(3)]
        with store.deferring_sync():
            for path in paths:
                key = str(path.relative_to(store.root))
                assert store.put_file(key, store.staging_path(key))
            assert durable == set()
            store.sync()
            directories = [
                path for path in paths[0].parents if store.root.parents[1] in path.parents
            ]
            assert durable >= {path.stat().st_ino for path in [*paths, *directories]}


class TestLocalStoreWithoutHardLinks(TestLocalStore):
    test_one_of_several_writers_wins = None  # not possible without hard links

    @pytest.fixture(autouse=True)
    def _no_links(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(source: object, target: object) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)


class RemoteStoreContract(StoreContract):
    def put_hidden(self, store: ObjectStore, key: str) -> None:
        assert isinstance(store, RemoteStore)
        Bucket(store.location).put(key, b"x")
        store.refresh()


class TestRemoteStore(RemoteStoreContract):
    @pytest.fixture
    def store(self, bucket: TestBucket) -> ObjectStore:
        return open_store(bucket.url("some/run"))


class TestRemoteStoreOfAWholeBucket(RemoteStoreContract):
    @pytest.fixture
    def store(self, bucket: TestBucket) -> ObjectStore:
        return open_store(bucket.url())


class TestGoogleStore(RemoteStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
        with google_storage() as environment:
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
            yield open_store("gs://bucket/some/run")


class TestAzureStore(RemoteStoreContract):
    @pytest.fixture
    def store(self, container: AzureContainer) -> ObjectStore:
        return open_store(container.url("some/run"))


class TestRemoteStoreWithManyObjects(RemoteStoreContract):
    """A store that lists only the requested prefixes."""

    @pytest.fixture
    def store(self, bucket: TestBucket, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
        monkeypatch.setattr(remote, "MAX_FULL_LISTING", 3)
        return open_store(bucket.url("a b/run=1"))


def test_a_store_ends_at_its_prefix(bucket: TestBucket) -> None:
    for key in ("run/a", "run2/a", "run/b/c", "running", "run"):
        bucket.put(key)
    assert list(open_store(bucket.url("run/")).list("")) == ["a", "b/c"]


@pytest.mark.extended("writes a thousand objects")
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
    with pytest.raises(UsageError, match="pass the URL of a bucket as a string"):
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
