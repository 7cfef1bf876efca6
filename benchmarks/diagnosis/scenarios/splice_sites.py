# /// scenario
# suspect = "framework_overhead"
# cause = "checkpoint"
# fix = "save checkpoints less often"
# severities = [0.7, 1.0, 1.5]  # how often the trainer saves
# held_out = true
# ///
"""Teaches a small BERT to tell splice sites from other stretches of DNA, with the HF Trainer."""

import tempfile

import numpy as np
import torch
from common import Throughput, arguments
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

K = 8
BATCH = 32
LENGTH = 12
STEPS = 230


class Stretches(Dataset):
    """DNA cut into overlapping k-mers, tokenised once."""

    def __init__(self, count, rng):
        bases = rng.integers(0, 4, size=(count, LENGTH + K - 1))
        labels = rng.integers(0, 3, size=count)
        bases[labels == 1, 8:10] = (2, 3)
        bases[labels == 2, 8:10] = (0, 2)
        powers = 4 ** np.arange(K)
        windows = np.lib.stride_tricks.sliding_window_view(bases, K, axis=1)
        self.tokens = torch.from_numpy(windows @ powers + 1)
        self.labels = torch.from_numpy(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.labels[index]}


class Meter(TrainerCallback):
    def __init__(self):
        self.throughput = Throughput()

    def on_step_end(self, args, state, control, **kwargs):
        self.throughput.update(args.per_device_train_batch_size)


def main():
    args = arguments(__doc__)
    rng = np.random.default_rng(args.seed)
    dataset = Stretches(4096, rng)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=4**K + 1,
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=256,
            max_position_embeddings=64,
            num_labels=3,
        )
    )
    model.bert.embeddings.word_embeddings.requires_grad_(False)  # fixed k-mer vectors
    meter = Meter()
    with tempfile.TemporaryDirectory(prefix="splice") as folder:
        options = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=BATCH,
            learning_rate=5e-4,
            warmup_steps=20,
            lr_scheduler_type="cosine",
            save_strategy="steps",
            save_steps=120 if args.fixed else max(1, round(2 / args.severity)),
            save_total_limit=2,
            logging_steps=50,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=args.seed,
        )
        trainer = Trainer(model=model, args=options, train_dataset=dataset, callbacks=[meter])
        trainer.train()
    meter.throughput.report()


if __name__ == "__main__":
    main()
