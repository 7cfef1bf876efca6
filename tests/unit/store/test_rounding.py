"""Rounding keeps sums, counts and order, and a run within its size."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.store import RunWriter, create_run, open_run
from stepscope.store.layout import Segment
from stepscope.store.rounding import (
    MIN_ROUNDED_COUNT,
    find_grids,
    round_samples,
    round_spans,
    round_with_carry,
)
from tests.support.segmented_runs import segment_tables
from tests.support.store_rows import INFO, spans

Rows = dict[str, Any]
MS = 1_000_000


def draw_steps(count: int, thread: int, chance: np.random.Generator) -> Rows:
    """Draw steps of 5 ms of a thread: four spans, one of which is inside another."""
    parts = chance.gamma(9, MS / 9, (count, 6)).astype(np.int64)
    edges = np.cumsum(parts.ravel()).reshape(count, 6)
    start = np.stack([edges[:, 0], edges[:, 1], edges[:, 2], edges[:, 4]], axis=1).ravel()
    end = np.stack([edges[:, 1], edges[:, 4], edges[:, 3], edges[:, 5]], axis=1).ravel()
    return {
        "start": start,
        "end": end,
        "depth": np.tile([0, 0, 1, 0], count),
        "kind": np.tile(np.arange(4, dtype=np.uint64) * 7919 + 1, count),
        "thread": np.full(4 * count, thread, dtype=np.uint64),
    }


@pytest.fixture
def steps() -> Rows:
    chance = np.random.default_rng(5)
    threads = [draw_steps(400, thread, chance) for thread in (3, 4)]
    rows = {name: np.concatenate([t[name] for t in threads]) for name in threads[0]}
    order = chance.permutation(len(rows["start"]))
    return {name: column[order] for name, column in rows.items()}


def round_steps(steps: Rows, share: float) -> tuple[Any, Any, Any]:
    grid = find_grids(steps["start"], kind=steps["kind"], thread=steps["thread"], share=share)
    return *round_spans(**steps, grid_ns=grid), grid


@pytest.mark.parametrize("share", [1 / 512, 1 / 128, 1 / 8])
def test_each_kind_of_span_and_of_gap_keeps_its_sum(steps: Rows, share: float) -> None:
    start, end, _ = round_steps(steps, share)
    for thread in (3, 4):
        rows = steps["thread"] == thread
        assert end[rows].max() - start[rows].min() == (
            steps["end"][rows].max() - steps["start"][rows].min()
        )
        for kind in np.unique(steps["kind"]):
            of_kind = rows & (steps["kind"] == kind)
            durations = steps["end"][of_kind] - steps["start"][of_kind]
            assert (end - start)[of_kind].sum() == durations.sum()


def test_borders_keep_their_order_and_stay_near(steps: Rows) -> None:
    start, end, grid = round_steps(steps, 1 / 128)
    step_ns = 6 * MS
    assert set(grid.tolist()) == {2 ** int(np.log2(step_ns / 128))}
    kinds_of_gap = 6
    assert np.abs(start - steps["start"]).max() <= kinds_of_gap * grid.max() / 2 + kinds_of_gap
    for thread in (3, 4):
        rows = steps["thread"] == thread
        before = np.concatenate([steps["start"][rows], steps["end"][rows]])
        after = np.concatenate([start[rows], end[rows]])
        order = np.argsort(before, kind="stable")
        is_later = np.diff(before[order]) > 0
        assert (np.diff(after[order])[is_later] > 0).all()
        assert (np.diff(after[order])[~is_later] == 0).all()


def test_medians_are_off_by_a_step_of_the_grid(steps: Rows) -> None:
    start, end, grid = round_steps(steps, 1 / 128)
    for kind in np.unique(steps["kind"]):
        rows = steps["kind"] == kind
        exact = np.median(steps["end"][rows] - steps["start"][rows])
        assert abs(np.median((end - start)[rows]) - exact) <= grid.max()


def test_few_numbers_of_a_kind_stay() -> None:
    values = np.arange(1, MIN_ROUNDED_COUNT)
    label, grid = np.zeros(len(values), dtype=np.uint64), np.full(len(values), 1000)
    assert round_with_carry(values, label, grid).tolist() == values.tolist()


def test_samples_keep_their_mean_and_range() -> None:
    chance = np.random.default_rng(5)
    value = np.concatenate([chance.random(600), 1e10 * chance.random(600)])
    value[3] = np.nan
    series = np.repeat(np.array([1, 2], dtype=np.uint64), 600)
    rounded = round_samples(value, series=series, share=1 / 32)
    for number in (1, 2):
        before, after = value[series == number], rounded[series == number]
        step = (np.nanmax(before) - np.nanmin(before)) / 32
        assert abs(np.nansum(after) - np.nansum(before)) <= step
        assert np.nanmax(np.abs(after - before)) <= step
        assert np.nanmin(before) <= np.nanmin(after)
        assert np.nanmax(after) <= np.nanmax(before)
    assert np.isnan(rounded[3])


def test_samples_of_no_series_stay() -> None:
    value = np.random.default_rng(5).random(100)
    assert (round_samples(value, series=np.zeros(100, dtype=np.uint64), share=0.5) == value).all()


SUMS = """
SELECT kind, count(*) AS spans, count(end_ns) AS ended,
    CAST(sum(end_ns - start_ns) AS BIGINT) AS total_ns, sum(value) AS values
