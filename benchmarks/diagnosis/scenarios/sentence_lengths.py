# /// scenario
# suspect = "framework_overhead"
# cause = "recompilation"
# fix = "compile once for dynamic shapes, or pad to a few fixed shapes"
# severities = [0.7, 1.0, 1.5]  # how far the lengths are apart, and so how many there are
# quick = true
# ///
"""Trains a compiled encoder on sentences, each batch as long as its longest."""

import torch
from common import TextEncoder, arguments, sgd, train

BATCH = 8
STEPS = 120
MAX_LENGTH = 80


def main():
    args = arguments(__doc__)
    torch._dynamo.config.recompile_limit = 128
    lengths = 8 + torch.empty(STEPS).exponential_(1 / (7 * args.severity)).long()
    lengths = [
        MAX_LENGTH if args.fixed else int(length) for length in lengths.clamp(max=MAX_LENGTH)
    ]
    model = torch.compile(TextEncoder(2000, 64, 2), backend="aot_eager", dynamic=False)
    batches = (
        (torch.randint(2000, (BATCH, length)), torch.randint(2, (BATCH,))) for length in lengths
    )
    train(model, sgd(model, momentum=0), batches)


if __name__ == "__main__":
    main()
