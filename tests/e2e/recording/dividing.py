"""Training whose loss is divided by 0 in step 12; with `skip`, the script skips that step."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
for step in range(25):
    x = torch.randn(16, 4)
    weights = (torch.arange(16) < (0 if step == 12 else 4)).float()
    errors = (model(x).squeeze(1) - 1).abs()
    loss = (weights * errors).sum() / weights.sum()
    optimizer.zero_grad()
    if "skip" in sys.argv:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
