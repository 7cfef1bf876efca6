"""What a rank said of its model and of what it was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepscope.run.run import Rank

Fact = Mapping[str, Any]


def largest_model(rank: Rank) -> Fact | None:
    """What a rank said of its model with most parameters; None where it said nothing."""
    return max(rank.facts("model"), key=lambda fact: int(fact["parameter_count"]), default=None)


def inputs_of(rank: Rank, model: Fact | None) -> list[Fact]:
    """What it said of the inputs of the first calls of a model, where they differ."""
    if model is None:
        return []
    return [fact for fact in rank.facts("model_inputs") if fact["model"] == model["model"]]


def embedding_ratio(rank: Rank) -> float | None:
    """Share of the largest model's parameters that are lookup tables with dense gradients, so that
    the optimizer updates rows that no sample asked for. None where that is not known."""
    model = largest_model(rank)
    if model is None or "embedding_parameter_count" not in model:
        return None
    return float(model["embedding_parameter_count"] / max(1, model["parameter_count"]))


def samples_at_a_time(rank: Rank) -> int | None:
    """Fewest samples in a call of the largest model: by convention the first dimension of its
    first input. None where that is not known."""
    shapes = [
        fact["inputs"][0]["shape"]
        for fact in inputs_of(rank, largest_model(rank))
        if fact["inputs"]
    ]
    return min((int(shape[0]) for shape in shapes if shape), default=None)
