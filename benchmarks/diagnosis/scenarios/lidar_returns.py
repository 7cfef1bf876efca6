# /// scenario
# healthy = true
# severities = [0.7, 1.0, 1.5]  # points of a crop
# ///
"""Classification of objects in lidar sweeps with a small PointNet, streamed by two workers."""

import numpy as np
import torch
from common import Throughput, arguments
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

KINDS = 8


class Sweeps(IterableDataset):
    """An endless stream of crops, jittered and turned around the vertical axis."""

    def __init__(self, points, seed):
        rng = np.random.default_rng(seed)
        self.crops = rng.normal(size=(400, points, 4)).astype(np.float32)
        self.kinds = rng.integers(0, KINDS, size=400)
        self.crops += self.kinds[:, None, None] / KINDS
        self.seed = seed

    def __iter__(self):
        info = get_worker_info()
        rng = np.random.default_rng((self.seed, info.id if info else 0))
        while True:
            index = int(rng.integers(len(self.crops)))
            crop = self.crops[index].copy()
            angle = rng.uniform(0, 2 * np.pi)
            turn = np.array(
                [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]], dtype=np.float32
            )
            crop[:, :2] = crop[:, :2] @ turn
            crop += 0.01 * rng.standard_normal(crop.shape, dtype=np.float32)
            yield torch.from_numpy(crop), int(self.kinds[index])


class PointNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.points = nn.Sequential(
            nn.Linear(4, width),
            nn.ReLU(),
            nn.Linear(width, 2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, 4 * width),
            nn.ReLU(),
        )
        self.head = nn.Sequential(
            nn.Linear(4 * width, 2 * width),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(2 * width, KINDS),
        )

    def forward(self, crops):
        return self.head(self.points(crops).amax(dim=1))


def main():
    args = arguments(__doc__)
    loader = DataLoader(Sweeps(int(200 * args.severity), args.seed), batch_size=48, num_workers=2)
    model = PointNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 60, gamma=0.5)
    throughput = Throughput()
    stream = iter(loader)
    mean_loss = 0.0
    for step in range(1, 251):
        crops, kinds = next(stream)
        loss = nn.functional.cross_entropy(model(crops), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        mean_loss += (loss.item() - mean_loss) / min(step, 50)
        if step % 50 == 0:
            print(f"{step:4d} loss {mean_loss:.4f} lr {scheduler.get_last_lr()[0]:.1e}")
        throughput.update(len(kinds))
    throughput.report()


if __name__ == "__main__":
    main()
