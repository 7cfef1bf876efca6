"""What a rank said of its model and of what it was given."""

from __future__ import annotations

from stepscope.run.run import Rank
from stepscope.schema import ModelFact, ModelInputsFact


def largest_model(rank: Rank) -> ModelFact | None:
    """What a rank said of its model with most parameters; None where it said nothing."""
    return max(rank.facts(ModelFact), key=lambda model: model.parameter_count, default=None)


def inputs_of(rank: Rank, model: ModelFact | None) -> list[ModelInputsFact]:
    """What it said of the inputs of the first calls of a model, where they differ."""
    if model is None:
        return []
    return [fact for fact in rank.facts(ModelInputsFact) if fact.model == model.model]


def embedding_ratio(rank: Rank) -> float | None:
    """Share of the largest model's parameters that are lookup tables with dense gradients, so that
    the optimizer updates rows that no sample asked for. None where that is not known."""
    model = largest_model(rank)
    if model is None or model.embedding_parameter_count is None:
        return None
    return model.embedding_parameter_count / max(1, model.parameter_count)


def samples_at_a_time(rank: Rank) -> int | None:
    """Fewest samples in a call of the largest model: by convention the first dimension of its
    first input. None where that is not known."""
    shapes = [fact.inputs[0].shape for fact in inputs_of(rank, largest_model(rank)) if fact.inputs]
    return min((shape[0] for shape in shapes if shape), default=None)
