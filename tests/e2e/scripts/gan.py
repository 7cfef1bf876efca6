"""A small GAN: two networks, two optimizers, one loader."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECTED_STEPS = 32  # pairs of a discriminator and a generator update

LATENT = 32
IMAGE = 16 * 16
BATCH = 32


def main():
    parser = argparse.ArgumentParser(description="GAN on synthetic images.")
    parser.add_argument("--steps", type=int, default=EXPECTED_STEPS)
    args = parser.parse_args()

    torch.manual_seed(0)
    dataset = TensorDataset(torch.tanh(torch.randn(args.steps * BATCH, IMAGE) + 1.0))
    dataloader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
    generator = nn.Sequential(
        nn.Linear(LATENT, 128), nn.LeakyReLU(0.2), nn.Linear(128, IMAGE), nn.Tanh()
    )
    discriminator = nn.Sequential(nn.Linear(IMAGE, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    real_label = torch.ones(BATCH, 1)
    fake_label = torch.zeros(BATCH, 1)

    for i, (real,) in enumerate(dataloader):
        # Discriminator: real images up, generated ones down.
        optimizer_d.zero_grad()
        loss_real = criterion(discriminator(real), real_label)
        loss_real.backward()
        fake = generator(torch.randn(BATCH, LATENT))
        loss_fake = criterion(discriminator(fake.detach()), fake_label)
        loss_fake.backward()
        optimizer_d.step()

        # Generator: make the discriminator call its images real.
        optimizer_g.zero_grad()
        loss_g = criterion(discriminator(fake), real_label)
        loss_g.backward()
        optimizer_g.step()

        if i % 16 == 0:
            loss_d = loss_real.item() + loss_fake.item()
            print(f"[{i}/{len(dataloader)}] Loss_D: {loss_d:.4f} Loss_G: {loss_g.item():.4f}")


if __name__ == "__main__":
    main()
