# /// scenario
# suspect = "data_pipeline"
# cause = "slow_tokenisation"
# fix = "tokenise the contracts once before training"
# severities = [0.7, 1.0, 1.5]  # words of a contract
# held_out = true
# ///
"""Fine-tuning of a small BERT on contracts with the Trainer of transformers."""

import os
import random
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from common import Throughput, arguments
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.utils import logging

logging.set_verbosity_error()

SYLLABLES = "ac am be con de ex in li mu no per qua re se sub ti tor un ver vi".split()
MAX_LENGTH = 32


def write_contracts(number, words, rng):
    vocabulary = [
        "".join(rng.choices(SYLLABLES, k=rng.randint(1, 5))) + rng.choice(["", "", "s", "ed", "ly"])
        for _ in range(30000)
    ]
    contracts = []
    for _ in range(number):
        text = rng.choices(vocabulary, k=words)
        kind = rng.randrange(4)
        text[3] = ["lease", "loan", "merger", "licence"][kind]
        contracts.append((" ".join(text).capitalize() + ".", kind))
    return contracts


def train_tokenizer(texts):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(
        texts,
        trainers.WordPieceTrainer(
            vocab_size=3000,
            special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"],
            show_progress=False,
        ),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


class Contracts(Dataset):
    def __init__(self, contracts, tokenizer, length):
        self.contracts, self.tokenizer, self.length = contracts, tokenizer, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        text, kind = self.contracts[index % len(self.contracts)]
        encoding = self.tokenizer(text, truncation=True, max_length=MAX_LENGTH)
        return {**encoding, "labels": kind}


class EncodedContracts(Dataset):
    def __init__(self, contracts, tokenizer, length):
        encoded = Contracts(contracts, tokenizer, len(contracts))
        self.examples = [encoded[index] for index in range(len(contracts))]
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return dict(self.examples[index % len(self.examples)])


class ThroughputCallback(TrainerCallback):
    def __init__(self, batch_size):
        self.throughput = Throughput()
        self.batch_size = batch_size

    def on_step_end(self, args, state, control, **kwargs):
        self.throughput.update(self.batch_size)


def main():
    args = arguments(__doc__)
    batch_size, steps = 32, 200
    contracts = write_contracts(256, int(850 * args.severity), random.Random(args.seed))
    tokenizer = train_tokenizer(text[:4000] for text, _ in contracts[:64])
    dataset = (EncodedContracts if args.fixed else Contracts)(
        contracts, tokenizer, batch_size * steps
    )
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=128,
            max_position_embeddings=MAX_LENGTH,
            num_labels=4,
        )
    )
    callback = ThroughputCallback(batch_size)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=batch_size,
                max_steps=steps,
                learning_rate=5e-4,
                warmup_steps=20,
                dataloader_num_workers=2,
                logging_steps=50,
                save_strategy="no",
                report_to=[],
                use_cpu=True,
                disable_tqdm=True,
                seed=args.seed,
            ),
            train_dataset=dataset,
            data_collator=DataCollatorWithPadding(
                tokenizer, padding="max_length", max_length=MAX_LENGTH
            ),
            callbacks=[callback],
        )
        trainer.train()
    callback.throughput.report()


if __name__ == "__main__":
    main()
