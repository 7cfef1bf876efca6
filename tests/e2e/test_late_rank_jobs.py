"""A rank of a real job that loads its batches more slowly than the other."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.support.under_stepscope import TORCHRUN, run_under

SCRIPT = Path(__file__).parent / "distributed" / "slow_loading.py"


def test_a_rank_that_loads_slowly_is_named(tmp_path: Path) -> None:
    job = run_under(tmp_path / "run", *TORCHRUN, str(SCRIPT), "slow")
    assert job.code == 0, job.stderr
    payload = job.payload("show", "ranks")
    late, peer = payload["ranks"]
    assert payload["sentence"].startswith("Rank 1 is late in ")
    assert payload["sentence"].endswith(": slow data loading.")
    assert (late["rank"], late["persistence"]) == ("rank 1", "persistent")
    assert late["lateness_ns"] >= 6e6, "half of the 12 ms that its batches take longer"
    assert peer["persistence"] is None
