from __future__ import annotations

from typing import Any

import pytest

from stepscope.diagnosis import measured
from stepscope.diagnosis.measured import AccuracyCounts, Counts, estimate_accuracy
from stepscope.diagnosis.sentences import hedge


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


@pytest.mark.parametrize(
    ("cause", "kind", "of_cause", "of_kind"),
    [
        ("slow_decode", "sampled", (5, 6), (5, 8)),
        ("logging", "sampled", (1, 4), (5, 8)),
        ("none", "timed", (0, 0), (1, 2)),
        ("none", "configured", (0, 0), (0, 0)),
    ],
)
def test_few_verdicts_count_less_than_those_from_the_same_evidence(
    cause: str, kind: Any, of_cause: tuple[int, int], of_kind: tuple[int, int]
) -> None:
    expected = 0.5
    for right_count, verdict_count in ((6, 10), of_kind, of_cause):
        expected = (right_count + 5 * expected) / (verdict_count + 5)
    assert estimate_accuracy(cause, kind) == pytest.approx(expected)


def test_verdicts_that_were_not_tried_have_a_half(monkeypatch: pytest.MonkeyPatch) -> None:
    assert estimate_accuracy("slow_decode", "traced") == 0.5
    monkeypatch.setattr(measured, "_load_counts", AccuracyCounts)
    assert estimate_accuracy("slow_decode", "sampled") == 0.5


def test_a_headline_with_little_confidence_says_probably() -> None:
    for headline, probable in (
        (
            "X. Bottleneck: model, 9% of step time.",
            "X. Bottleneck: probably model, 9% of step time.",
        ),
        ("Bottleneck of the rest: model.", "Bottleneck of the rest: probably model."),
        ("Attached from outside: it waits.", "Attached from outside: probably it waits."),
        ("No bottleneck found: 9%.", "Probably no bottleneck: 9%."),
        ("No verdict: the run is empty.", "No verdict: the run is empty."),
    ):
        assert hedge(headline, 0.49) == probable
        assert hedge(headline, 0.5) == headline
