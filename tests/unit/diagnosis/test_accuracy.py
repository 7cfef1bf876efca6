from __future__ import annotations

import pytest

from stepscope.diagnosis import measured
from stepscope.diagnosis.measured import AccuracyCounts, Counts, estimate_accuracy


@pytest.fixture(autouse=True)
def counts(monkeypatch: pytest.MonkeyPatch) -> None:
    few_counts = AccuracyCounts(
        causes={
            "slow_decode": Counts(verdict_count=6, right_count=5),
            "logging": Counts(verdict_count=4, right_count=1),
        },
        evidence_kinds={
            "sampled": Counts(verdict_count=8, right_count=5),
            "timed": Counts(verdict_count=2, right_count=1),
        },
    )
    monkeypatch.setattr(measured, "_load_counts", lambda: few_counts)


def test_a_known_cause_has_an_accuracy_of_its_own() -> None:
    estimate = estimate_accuracy("slow_decode", "sampled")
    assert estimate.ratio == (5 + 1) / (6 + 2)
    assert "“slow decode” was right for 5 of 6" in estimate.basis


def test_a_rare_cause_takes_the_accuracy_of_its_kind_of_evidence_and_says_so() -> None:
    estimate = estimate_accuracy("logging", "sampled")
    assert estimate.ratio == (5 + 1) / (8 + 2)
    assert estimate.basis.startswith("Only 4 public programs had the verdict “logging”; ")
    assert "verdicts from stack samples were right for 5 of 8" in estimate.basis


def test_rare_evidence_takes_the_accuracy_of_all_verdicts() -> None:
    estimate = estimate_accuracy("none", "timed")
    assert estimate.ratio == (6 + 1) / (10 + 2)
    assert estimate.basis.startswith("No public program had the verdict “no bottleneck”; ")
    unknown = estimate_accuracy("unknown", "timed")
    assert unknown.basis.startswith("No verdict on a public program left the cause open; ")


def test_without_any_counts_the_accuracy_is_a_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_load_counts", AccuracyCounts)
    estimate = estimate_accuracy("slow_decode", "sampled")
    assert estimate.ratio == 0.5
    assert "How often verdicts are right was not measured" in estimate.basis
