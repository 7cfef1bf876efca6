"""A small job for trials: convolution, dropout, random augmentation on request, short epochs."""

import argparse
import os
import random
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--augment", action="store_true")
parser.add_argument("--dropout", type=float, default=0.1)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--debug", action="store_true")
parser.add_argument("--crash-at", type=int, help="step that raises an exception")
parser.add_argument("--end-at", type=int, help="step after which the script ends")
arguments = parser.parse_args()
if arguments.debug:
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    torch.autograd.set_detect_anomaly(True)


class Images(Dataset):
    """Dataset of images that are made from their index."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(index))
        if arguments.augment:
            image = image * random.random()
        return image, index % 4


model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Dropout(arguments.dropout), nn.Flatten(), nn.Linear(288, 4)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
loader = DataLoader(Images(), batch_size=4, shuffle=True, num_workers=arguments.workers)
torch.set_num_threads(1)
step = 0
for _ in range(8):
    for images, labels in loader:
        step += 1
        if step == arguments.crash_at:
            raise MemoryError("no memory left")
        if step == arguments.end_at:
            sys.exit()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
