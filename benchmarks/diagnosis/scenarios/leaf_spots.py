# /// scenario
# healthy = true
# severities = [0.7, 1.0, 1.5]  # the width of the network
# ranks = 2
# held_out = true
# ///
"""Names the disease that spotted a leaf, data parallel on two ranks."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import Throughput, arguments, convolutions
from torch.nn.parallel import DistributedDataParallel

DISEASES = 10
BATCH = 32
STEPS = 230


def leaves(count, generator):
    labels = torch.randint(DISEASES, (count,), generator=generator)
    pictures = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return pictures, labels


def normalise(pictures):
    return pictures.float().div_(127.5).sub_(1.0)


def epochs(pictures, labels, generator):
    while True:
        for rows in torch.randperm(len(labels), generator=generator).split(BATCH):
            yield normalise(pictures[rows]), labels[rows]


def main():
    args = arguments(__doc__)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(args.seed + 1000 * rank)
    pictures, labels = leaves(1024, generator)
    model = DistributedDataParallel(convolutions(3, 32, int(36 * args.severity**0.5), DISEASES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    meter = Throughput()
    batches = epochs(pictures, labels, generator)
    for step in range(1, STEPS + 1):
        x, y = next(batches)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            total = loss.detach().clone()
            dist.all_reduce(total)
            if rank == 0:
                print(f"step {step}: loss {total.item() / dist.get_world_size():.4f}", flush=True)
        meter.update(BATCH)
    if rank == 0:
        meter.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
