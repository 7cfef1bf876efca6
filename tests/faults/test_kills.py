"""A few kills of each kind; `make soak` repeats them by the thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kills import KINDS, run_round

SOAK_ONLY = {"monitor in windows", "recover in windows", "parallel recover in windows"}
"""Kinds that differ from others by the import of PyTorch in each run, which takes long."""


@pytest.mark.parametrize("name", [name for name in KINDS if name not in SOAK_ONLY])
def test_kills_lose_nothing_and_count_nothing_twice(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    counts = run_round(kind, tmp_path, name, kind.ci_kills)
    assert counts.kills > 0
    assert counts.steps > 0
    assert counts.is_clean, counts
