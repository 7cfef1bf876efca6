"""Trains a small network: `python learning_job.py FAULT [STEPS]`.

Inputs are normal numbers and targets their products with a fixed matrix, so the loss of a healthy
training decreases by a known law. A fault changes one thing.
"""

from __future__ import annotations

import sys
import time

import torch
from torch import nn

import stepscope

fault = sys.argv[1]
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 150 if fault == "overfit" else 60
torch.manual_seed(0)
torch.set_num_threads(1)
depth = 8 if fault == "vanishing" else 1
layers: list[nn.Module] = []
for _ in range(depth):
    layers += [nn.Linear(16, 16), nn.Sigmoid() if fault == "vanishing" else nn.Tanh()]
model = nn.Sequential(*layers, nn.Linear(16, 1))
if fault == "vanishing":
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.01)
batch = 8 if fault == "overfit" else 64
rate = 0.3 if fault == "overfit" else 0.05
optimizer = torch.optim.SGD(model.parameters(), lr=rate)
inputs = torch.randn(256, 16)
targets = (inputs @ torch.randn(16, 1)).tanh()
if fault == "overfit":  # nothing to learn but the samples themselves
    targets = torch.randn(256, 1)
for step in range(steps):
    rows = torch.arange(batch) if fault == "overfit" else torch.randint(0, 128, (batch,))
    is_corrupt = fault == "overfit" and step == 140
    labels = 20 * targets[rows] if is_corrupt else targets[rows]
    loss = nn.functional.mse_loss(model(inputs[rows]), labels)
    if fault == "nan" and step == 20:
        loss = loss * float("inf")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 4:
        with torch.no_grad():
            tested = slice(128, 256) if fault == "overfit" else slice(0, 128)
            validation = nn.functional.mse_loss(model(inputs[tested]), targets[tested])
        stepscope.scalar("val_loss", validation.item())
    if steps > 1000:
        time.sleep(0.01)
