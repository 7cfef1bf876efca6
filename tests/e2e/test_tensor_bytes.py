"""Size of what `--tensors` adds to a run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import stepscope
from tests.support.under_stepscope import run_under

pytestmark = pytest.mark.extended("measures the size of a run; test_raw_tensors.py records tensors")

TRAINING = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
layer = nn.TransformerEncoderLayer(32, 4, 128, dropout=0.0, batch_first=True)
encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
model = nn.Sequential(nn.Embedding(100, 32), encoder, nn.Linear(32, 100))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(80):
    tokens = torch.randint(0, 100, (4, 16))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(tokens).view(-1, 100), tokens.view(-1)).backward()
    optimizer.step()
"""
MAX_BYTES, MAX_BYTES_WITH_HISTOGRAM = 200, 500
"""Limits per tensor and record."""


def test_bytes_per_tensor_and_record(tmp_path: Path) -> None:
    """51 parameters and their gradients, in each of 80 steps."""
    options = ("--tensors", "weights,biases,gradients", "--tensors-every", "1")
    job = run_under(
        tmp_path / "run", sys.executable, "-c", TRAINING, options=(*options, "--tensor-histograms")
    )
    assert job.code == 0, job.stderr
    record_count = len(stepscope.open(job.run).table("tensor_statistics"))
    assert record_count == 80 * 2 * 51
    sizes = {
        table: sum(path.stat().st_size for path in (job.run / "tables" / table).rglob("*.parquet"))
        for table in ("tensor_statistics", "tensor_histograms")
    }
    assert min(sizes.values()) > 0
    assert sizes["tensor_statistics"] <= MAX_BYTES * record_count
    assert sum(sizes.values()) <= MAX_BYTES_WITH_HISTOGRAM * record_count
