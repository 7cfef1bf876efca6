"""Facts of a rank's model and its inputs."""

from __future__ import annotations

import math
import re

from stepscope.run.run import Rank
from stepscope.schema import ModelFact, ModelInput, ModelInputsFact


def largest_model(rank: Rank) -> ModelFact | None:
    """Return the facts of the model with most parameters; None where none was reported."""
    return max(rank.facts(ModelFact), key=lambda model: model.parameter_count, default=None)


def inputs_of(rank: Rank, model: ModelFact | None) -> list[ModelInputsFact]:
    """Return the facts of the inputs of a model's first calls, one per distinct shape."""
    if model is None:
        return []
    return [fact for fact in rank.facts(ModelInputsFact) if fact.model == model.model]


def embedding_ratio(rank: Rank) -> float | None:
    """Compute the share of the largest model's parameters in lookup tables with dense gradients.

    The optimizer updates rows of these that no sample used. None where unknown.
    """
    model = largest_model(rank)
    if model is None or model.embedding_parameter_count is None:
        return None
    return model.embedding_parameter_count / max(1, model.parameter_count)


def samples_at_a_time(rank: Rank) -> int | None:
    """Return the smallest batch of a call of the largest model; None where unknown.

    By convention it is the first dimension of the first input. A vector of real numbers is one
    sample, whose elements are its features; a vector of integers is a batch of indices.
    """
    inputs = [fact.inputs[0] for fact in inputs_of(rank, largest_model(rank)) if fact.inputs]
    return min((_count_samples(first) for first in inputs if first.shape), default=None)


def _count_samples(first: ModelInput) -> int:
    is_vector = len(first.shape) == 1 and "float" in first.dtype
    return 1 if is_vector else first.shape[0]


def input_bytes(rank: Rank) -> int:
    """Compute the size of the largest inputs of a call of the largest model; 0 where unknown."""
    calls = [fact.inputs for fact in inputs_of(rank, largest_model(rank))]
    return max((sum(map(_tensor_bytes, inputs)) for inputs in calls), default=0)


def _tensor_bytes(tensor: ModelInput) -> int:
    """Compute the size of a tensor: 4 bytes for each element of a float32, 1 of a bool."""
    bits = re.search(r"\d+", tensor.dtype)
    return math.prod(tensor.shape) * (int(bits[0]) // 8 if bits else 1)
