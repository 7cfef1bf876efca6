"""Values that a cache keeps."""

from __future__ import annotations

from stepscope.run.sized_cache import SizedCache


def test_the_least_recently_used_values_are_made_again() -> None:
    calls: list[str] = []
    cache = SizedCache[str](5)

    def get(key: str) -> str:
        return cache.get(key, lambda: calls.append(key) or 2 * key)

    assert [get(key) for key in "abacab"] == ["aa", "bb", "aa", "cc", "aa", "bb"]
    assert calls == ["a", "b", "c", "b"]
    assert (get("d" * 9), get("d" * 9)) == (18 * "d", 18 * "d")  # one value is always kept
    assert calls[4:] == ["d" * 9]
