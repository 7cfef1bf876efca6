"""A module fitted by Lightning with a slow callback, a logger and a checkpoint per epoch."""

import argparse
import logging
import sys
import time

import lightning as L  # noqa: N812
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECTED_STEPS = 40
EPOCHS = 2
LOG_INTERVAL = 10

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch):
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch):
        self.log("val_loss", nn.functional.mse_loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


class SlowCallback(L.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        end = time.perf_counter() + 0.02
        while time.perf_counter() < end:
            pass


def main():
    parser = argparse.ArgumentParser(description="Regression with Lightning.")
    parser.add_argument("directory")
    parser.add_argument("--no-logger", action="store_true")
    parser.add_argument("--resume", metavar="CHECKPOINT", help="train for one epoch more")
    arguments = parser.parse_args()

    L.seed_everything(7, verbose=False)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(EXPECTED_STEPS // EPOCHS * 8, 16), torch.randn(160, 1))
    checkpoint = ModelCheckpoint(arguments.directory)
    callbacks = [SlowCallback(), checkpoint]
    trainer = L.Trainer(
        max_epochs=EPOCHS if arguments.resume is None else EPOCHS + 1,
        accelerator="cpu",
        devices=1,
        logger=False if arguments.no_logger else CSVLogger(arguments.directory),
        log_every_n_steps=LOG_INTERVAL,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
    )
    loaders = (DataLoader(data, batch_size=8), DataLoader(data, batch_size=32))
    trainer.fit(Regression(), *loaders, ckpt_path=arguments.resume)
    assert trainer.callbacks[0] is callbacks[0]
    assert type(callbacks[0]).__name__ == "SlowCallback"
    sys.stdout.write(f"{trainer.callback_metrics['val_loss']:.9f}\n")


main()
