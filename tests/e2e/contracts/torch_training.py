"""Training loop of PyTorch: plain, data-parallel, sharded, compiled, or in mixed precision.

Options are those of `stepscope.testing.framework_contract`.
"""

import argparse
import hashlib
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = ("plain", "ddp", "fsdp", "compile", "amp")
BATCH = 8
SLOW_S = 0.02
LONG_VALIDATION = 512
"""Batches: they take longer than the exchange of four steps on cores that others use, too. FSDP
communicates in each of them."""


class Samples(Dataset):
    """Random samples; slow ones take most of a step."""

    def __init__(self, count, is_slow):
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(count, 16, generator=generator)
        self.is_slow = is_slow

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        if self.is_slow:
            time.sleep(SLOW_S / BATCH)
        return self.inputs[index], self.inputs[index].sum(dim=0, keepdim=True).tanh()


class TimedLoader:
    """A loader, and the time that its batches were waited for."""

    def __init__(self, loader):
        self.loader = loader
        self.waited_s = 0.0

    def __iter__(self):
        batches = iter(self.loader)
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            self.waited_s += time.perf_counter() - start
            if batch is None:
                return
            yield batch


def wrap(model, kind):
    """Return the model as its kind of training calls it."""
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if kind == "fsdp":
        from torch.distributed.fsdp import fully_shard

        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        return fully_shard(model, mesh=mesh)
    if kind == "compile":
        return torch.compile(model, backend="aot_eager")
    return model


def find_digest(model):
    """Return a hash of the weights; every rank has to call it."""
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        weights = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        digest.update(weights.detach().numpy().tobytes())
    return digest.hexdigest()


def train(kind, model, arguments):
    """Train and return the losses, and the time of waits in seconds."""
    called = wrap(model, kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=kind == "amp")
    data = Samples(arguments.steps * BATCH, arguments.slow_loader)
    losses = []
    loader = TimedLoader(DataLoader(data, batch_size=BATCH))
    for step, (inputs, targets) in enumerate(loader):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "amp"):
            loss = nn.functional.mse_loss(called(inputs).float(), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        if arguments.validate_often and step % 4 == 3:
            losses.append(evaluate(called, LONG_VALIDATION // (4 if kind == "fsdp" else 1)))
        elif arguments.evaluate and step % 10 == 9:
            losses.append(evaluate(called, 2))
    return losses, loader.waited_s


def evaluate(model, batch_count):
    """Return the loss of another set of samples."""
    model.eval()
    losses = []
    with torch.no_grad():
        for inputs, targets in DataLoader(Samples(batch_count * BATCH, False), batch_size=BATCH):
            losses.append(nn.functional.mse_loss(model(inputs).float(), targets).item())
    model.train()
    return sum(losses)


def main():
    parser = argparse.ArgumentParser(description="Trains a small network.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--slow-loader", action="store_true")
    parser.add_argument("--validate-often", action="store_true")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    is_distributed = "RANK" in os.environ
    if is_distributed:
        dist.init_process_group("gloo")
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
    losses, waited_s = train(arguments.kind, model, arguments)
    rank = dist.get_rank() if is_distributed else 0
    # One write: the ranks share a pipe.
    text = "".join(loss.hex() for loss in losses)
    result = hashlib.sha256(f"{text} {find_digest(model)}".encode()).hexdigest()
    os.write(1, f"result {rank} {result}\nwaited {waited_s}\n".encode())
    if is_distributed:
        dist.barrier()
        dist.destroy_process_group()


main()
