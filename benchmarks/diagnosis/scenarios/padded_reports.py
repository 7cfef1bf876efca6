# /// scenario
# suspect = "model"
# cause = "padding"
# fix = "pad each batch to its longest report"
# severities = [0.8, 1.0, 1.5]  # positions of a padded row, relative to 96
# ///
"""Trains a small transformer on short reports, padded to one length."""

import torch
from common import Samples, arguments, sgd, train
from torch import nn
from torch.utils.data import DataLoader

WORDS = 500
CLASSES = 6
ROW = 96
MAX_WORDS = 24
BATCH = 16


class Reports(Samples):
    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        length = int(torch.randint(MAX_WORDS // 3, MAX_WORDS + 1, (), generator=generator))
        return torch.randint(1, WORDS, (length,), generator=generator), index % CLASSES


class Collator:
    def __init__(self, row):
        self.row = row

    def __call__(self, samples):
        row = self.row or max(len(words) for words, _ in samples)
        ids = torch.zeros(len(samples), row, dtype=torch.long)
        for position, (words, _) in enumerate(samples):
            ids[position, : len(words)] = words
        labels = torch.tensor([label for _, label in samples])
        return {"input_ids": ids, "attention_mask": (ids > 0).long()}, labels


class Classifier(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, batch):
        mask = batch["attention_mask"]
        hidden = self.encoder(self.words(batch["input_ids"]), src_key_padding_mask=mask == 0)
        return self.head((hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))


def main():
    args = arguments(__doc__)
    collate = Collator(None if args.fixed else round(ROW * args.severity))
    model = Classifier()
    train(model, sgd(model), DataLoader(Reports(200 * BATCH), BATCH, collate_fn=collate))


if __name__ == "__main__":
    main()
