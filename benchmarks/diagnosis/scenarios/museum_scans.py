# /// scenario
# suspect = "data_pipeline"
# cause = "too_few_workers"
# fix = "num_workers=4 in the DataLoader"
# severities = [0.7, 1.0, 1.5]  # how long an object of the store takes
# held_out = true
# ///
"""Dating of paintings from scans that a museum keeps in an object store."""

import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from common import Throughput, arguments
from torch.utils.data import DataLoader, Dataset

CENTURIES = 7
SIZE = 48


class ObjectStore:
    """Stands for the museum's store: a request costs a round trip."""

    def __init__(self, objects, round_trip):
        self.objects = objects
        self.round_trip = round_trip

    def get(self, key):
        time.sleep(self.round_trip)
        return self.objects[key]


class Paintings(Dataset):
    def __init__(self, store, centuries, length):
        self.store = store
        self.centuries = centuries
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        key = index % len(self.centuries)
        body = self.store.get(f"scans/{key:05d}.raw")
        scan = np.frombuffer(body, dtype=np.uint8).reshape(3, SIZE, SIZE)
        scan = torch.from_numpy(scan.astype(np.float32) / 255)
        return scan, self.centuries[key]


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return F.relu(x + self.conv2(F.relu(self.conv1(x))))


class DatingNet(nn.Module):
    def __init__(self, width=36):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, stride=4)
        self.blocks = nn.Sequential(Residual(width), Residual(width))
        self.down = nn.Conv2d(width, 2 * width, 2, stride=2)
        self.top = nn.Sequential(Residual(2 * width), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(2 * width, CENTURIES)

    def forward(self, x):
        return self.head(self.top(self.down(self.blocks(self.stem(x)))))


args = arguments(__doc__)
rng = np.random.default_rng(args.seed)
centuries = rng.integers(0, CENTURIES, size=400).tolist()
scans = {
    f"scans/{key:05d}.raw": rng.integers(0, 256, size=3 * SIZE * SIZE, dtype=np.uint8).tobytes()
    for key in range(400)
}
store = ObjectStore(scans, round_trip=0.0014 * args.severity)
dataset = Paintings(store, centuries, length=32 * 110)
loader = DataLoader(
    dataset,
    batch_size=32,
    shuffle=True,
    num_workers=4 if args.fixed else 0,
    persistent_workers=args.fixed,
)

net = DatingNet()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
throughput = Throughput()
net.train()
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        if i % 50 == 0:
            print(f"[{epoch}] {i:4d}/{len(loader)} loss {loss.item():.3f}")
        throughput.update(x.shape[0])
    scheduler.step()
throughput.report()
