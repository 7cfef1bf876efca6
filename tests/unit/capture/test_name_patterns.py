"""Patterns of names that match nothing: the nearest names, without a long wait of the training."""

from __future__ import annotations

import difflib
from typing import Any

import pytest

pytest.importorskip("torch")

from stepscope.capture.frameworks.pytorch.tensors.selection import MAX_COMPARED_NAMES, NamePatterns

NAMES = [
    f"{prefix}layers.{layer}.{part}"
    for layer in range(100)
    for prefix in ("", "gradient/", "activation/")
    for part in ("attention.query.weight", "attention.key.bias", "mlp.up.weight", "norm.weight")
]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("layers.73.atention.query.weight", "layers.73.attention.query.weight"),
        ("gradient/layers.99.mlp.up.weigth", "gradient/layers.99.mlp.up.weight"),
        ("activations/layers.50.norm.weight", "activation/layers.50.norm.weight"),
        ("layer.8.norm.weight", "layers.8.norm.weight"),
        (".*atention.key.bias", "layers.0.attention.key.bias"),
        ("x", None),
    ],
)
def test_the_nearest_of_many_names(
    monkeypatch: pytest.MonkeyPatch, pattern: str, expected: str | None
) -> None:
    compared = []

    def compare(word: str, names: list[str], *args: Any, **kwargs: Any) -> list[str]:
        compared.append(len(names))
        return original(word, names, *args, **kwargs)

    original = difflib.get_close_matches
    monkeypatch.setattr(difflib, "get_close_matches", compare)
    patterns = NamePatterns([pattern])
    assert not any(map(patterns.match, NAMES))
    (text,) = patterns.describe_unmatched(3)
    assert compared == [MAX_COMPARED_NAMES]
    nearest = text.partition("the nearest names are ")[2].split(", ")
    assert len(nearest) == 3
    exact = original(pattern.replace(".*", ""), NAMES, 1, cutoff=0.0)
    if expected is not None:
        assert nearest[0].endswith(expected.replace("layers.0", ""))
        if ".*" not in pattern:
            assert nearest[0] == exact[0] == expected
