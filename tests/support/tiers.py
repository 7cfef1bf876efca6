"""Parameters of a test of which `make test` takes a few."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


def extend_all_but(
    tested: Collection[Any], values: Iterable[Any], reason: str
) -> list[ParameterSet]:
    """Mark all parameters but the tested ones as `extended`; several of one test are a tuple."""
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=() if value in tested else pytest.mark.extended(reason),
        )
        for value in values
    ]
