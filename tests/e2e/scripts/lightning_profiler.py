"""Lightning with its own profiler, which writes a trace of three steps."""

import argparse

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.profilers import PyTorchProfiler
from torch import nn
from torch.utils.data import DataLoader

EXPECTED_STEPS = 8
TRACED_STEPS = 3


class Regression(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def training_step(self, batch, index):
        return self.net(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True, help="directory of the trace")
    arguments = parser.parse_args()
    profiler = PyTorchProfiler(
        dirpath=arguments.out,
        filename="trace",
        record_module_names=True,
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=TRACED_STEPS, repeat=1),
    )
    trainer = Trainer(
        max_steps=EXPECTED_STEPS,
        profiler=profiler,
        logger=False,
        accelerator="cpu",
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(), DataLoader(torch.ones(64, 8), batch_size=4))


if __name__ == "__main__":
    main()
