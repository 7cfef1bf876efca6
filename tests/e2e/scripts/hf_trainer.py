"""Fine-tunes a tiny BERT classifier with the transformers Trainer, evaluating every epoch."""

import argparse
import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

EXPECTED_STEPS = 30


class Reviews(Dataset):
    """Random token sequences, labelled by whether their first token is in the upper half."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.input_ids = torch.randint(5, 500, (count, 32), generator=generator)
        self.labels = (self.input_ids[:, 0] > 250).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        input_ids = self.input_ids[index]
        return {
            "input_ids": input_ids,
            "attention_mask": torch.ones_like(input_ids),
            "labels": self.labels[index],
        }


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    parser = argparse.ArgumentParser(description="Sequence classification with Trainer.")
    parser.add_argument("--steps", type=int, default=EXPECTED_STEPS, help="over two epochs")
    args = parser.parse_args()

    set_seed(42)
    config = BertConfig(
        vocab_size=500,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        num_labels=2,
    )
    with tempfile.TemporaryDirectory() as output_dir:
        trainer = Trainer(
            model=BertForSequenceClassification(config),
            args=TrainingArguments(
                output_dir=output_dir,
                num_train_epochs=2,
                per_device_train_batch_size=16,
                per_device_eval_batch_size=32,
                learning_rate=1e-3,
                eval_strategy="epoch",
                save_strategy="no",
                logging_steps=10,
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=Reviews(args.steps // 2 * 16, seed=0),
            eval_dataset=Reviews(128, seed=1),
            compute_metrics=accuracy,
        )
        trainer.train()


if __name__ == "__main__":
    main()
