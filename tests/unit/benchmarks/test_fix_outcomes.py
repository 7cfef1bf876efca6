"""Outcomes of tried fixes: collection, counts, and the order of fixes that follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fix_outcomes import count_outcomes, main, merge, read_outcomes
from stepscope.diagnosis import Fix, measured
from stepscope.diagnosis.measured import FixOutcomes, OutcomeCounts, is_often_wrong
from stepscope.schema import Change, TrialPair, TriedChange
from stepscope.store import RunWriter
from stepscope.testing import RunBuilder


def make_outcome(
    name: str, saving: float, *, predicted: float | None = 0.2, created_ns: int = 1
) -> TriedChange:
    return TriedChange(
        created_ns=created_ns,
        changes=[Change(name=name, value="2")],
        predicted_saving_ratio=predicted,
        pairs=[TrialPair(base_step_ns=1.0, changed_step_ns=1 - saving)] * 3,
        saving_ratio=saving,
        min_saving_ratio=saving - 0.05,
        max_saving_ratio=saving + 0.05,
        confidence_ratio=0.75,
        warmup_step_count=10,
        step_count=30,
        is_isolated=True,
        node="n0",
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Make a run with five outcomes, one of them without a prediction."""
    builder = RunBuilder(tmp_path / "run")
    builder.rank().draw("forward 10 | optimizer 2", 30)
    path = builder.write()
    outcomes = [
        make_outcome("num_workers", 0.1, created_ns=1),
        make_outcome("num_workers", -0.4, created_ns=2),
        make_outcome("num_workers", 0.01, created_ns=3),
        make_outcome("compile", 0.3, created_ns=4),
        make_outcome("compile", 0.3, created_ns=5, predicted=None),
    ]
    with RunWriter(path, "n0") as writer:
        for number, outcome in enumerate(outcomes):
            writer.add_document("tries", str(number), outcome)
    return path


def test_outcomes_are_counted_by_kind(run: Path) -> None:
    outcomes = read_outcomes(run)
    assert len(outcomes) == 4
    assert merge(outcomes, outcomes) == outcomes
    counts = count_outcomes(outcomes).kinds
    workers = counts["num_workers"]
    # Intervals of 0.1 +- 0.05, -0.4 +- 0.05 and 0.01 +- 0.05: shorter, longer, about even.
    assert (workers.tried_count, workers.right_count, workers.wrong_count) == (3, 1, 1)
    assert workers.median_ratio == pytest.approx(0.05)
    assert counts["compile"].median_ratio == pytest.approx(1.5)


def test_results_are_added(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.fix_outcomes.RESULTS", tmp_path / "results.json")
    monkeypatch.setattr("benchmarks.fix_outcomes.OUTCOMES", tmp_path / "outcomes.json")
    main([str(run)])
    first = (tmp_path / "results.json").read_text(), (tmp_path / "outcomes.json").read_text()
    main([str(run)])
    assert first == (
        (tmp_path / "results.json").read_text(),
        (tmp_path / "outcomes.json").read_text(),
    )


@pytest.mark.parametrize(
    ("tried", "wrong", "expected"), [(1, 1, False), (20, 2, False), (19, 2, True), (2, 2, True)]
)
def test_kinds_that_were_wrong_more_than_once_in_ten(
    tried: int, wrong: int, *, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = OutcomeCounts(tried_count=tried, right_count=0, wrong_count=wrong, median_ratio=1.0)
    outcomes = FixOutcomes(kinds={"num_workers": counts})
    monkeypatch.setattr(measured, "load_outcomes", lambda: outcomes)
    change = Change(name="num_workers", value="2")
    assert is_often_wrong(Fix(title="", instructions="", why="", changes=[change])) is expected
    assert not is_often_wrong(Fix(title="", instructions="", why=""))


def test_the_outcomes_of_this_version_can_be_read() -> None:
    assert measured.load_outcomes().kinds is not None
