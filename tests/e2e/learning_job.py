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
STEPS = {"overfit": 150, "stale": 400, "clipped": 120, "unclipped": 120}
steps = int(sys.argv[2]) if len(sys.argv) > 2 else STEPS.get(fault, 60)
rectified = fault in {"initialization", "unclipped"}
torch.manual_seed(0)
torch.set_num_threads(1)
depth = {"vanishing": 8, "steep": 0}.get(fault, 4 if rectified else 1)
has_bias = fault != "initialization"  # biases would hide that nothing reaches the output
layers: list[nn.Module] = []
for _ in range(depth):
    activation = nn.Sigmoid() if fault == "vanishing" else nn.ReLU() if rectified else nn.Tanh()
    layers += [nn.Linear(16, 16, bias=has_bias), activation]
model = nn.Sequential(*layers, nn.Linear(16, 1, bias=has_bias))
for layer in model:
    if isinstance(layer, nn.Linear) and fault in {"vanishing", "initialization"}:
        nn.init.normal_(layer.weight, std=0.01)
    elif isinstance(layer, nn.Linear) and rectified:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
batch = {"overfit": 8, "initialization": 128}.get(fault, 64)
fixed = fault in {"overfit", "initialization"}  # the same batch in each step
# A linear model diverges above 2 divided by the largest eigenvalue of the loss, about 0.45.
rate = {"overfit": 0.3, "steep": 0.6, "clipped": 0.5}.get(fault, 0.05)
optimizer = torch.optim.SGD(model.parameters(), lr=rate)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=20)
inputs = torch.randn(256, 16)
targets = (inputs @ torch.randn(16, 1)).tanh()
if fault == "overfit":  # nothing to learn but the samples themselves
    targets = torch.randn(256, 1)
for step in range(steps):
    rows = torch.arange(batch) if fixed else torch.randint(0, 128, (batch,))
    is_corrupt = fault == "overfit" and step == 140
    labels = 20 * targets[rows] if is_corrupt else targets[rows]
    loss = nn.functional.mse_loss(model(inputs[rows]), labels)
    if fault == "nan" and step == 20:
        loss = loss * float("inf")
    optimizer.zero_grad()
    if fault in {"clipped", "unclipped", "overflow"}:
        scaled = scaler.scale(loss)
        # Finite in single precision, infinite in the half precision that a model may have.
        if fault == "overflow" and step > 30:
            scaled = scaled * float("inf")
        scaled.backward()
        scaler.unscale_(optimizer)
        limit = 0.01 if fault == "clipped" else 10.0
        nn.utils.clip_grad_norm_(model.parameters(), limit)
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
    if step % 5 == 4:
        with torch.no_grad():
            tested = slice(128, 256) if fault == "overfit" else slice(0, 128)
            validation = nn.functional.mse_loss(model(inputs[tested]), targets[tested])
        stepscope.scalar("val_loss", validation.item())
    if steps > 1000:
        time.sleep(0.01)
