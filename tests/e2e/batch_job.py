"""Trains a small classifier of images and texts: `python batch_job.py FAULT`.

A class has images of one color and texts with one word, so that a healthy training learns it. A
fault changes one thing of the data. The script asks for the recording of tensors by itself if FAULT
ends in `-watched`.
"""

from __future__ import annotations

import sys

import torch
from torch import nn

import stepscope

fault, _, is_watched = sys.argv[1].partition("-")
CLASSES, STEPS, BATCH, WORDS = 4, 60, 64, 12
torch.manual_seed(0)
torch.set_num_threads(1)


class Classifier(nn.Module):
    """Logits from the mean color and the mean embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 8, padding_idx=0)
        self.color = nn.Conv2d(3, 8, 1)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, images: torch.Tensor, input_ids: torch.Tensor) -> torch.Tensor:
        text, color = self.words(input_ids).mean(1), self.color(images).mean((2, 3))
        return self.head(torch.cat([text, color], 1).tanh())


model = Classifier()
if is_watched:
    stepscope.watch(model, ["labels", "predictions", "inputs"], interval=1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
colors = torch.tensor([[1.5, -1.5, 0], [0, 1.5, -1.5], [-1.5, 0, 1.5], [0, 0, 0]])
shares = torch.tensor([1.0, 1.0, 1.0, 0.05 if fault == "imbalanced" else 1.0])
for _ in range(STEPS):
    shown = torch.multinomial(shares, BATCH, replacement=True)
    labels = shown
    if fault == "confused":  # a quarter of the labels 2 and 3 is exchanged
        is_wrong = (shown >= 2) & (torch.rand(BATCH) < 0.25)
        labels = torch.where(is_wrong, 5 - shown, shown)
    images = colors[shown][:, :, None, None] + 0.5 * torch.randn(BATCH, 3, 4, 4)
    if fault == "images":
        images = images + 3  # as pixels: all of them positive
    tokens = torch.randint(5, 20, (BATCH, WORDS))
    tokens[:, 0] = shown + 1
    if fault == "padded":
        tokens[:, WORDS // 3 :] = 0
    logits = model(images, input_ids=tokens)
    stepscope.record(labels=labels, predictions=logits)
    optimizer.zero_grad()
    nn.functional.cross_entropy(logits, labels).backward()
    optimizer.step()
