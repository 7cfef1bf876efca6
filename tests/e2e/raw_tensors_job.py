"""Calls a model with tensors of many types, and trains: `python raw_tensors_job.py SAVED [GO]`.

The bits of the tensors at each step are saved as arrays into SAVED. With GO, a directory, it waits
after the second step until a file `go` is there.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

TYPES = (
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "int8", "uint8", "int16", "int32", "int64", "bool", "complex64",
    "complex128",
)  # fmt: skip


class Model(nn.Module):
    """A layer that ignores its other arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, **_: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def bits_of(tensor: torch.Tensor) -> np.ndarray:
    """Return the bytes of a tensor in its shape, with one more dimension."""
    contiguous = tensor.detach().resolve_conj().contiguous()
    return contiguous.view(-1).view(torch.uint8).numpy().reshape(*tensor.shape, -1).copy()


def main(saved: str, directory: str = "") -> None:
    """Train."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    arrays = {}
    for step in range(4):
        base = torch.randn(4, 5, dtype=torch.float64) * 8
        inputs = {name: base.to(getattr(torch, name)) for name in TYPES}
        inputs["scalar"] = base[0, 0]
        inputs["transposed"] = base.T
        inputs["conjugate"] = inputs["complex64"].conj()
        inputs["special"] = torch.tensor([float("nan"), float("inf"), -0.0, 1e-45])
        optimizer.zero_grad()
        model(torch.randn(7, 3), **inputs).square().sum().backward()
        arrays |= {f"{step} model_input/{name}": bits_of(value) for name, value in inputs.items()}
        arrays[f"{step} gradient/layer.weight"] = bits_of(model.layer.weight.grad)
        optimizer.step()
        arrays[f"{step} layer.weight"] = bits_of(model.layer.weight)
        if directory and step == 1:
            while not Path(directory, "go").exists():
                time.sleep(0.05)
    np.savez(saved, **arrays)


main(*sys.argv[1:])
