# /// scenario
# suspect = "framework_overhead"
# cause = "checkpoint"
# fix = "write checkpoints less often"
# severities = [0.6, 1.0, 2.0]  # 1 is a checkpoint every other step
# ///
"""Fine-tunes a small BERT with the Hugging Face Trainer to route support tickets."""

import argparse
import tempfile

import torch
from common import Throughput
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

TEAMS = 12
WORDS = 30_522
BATCH = 16
STEPS = 150


class Tickets(Dataset):
    def __init__(self, length):
        self.tokens = torch.randint(1, WORDS, (600, 40))
        self.teams = torch.randint(TEAMS, (600,))
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        tokens = self.tokens[index % 600]
        return {
            "input_ids": tokens,
            "attention_mask": torch.ones_like(tokens),
            "labels": self.teams[index % 600],
        }


class Speed(TrainerCallback):
    def __init__(self):
        self.meter = Throughput()

    def on_step_end(self, args, state, control, **kwargs):
        self.meter.update(args.train_batch_size)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=WORDS,
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=512,
            max_position_embeddings=64,
            num_labels=TEAMS,
        )
    )
    speed = Speed()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=BATCH,
                max_steps=STEPS,
                learning_rate=1e-4,
                save_strategy="steps",
                save_steps=STEPS if options.fixed else max(1, round(2 / options.severity)),
                save_total_limit=2,
                logging_steps=50,
                report_to=[],
                disable_tqdm=True,
                use_cpu=True,
                seed=options.seed,
            ),
            train_dataset=Tickets(STEPS * BATCH),
            callbacks=[speed],
        )
        trainer.train()
    speed.meter.report()


if __name__ == "__main__":
    main()
