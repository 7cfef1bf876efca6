# /// scenario
# healthy = true
# severities = [0.8, 1.0, 1.3]  # width of the model
# ///
"""Trains a small transformer on text that one worker cuts into windows."""

import torch
from common import Throughput, arguments
from torch import nn
from torch.utils.data import DataLoader, Dataset

CHARACTERS = 96
LENGTH = 64
BATCH = 8
STEPS = 130


class Windows(Dataset):
    def __init__(self):
        self.text = torch.randint(0, CHARACTERS, (200_000,))

    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, index):
        window = self.text[index * 100 : index * 100 + LENGTH + 1]
        return window[:-1], window[1:]


class Characters(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed = nn.Embedding(CHARACTERS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, CHARACTERS)
        self.mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)

    def forward(self, text):
        return self.head(self.layers(self.embed(text), mask=self.mask, is_causal=True))


def main():
    args = arguments(__doc__)
    loader = DataLoader(Windows(), batch_size=BATCH, shuffle=True, num_workers=1)
    model = Characters(32 * round(6 * args.severity))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    meter = Throughput()
    for text, following in loader:
        optimizer.zero_grad()
        scores = model(text)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())
        loss.backward()
        optimizer.step()
        meter.update(len(text))
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
