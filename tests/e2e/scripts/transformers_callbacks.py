"""A tiny BERT trained by the Trainer of Transformers with a slow callback and checkpoints."""

import argparse
import os
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

EXPECTED_STEPS = 40
EPOCHS = 2
LOG_INTERVAL = 10


class Reviews(Dataset):
    def __len__(self):
        return EXPECTED_STEPS // EPOCHS * 4

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return {
            "input_ids": torch.randint(0, 100, (8,), generator=generator),
            "labels": torch.tensor(index % 2),
        }


class SlowCallback(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        end = time.perf_counter() + 0.1
        while time.perf_counter() < end:
            pass


def main():
    parser = argparse.ArgumentParser(description="Sequence classification with Trainer.")
    parser.add_argument("directory")
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--resume", metavar="CHECKPOINT")
    arguments = parser.parse_args()

    set_seed(42)
    torch.set_num_threads(1)
    config = BertConfig(
        vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32,
    )  # fmt: skip
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=TrainingArguments(
            output_dir=arguments.directory,
            num_train_epochs=EPOCHS,
            learning_rate=arguments.learning_rate,
            per_device_train_batch_size=4,
            logging_steps=LOG_INTERVAL,
            eval_strategy="epoch",
            save_strategy="epoch",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=Reviews(),
        eval_dataset=Reviews(),
        callbacks=[SlowCallback()],
    )
    trainer.train(resume_from_checkpoint=arguments.resume)
    trainer.predict(Reviews())
    sys.stdout.write(f"{trainer.evaluate()['eval_loss']:.9f}\n")


main()
