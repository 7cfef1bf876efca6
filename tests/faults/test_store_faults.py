"""Cuts of recordings into an object store; `benchmarks/store_cuts.py` makes more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.buckets import TestBucket
from tests.support.store_cuts import cut_run
from tests.support.store_outages import outages

pytestmark = pytest.mark.extended("minutes of cuts; tests/unit/store has faults of object stores")

CUTS = 6


@pytest.mark.parametrize("seed", ["1", "2"])
def test_cuts_neither_lose_nor_repeat_a_step(bucket: TestBucket, tmp_path: Path, seed: str) -> None:
    with outages(bucket.server.endpoint, int(seed)) as relay:
        variables = {"AWS_ENDPOINT_URL": relay.endpoint}
        counts = cut_run(tmp_path, bucket.url("a"), relay, variables, seed=seed, cuts=CUTS)
    assert counts.is_clean, counts
    assert counts.cuts == CUTS
    assert counts.failed_requests
    assert counts.steps > 100
