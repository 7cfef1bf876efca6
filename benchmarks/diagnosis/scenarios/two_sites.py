# /// scenario
# suspect = "communication"
# cause = "straggler"
# stage = "rank 1"
# accept = ["communication/gradient_exchange"]
# # The slow link is imitated: rank 1 sends its gradients no faster than its share of the line.
# fix = "exchange less, or hide it better: accumulate gradients, compress them, repair the link"
# severities = [0.7, 1.0, 1.5]  # 1 is 40 MB/s
# ranks = 2
# ///
"""Trains a classifier on two ranks, one of them behind a slow line."""

import time

import torch.distributed as dist
from common import RANK, RANKS, arguments, perceptron, random_vectors, sampled, sgd, share, train


class Line:
    """Sends gradients, as fast as the line of this rank allows."""

    def __init__(self, bytes_per_s):
        self.bytes_per_s = bytes_per_s

    def __call__(self, _, bucket):
        gradients = bucket.buffer()
        if self.bytes_per_s:
            time.sleep(gradients.nbytes / self.bytes_per_s)
        gradients /= RANKS
        work = dist.all_reduce(gradients, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])


def main():
    args = arguments(__doc__)
    slow = RANK == 1 and not args.fixed
    model = share(perceptron(256, 640, 10, depth=3))
    model.register_comm_hook(None, Line(40e6 / args.severity if slow else None).__call__)
    train(model, sgd(model, momentum=0), sampled(random_vectors(1024, 256), 64, 80))


if __name__ == "__main__":
    main()
