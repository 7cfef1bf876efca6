"""An autoencoder fitted by the Lightning Trainer, with a validation loop."""

import argparse
import logging

import lightning as L  # noqa: N812
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECTED_STEPS = 30

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class LitAutoEncoder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 8))
        self.decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 256))

    def reconstruction_loss(self, batch):
        (x,) = batch
        return nn.functional.mse_loss(self.decoder(self.encoder(x)), x)

    def training_step(self, batch):
        loss = self.reconstruction_loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch):
        self.log("val_loss", self.reconstruction_loss(batch))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    parser = argparse.ArgumentParser(description="Autoencoder with Lightning.")
    parser.add_argument("--steps", type=int, default=EXPECTED_STEPS, help="over two epochs")
    args = parser.parse_args()

    L.seed_everything(7, verbose=False)
    train_set = TensorDataset(torch.randn(args.steps // 2 * 32, 256))
    val_set = TensorDataset(torch.randn(128, 256))
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(
        LitAutoEncoder(),
        DataLoader(train_set, batch_size=32, shuffle=True),
        DataLoader(val_set, batch_size=32),
    )
    print(f"val_loss {trainer.callback_metrics['val_loss']:.4f}")


if __name__ == "__main__":
    main()
