# /// scenario
# suspect = "framework_overhead"
# cause = "recompilation"
# fix = "compile once for dynamic shapes, or pad to a few fixed shapes"
# severities = [0.7, 1.0, 1.5]  # how far the lengths are apart, and so how many there are
# ///
"""Trains a compiled encoder on sentences, each batch as long as its longest."""

import torch
from common import Throughput, arguments
from torch import nn

WORDS = 2000
WIDTH = 64
BATCH = 8
STEPS = 120
MAX_LENGTH = 80


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, 0.0, batch_first=True)] * 1
        )
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, tokens):
        hidden = self.words(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden.mean(dim=1))


def main():
    args = arguments(__doc__)
    torch._dynamo.config.recompile_limit = 128
    lengths = 8 + torch.empty(STEPS).exponential_(1 / (7 * args.severity)).long()
    model = Encoder()
    step_model = torch.compile(model, backend="aot_eager", dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    meter = Throughput()
    for longest in lengths.clamp(max=MAX_LENGTH):
        length = MAX_LENGTH if args.fixed else int(longest)
        tokens = torch.randint(0, WORDS, (BATCH, length))
        labels = torch.randint(0, 2, (BATCH,))
        optimizer.zero_grad()
        loss = criterion(step_model(tokens), labels)
        loss.backward()
        optimizer.step()
        meter.update(BATCH)
    print(f"final loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
