"""Sentences of `stepscope try`."""

from __future__ import annotations

import pytest

from stepscope.capture.trial import CHANGES
from stepscope.cli.try_changes import describe_losses
from stepscope.schema import LossComparison


@pytest.mark.parametrize(
    ("difference", "sentence"),
    [
        (0.0, "Losses: identical (1 first loss)."),
        (3e-7, "Losses: equal up to 3e-07 of their value (1 first loss)."),
        (0.0123, "Losses: differ by up to 1.2% (1 first loss)."),
        (0.35, "Losses: differ by up to 35% (1 first loss)."),
    ],
)
def test_large_differences_of_losses_are_not_called_equal(difference: float, sentence: str) -> None:
    losses = LossComparison(
        loss_count=1, max_relative_difference=difference, own_relative_difference=0
    )
    assert describe_losses(losses) == sentence


@pytest.mark.parametrize(
    ("name", "singular", "plural"),
    [
        ("num_workers", "1 DataLoader worker", "2 DataLoader workers"),
        ("intra_op_threads", "1 intra-op thread", "2 intra-op threads"),
        ("batch_size", "batches of 1 sample", "batches of 2 samples"),
        ("thread_prefetch", "1 batch ahead by a thread", "2 batches ahead by a thread"),
    ],
)
def test_counts_agree_with_their_nouns(name: str, singular: str, plural: str) -> None:
    assert [CHANGES[name].describe(value) for value in "12"] == [singular, plural]
