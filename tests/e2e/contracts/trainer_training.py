"""Training of a small network by Lightning, Transformers or Accelerate.

Options are those of `stepscope.testing.framework_contract`.
"""

import argparse
import hashlib
import logging
import os
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 4
SLOW_S = 0.04
STEPS_BETWEEN = 4
"""Steps between evaluations that are too frequent."""


class Samples(Dataset):
    """Random samples; slow ones take most of a step."""

    def __init__(self, count, is_slow=False):
        self.inputs = torch.randn(count, 16, generator=torch.Generator().manual_seed(1))
        self.is_slow = is_slow

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        if self.is_slow:
            time.sleep(SLOW_S / BATCH)
        inputs = self.inputs[index]
        return {"inputs": inputs, "labels": inputs.sum(dim=0, keepdim=True).tanh()}


class Network(nn.Module):
    """A network that returns its loss."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))

    def forward(self, inputs, labels):
        outputs = self.layers(inputs)
        return {"loss": nn.functional.mse_loss(outputs, labels), "outputs": outputs}


def train_with_lightning(model, data, validation, steps_between):
    """Train and return the losses of the evaluation."""
    import lightning

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch):
            return self.model(**batch)["loss"]

        def validation_step(self, batch):
            self.log("loss", self.model(**batch)["loss"])

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        val_check_interval=steps_between,
        num_sanity_val_steps=0,
    )
    loaders = [DataLoader(part, batch_size=BATCH) for part in (data, validation) if part]
    trainer.fit(Module(), *loaders)
    return [float(loss) for loss in trainer.callback_metrics.values()]


def train_with_transformers(model, data, validation, steps_between):
    """Train and return the losses of the evaluation."""
    from transformers import Trainer, TrainingArguments, set_seed

    set_seed(0)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="checkpoints",
            num_train_epochs=1,
            per_device_train_batch_size=BATCH,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            eval_strategy="steps" if steps_between else "no",
            eval_steps=steps_between,
            per_device_eval_batch_size=BATCH,
        ),
        train_dataset=data,
        eval_dataset=validation,
    )
    trainer.train()
    return [trainer.evaluate(validation)["eval_loss"]] if validation else []


def train_with_accelerate(model, data, validation, steps_between):
    """Train and return the losses."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(
        model, optimizer, DataLoader(data, batch_size=BATCH)
    )
    losses = []
    for step, batch in enumerate(loader, 1):
        optimizer.zero_grad()
        loss = model(**batch)["loss"]
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.item())
        if validation and step % (steps_between or len(loader)) == 0:
            model.eval()
            with torch.no_grad():
                for held_out in accelerator.prepare(DataLoader(validation, batch_size=BATCH)):
                    losses.append(model(**held_out)["loss"].item())
            model.train()
    return losses


TRAINERS = {
    "lightning": train_with_lightning,
    "transformers": train_with_transformers,
    "accelerate": train_with_accelerate,
}


def main():
    parser = argparse.ArgumentParser(description="Trains a small network with a trainer.")
    parser.add_argument("trainer", choices=TRAINERS)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--slow-loader", action="store_true")
    parser.add_argument("--validate-often", action="store_true")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Network()
    data = Samples(arguments.steps * BATCH, arguments.slow_loader)
    validation = Samples(4 * BATCH) if arguments.evaluate else None
    if arguments.validate_often:
        validation = Samples(32 * BATCH)
    steps_between = STEPS_BETWEEN if arguments.validate_often else None
    losses = TRAINERS[arguments.trainer](model, data, validation, steps_between)
    digest = hashlib.sha256("".join(loss.hex() for loss in losses).encode())
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    print(f"result {digest.hexdigest()}")


main()
