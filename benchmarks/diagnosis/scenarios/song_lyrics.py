# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.2]  # samples in a batch
# ///
"""Trains a little GPT-2 on lyrics with the Hugging Face Trainer, and measures its perplexity."""

import math
import tempfile

import torch
from common import Samples, Throughput, arguments
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

LENGTH = 64
LETTERS = 512
STEPS = 100


class Lyrics(Samples):
    """Pieces of one long text of letter pairs."""

    def __init__(self, length):
        super().__init__(length)
        self.text = torch.randint(LETTERS, (50_000,))

    def __getitem__(self, index):
        start = index * 37 % (len(self.text) - LENGTH)
        piece = self.text[start : start + LENGTH]
        return {"input_ids": piece, "labels": piece}


class Speed(TrainerCallback):
    def __init__(self):
        self.meter = Throughput()

    def on_step_end(self, args, state, control, **kwargs):
        self.meter.update(args.train_batch_size)


def main():
    options = arguments(__doc__, threads=None)
    batch = round(20 * options.severity)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=LETTERS, n_positions=LENGTH, n_embd=192, n_layer=2, n_head=4)
    )
    speed = Speed()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=batch,
                max_steps=STEPS,
                learning_rate=3e-4,
                warmup_steps=20,
                logging_steps=40,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                use_cpu=True,
                seed=options.seed,
            ),
            train_dataset=Lyrics(STEPS * batch),
            eval_dataset=Lyrics(4 * batch),
            callbacks=[speed],
        )
        trainer.train()
        print(f"perplexity {math.exp(trainer.evaluate()['eval_loss']):.1f}")
    speed.meter.report()


if __name__ == "__main__":
    main()
