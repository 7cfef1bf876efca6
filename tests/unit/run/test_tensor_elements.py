"""Numbers of types that NumPy does not have."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.run.tensor_elements import FLOAT8_FORMATS, float8_values


@pytest.mark.parametrize("dtype", FLOAT8_FORMATS)
def test_8_bit_numbers_are_those_of_pytorch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    bits = torch.arange(256, dtype=torch.uint8)
    expected = bits.view(getattr(torch, dtype)).float().numpy()
    values = float8_values(dtype)
    assert np.array_equal(values, expected, equal_nan=True)
    assert np.array_equal(np.signbit(values[:128]), np.signbit(expected[:128]))
