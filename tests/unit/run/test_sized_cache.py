"""Values that a cache keeps."""

from __future__ import annotations

from stepscope.run.sized_cache import SizedCache


def test_the_least_recently_used_values_are_made_again() -> None:
    made: list[str] = []
    cache = SizedCache[str](5)

    def get(key: str) -> str:
        return cache.get(key, lambda: made.append(key) or 2 * key)

    assert [get(key) for key in "abacab"] == ["aa", "bb", "aa", "cc", "aa", "bb"]
    assert made == ["a", "b", "c", "b"]
    assert (get("d" * 9), get("d" * 9)) == (18 * "d", 18 * "d")  # one value is always kept
    assert made[4:] == ["d" * 9]
