"""Contract of an object store: a test suite to inherit. It needs pytest.

pytest.register_assert_rewrite("stepscope.testing.store_contract")
from stepscope.testing.store_contract import StoreContract

class TestMyStore(StoreContract):
    @pytest.fixture
    def store(self):
        return MyStore()

    def put_hidden(self, store, key):
        store.write(key, b"x")
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from stepscope.store import ObjectStore

__all__ = ["StoreContract"]


class StoreContract:
    """Requirements on an implementation of `ObjectStore`."""

    @pytest.fixture
    def store(self) -> ObjectStore:
        """Return an empty store."""
        raise NotImplementedError("override the fixture with an empty store")

    def put_hidden(self, store: ObjectStore, key: str) -> None:
        """Create an object with a hidden name, which `ObjectStore.put` rejects."""
        raise NotImplementedError("override the method")

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
        assert store.put_file("tables/x/2.parquet", staged)
        assert store.get("tables/x/2.parquet") == b"new"

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
        assert [path.exists() for path in staged] == [not is_moved for is_moved in moved]

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
        self.put_hidden(store, "a/.c")
        self.put_hidden(store, ".d/e")
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
