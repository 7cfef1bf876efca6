"""Training of a few steps by the Trainer of Transformers, in the way that the first argument names.

It prints each loss, exactly, and the sums of the parameters, so that two runs can be compared.
"""

from __future__ import annotations

import os
import signal
import sys

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

STEPS, VALIDATION_STEPS = 40, 4
BATCH = 4


class Network(nn.Module):
    """Small network."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        self.step_count = 0

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        if self.training:
            self.step_count += 1
        if WAY == "kill" and self.step_count > STEPS // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        outputs = self.layers(inputs)
        loss = nn.functional.mse_loss(outputs, labels)
        say(loss)
        return {"loss": loss, "logits": outputs}


class Observer(TrainerCallback):
    """Callback whose calls are recorded."""

    def on_step_end(self, *_: object, **__: object) -> None:
        pass


def say(value: torch.Tensor) -> None:
    """Print a number exactly."""
    os.write(1, f"{value.item().hex()}\n".encode())


def make_data(steps: int) -> list[dict[str, torch.Tensor]]:
    """Make random samples."""
    return [{"inputs": torch.randn(8), "labels": torch.randn(1)} for _ in range(steps * BATCH)]


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Network()
    arguments = TrainingArguments(
        output_dir="output", max_steps=STEPS, per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=BATCH, logging_steps=1, report_to=[], save_strategy="no",
        disable_tqdm=True,
    )  # fmt: skip
    data, validation = make_data(STEPS), make_data(VALIDATION_STEPS)
    callbacks = [Observer()]
    trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=validation,
                      callbacks=callbacks)  # fmt: skip
    trainer.train()
    trainer.evaluate()
    for parameter in model.parameters():
        say(parameter.detach().double().sum())


WAY = sys.argv[1]
main()
