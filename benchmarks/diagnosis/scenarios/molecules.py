# /// scenario
# suspect = "data_pipeline"
# cause = "slow_collate"
# stage = "collate"
# fix = "make collating one vectorised operation"
# severities = [0.7, 1.0, 1.5]  # bonds per molecule
# ///
"""Trains a graph network on molecules, many of them joined into one graph per step."""

import numpy as np
import torch
from common import Throughput, arguments, perceptron
from torch import nn
from torch.utils.data import DataLoader, Dataset

MOLECULES = 600
WIDTH = 16
BATCH = 48
STEPS = 150


class Molecules(Dataset):
    def __init__(self, length, atoms):
        counts = np.random.randint(atoms // 2, atoms, size=MOLECULES)
        self.atoms = [np.random.randn(n, WIDTH).astype(np.float32) for n in counts]
        self.bonds = [np.random.randint(0, n, size=(2, 3 * n)) for n in counts]
        self.energies = np.random.randn(MOLECULES).astype(np.float32)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        row = index % MOLECULES
        return self.atoms[row], self.bonds[row], self.energies[row]


def join(samples):
    features, sources, targets, owners, energies = [], [], [], [], []
    for number, (atoms, bonds, energy) in enumerate(samples):
        offset = len(features)
        for atom in atoms:
            features.append([float(x) for x in atom])
            owners.append(number)
        for source, target in bonds.T:
            sources.append(int(source) + offset)
            targets.append(int(target) + offset)
        energies.append(float(energy))
    edges = torch.tensor([sources, targets])
    return torch.tensor(features), edges, torch.tensor(owners), torch.tensor(energies)


def join_arrays(samples):
    atoms, bonds, energies = zip(*samples, strict=True)
    counts = [len(molecule_atoms) for molecule_atoms in atoms]
    offsets = np.concatenate([[0], np.cumsum(counts)[:-1]])
    edges = np.concatenate([b + o for b, o in zip(bonds, offsets, strict=True)], axis=1)
    owners = np.repeat(np.arange(len(counts)), counts)
    return (
        torch.from_numpy(np.concatenate(atoms)),
        torch.from_numpy(edges),
        torch.from_numpy(owners),
        torch.tensor(energies),
    )


class GraphNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.message = perceptron(2 * WIDTH, WIDTH, WIDTH, depth=1)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, atoms, edges, owners, count):
        source, target = edges
        messages = self.message(torch.cat([atoms[source], atoms[target]], dim=1))
        atoms = atoms.index_add(0, target, messages)
        return self.head(atoms.new_zeros(count, WIDTH).index_add(0, owners, atoms)).squeeze(1)


def main():
    args = arguments(__doc__)
    loader = DataLoader(
        Molecules(STEPS * BATCH, round(44 * args.severity)),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        collate_fn=join_arrays if args.fixed else join,
    )
    model = GraphNetwork()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    meter = Throughput()
    for atoms, edges, owners, energies in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(atoms, edges, owners, len(energies)), energies)
        loss.backward()
        optimizer.step()
        meter.update(len(energies))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