FROM spans GROUP BY kind ORDER BY kind
"""


@pytest.fixture(scope="module")
def recorded_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("rounding") / "run"
    create_run(run, INFO)
    chance = np.random.default_rng(5)
    with RunWriter(run, "n0") as writer:
        for number in range(33):
            rows = range(300 * number, 300 * (number + 1))
            start = np.cumsum(chance.integers(MS, 2 * MS, 300)) + 1000 * MS * number
            mask = np.isin(np.arange(300), [0, 100, 200, 299])  # the last one as well
            end = np.ma.MaskedArray(start + chance.integers(1, MS, 300), mask=mask)
            writer.append("spans", spans(rows, start_ns=start, end_ns=end))
        writer.compact("spans")
    return run


class TestLimitSize:
    @pytest.fixture
    def recorded(self, recorded_once: Path, tmp_path: Path) -> Path:
        """A run with two merged segments of spans and one newer flush."""
        return Path(shutil.copytree(recorded_once, tmp_path / "recorded"))

    @pytest.fixture
    def writer(self, recorded: Path) -> Iterator[RunWriter]:
        with RunWriter(recorded, "n0") as writer:
            yield writer

    def files(self, run: Path) -> list[str]:
        return sorted(path.name for path in (run / "tables" / "spans").rglob("*.parquet"))

    def test_nothing_happens_below_the_limit(self, recorded: Path, writer: RunWriter) -> None:
        names = self.files(recorded)
        assert writer.limit_size(2**30)
        assert self.files(recorded) == names
        assert open_run(recorded).rounded_times() is None

    def test_the_oldest_records_are_rounded_first(self, recorded: Path, writer: RunWriter) -> None:
        size = sum(path.stat().st_size for path in (recorded / "tables" / "spans").rglob("*.*"))
        assert writer.limit_size(size - 1)
        assert self.files(recorded) == [
            "00000000-00000015.coarse-1.parquet",
            "00000016-00000031.parquet",
            "00000032-00000032.parquet",
        ]
        times = open_run(recorded).rounded_times()
        assert times[1] < 16 * 1000 * MS

    def test_counts_and_sums_stay(self, recorded: Path, writer: RunWriter) -> None:
        before, order = open_run(recorded).sql(SUMS), open_run(recorded).table("spans", ["seq"])
        assert not writer.limit_size(0)
        assert self.files(recorded)[0] == "00000000-00000015.coarse-2.parquet"
        assert self.files(recorded)[-1] == "00000032-00000032.parquet"
        reader = open_run(recorded)
        after = reader.sql(SUMS)
        for name, column in before.items():
            assert after[name].tolist() == column.tolist()
        assert reader.table("spans", ["seq"])["seq"].tolist() == order["seq"].tolist()
        assert reader.damage == []

    def test_a_finer_file_of_the_same_range_is_ignored(
        self, recorded: Path, writer: RunWriter
    ) -> None:
        """As after a crash between the publication and the removal."""
        finer = recorded / Segment("spans", "n0", 0, 15).key
        content = finer.read_bytes()
        writer.limit_size(0)
        finer.write_bytes(content)
        assert len(open_run(recorded).table("spans", ["seq"])["seq"]) == 33 * 300
        writer.compact("spans")
        assert not finer.exists()

    def test_a_torn_file_stays(self, recorded: Path, writer: RunWriter) -> None:
        torn = recorded / Segment("spans", "n0", 0, 15).key
        torn.write_bytes(torn.read_bytes()[:1000])
        assert not writer.limit_size(0)
        assert torn.exists()
        assert self.files(recorded)[1] == "00000016-00000031.coarse-2.parquet"


def test_tables_can_be_segmented_again(run: Path, writer: RunWriter) -> None:
    writer.append("spans", spans(range(100)))
    before = open_run(run).table("spans")
    segment_tables(run, ("spans",))
    after = open_run(run).table("spans")
    for name, column in before.items():
        assert after[name].tolist() == column.tolist()
