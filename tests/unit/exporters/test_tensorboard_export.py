"""Scalars and tensors as event files, read back by TensorBoard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import stepscope
from stepscope.exporters import export_tensorboard
from stepscope.run import Run, read_tensors
from stepscope.store import DictColumn, RunWriter
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from tests.support.command import run_command
from tests.support.tensor_rows import add_tensors

pytestmark = pytest.mark.seed("DBT-12")
ELEMENTS = {0: [1.0, -2.0, 0.5, 0.0], 10: [3.0, 4.0, 3.5, 0.25], 300: [np.nan] * 4}
BINS = {
    0: [(-4.0, -2.0, 1), (-0.25, 0.25, 1), (0.5, 1.0, 1), (1.0, 2.0, 1)],
    10: [(0.25, 0.5, 1), (2.0, 4.0, 2), (4.0, 8.0, 1)],
}
"""Lower end, upper end, count of the histograms by step."""


def describe(values: list[float]) -> dict[str, Any]:
    array = np.array(values)
    if np.isnan(array).all():
        return {"element_count": 4, "nan_count": 4}
    return {
        "element_count": 4, "zero_count": int((array == 0).sum()), "min": array.min(),
        "max": array.max(), "mean": array.mean(), "std": array.std(),
        "l1": np.abs(array).sum(), "l2": np.linalg.norm(array), "update_l2": 0.1,
    }  # fmt: skip


def draw(path: Path, ranks: int) -> Path:
    builder = RunBuilder(path)
    processes = [builder.rank(rank) for rank in range(ranks)]
    for process in processes:
        process.draw("forward 12 | backward 20 | optimizer 8", 20)
    run = builder.write()
    for process in processes:
        name = process.info.process
        rows = [{"tensor": "fc.weight", "step": s, **describe(v)} for s, v in ELEMENTS.items()]
        add_tensors(run, name, rows)
        add_histograms(run, name)
    return run


def add_histograms(run: Path, process: str) -> None:
    rows = [(step, *one) for step, bins in BINS.items() for one in bins]
    step, low, high, count = (np.array(column) for column in zip(*rows, strict=True))
    texts = {
        "process": process, "node": "n0", "log": "7r", "mode": "TRAIN", "tensor": "fc.weight",
        "collection": "weights",
    }  # fmt: skip
    columns: dict[str, Any] = {
        **{key: DictColumn.encode([text] * len(rows)) for key, text in texts.items()},
        "seq": np.arange(len(rows)), "t_ns": EPOCH_NS + step * 10**9, "step": step,
        "low": low, "high": high, "count": count,
    }  # fmt: skip
    with RunWriter(run, "n0") as writer:
        writer.append("tensor_histograms", columns)


def read_back(directory: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(directory), size_guidance={"scalars": 0, "histograms": 0})
    accumulator.Reload()
    return accumulator


def test_statistics_and_histograms_are_read_back(tmp_path: Path) -> None:
    drawn = draw(tmp_path / "run", ranks=1)
    result = run_command(
        tmp_path, "export", str(drawn), "--to", "tensorboard", "--out", "events", "--json"
    )
    (file,) = json.loads(result.stdout)["files"]
    events = read_back(tmp_path / "events")
    (series,) = read_tensors(stepscope.open(drawn)._run)
    scalar_count = 0
    for reduction in ("l2", "mean", "std", "min", "max", "update_ratio", "zero_ratio", "nan_count"):
        values = series.reduction(reduction)
        is_known = ~np.isnan(values)
        scalars = events.Scalars(f"{reduction}/fc.weight")
        scalar_count += len(scalars)
        assert [event.step for event in scalars] == series.step[is_known].tolist()
        assert [event.value for event in scalars] == np.float32(values[is_known]).tolist()
        assert [event.wall_time for event in scalars] == [t / 1e9 for t in series.t_ns[is_known]]
    scalar_count += len(events.Scalars("infinite_count/fc.weight"))
    assert (file["scalar_count"], file["histogram_count"]) == (scalar_count, 2)
    for event, (step, bins) in zip(events.Histograms("fc.weight"), BINS.items(), strict=True):
        elements, histogram = np.array(ELEMENTS[step]), event.histogram_value
        assert (event.step, histogram.num) == (step, 4)
        assert (histogram.min, histogram.max) == (elements.min(), elements.max())
        assert histogram.sum == pytest.approx(elements.sum())
        assert histogram.sum_squares == pytest.approx((elements**2).sum())
        pairs = zip(histogram.bucket_limit, histogram.bucket, strict=True)
        lows = [None, *histogram.bucket_limit]
        filled = [(low, *pair) for low, pair in zip(lows, pairs, strict=False) if pair[1]]
        assert filled == bins


def test_logged_scalars_are_at_the_steps_that_had_ended(tmp_path: Path) -> None:
    run = stepscope.open(draw(tmp_path / "run", ranks=1))._run
    ends = run.ranks[0].steps.end
    times = [int(ends[0]) - 1, int(ends[0]), int(ends[3])]
    add_scalars(run, times, [0.5, 0.25, np.nan])
    export_tensorboard(stepscope.open(tmp_path / "run")._run, tmp_path / "events")
    first, second, third = read_back(tmp_path / "events").Scalars("loss")
    assert [first.step, second.step, third.step] == [0, 1, 4]
    assert (first.value, second.value) == (0.5, 0.25)
    assert np.isnan(third.value)


def add_scalars(run: Run, times: list[int], values: list[float]) -> None:
    count, directory = len(times), run.reader.directory
    assert directory is not None
    texts = {"process": run.ranks[0].process.process, "node": "n0", "log": "9", "name": "loss"}
    columns: dict[str, Any] = {
        **{key: DictColumn.encode([text] * count) for key, text in texts.items()},
        "seq": np.arange(count), "t_ns": np.array(times), "value": np.array(values),
        "step": np.ma.masked_all(count, dtype=np.int64),
    }  # fmt: skip
    with RunWriter(directory, "n0") as writer:
        writer.append("scalars", columns)


def test_each_rank_is_a_run_of_tensorboard(tmp_path: Path) -> None:
    run = stepscope.open(draw(tmp_path / "run", ranks=2))._run
    files = export_tensorboard(run, tmp_path / "events")
    assert [Path(file.path).parent.name for file in files] == ["rank-0", "rank-1"]
    for file in files:
        assert len(read_back(Path(file.path).parent).Scalars("l2/fc.weight")) == 2


def test_mistakes(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    builder.rank(0).draw("forward 12 | backward 20 | optimizer 8", 20)
    run = str(builder.write())
    (tmp_path / "file").touch()
    for options, message in (
        (["-o", "events"], "Nothing to export: the run has no scalars and no tensors"),
        (["-o", "file"], "file is a file; pass a directory to -o for event files."),
        (["-o", "events", "--rank", "0"], "--to tensorboard does not take --rank; "),
    ):
        result = run_command(tmp_path, "export", run, "--to", "tensorboard", *options)
        assert result.returncode == 2
        assert message in " ".join(result.stderr.split())
