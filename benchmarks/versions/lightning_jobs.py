"""Training of a few steps by Lightning in the way that the first argument names.

It prints each loss, exactly, and the sums of the parameters, so that two runs can be compared.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

try:
    import lightning.pytorch as lightning
except ImportError:  # before Lightning 2.0
    import pytorch_lightning as lightning

STEPS, VALIDATION_STEPS = 40, 4
BATCH = 4


class Network(lightning.LightningModule):
    """Small network."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        loss = self._compute_loss(batch)
        self.log("loss", loss)
        say(loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        say(self._compute_loss(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

    def _compute_loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        inputs, targets = batch
        return nn.functional.mse_loss(self.layers(inputs), targets)


class Observer(lightning.Callback):
    """Callback whose calls are recorded, and which may kill the process."""

    def __init__(self) -> None:
        self.step_count = 0

    def on_train_batch_end(self, *_: object) -> None:
        self.step_count += 1
        if WAY == "kill" and self.step_count == STEPS // 2:
            os.kill(os.getpid(), signal.SIGKILL)


def say(value: torch.Tensor) -> None:
    """Print a number exactly."""
    os.write(1, f"{value.item().hex()}\n".encode())


def make_loader(steps: int) -> DataLoader:
    """Make a DataLoader of random data."""
    data = TensorDataset(torch.randn(steps * BATCH, 8), torch.randn(steps * BATCH, 1))
    return DataLoader(data, batch_size=BATCH)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Network()
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", devices=1, callbacks=[Observer()], log_every_n_steps=1,
        num_sanity_val_steps=0, enable_progress_bar=False, default_root_dir=str(Path.cwd()),
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, make_loader(STEPS), make_loader(VALIDATION_STEPS))
    for parameter in model.parameters():
        say(parameter.detach().double().sum())


WAY = sys.argv[1]
main()
