"""A few kills of each kind; `make soak` repeats them by the thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kills import KINDS, run_round


@pytest.mark.parametrize("name", KINDS)
def test_kills_lose_nothing_and_count_nothing_twice(name: str, tmp_path: Path) -> None:
    counts = run_round(KINDS[name], tmp_path, name)
    assert counts.kills > 0
    assert counts.steps > 0
    assert counts.is_clean, counts
