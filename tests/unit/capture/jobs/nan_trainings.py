"""Small trainings, each in a forked process with a search of its own.

Those in `FAULTY` have a non-finite loss, gradient or parameter; the line of its origin ends with a
comment of the form `origin: name`. Those in `HEALTHY` have none.

    python nan_trainings.py OUT [NAME …]    OUT gets one line per training: name, process, digest
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
import traceback
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

from stepscope.capture.frameworks.pytorch import nan_search

STEPS = 3
RANKS = 2
FAULTY = {}
HEALTHY = {}
digests = []
ddp_models = []
"""Not freed before the process ends: torch 2.13 waits forever, in one of four processes under load,
when a DDP model is freed after its group was destroyed. The thread that holds the interpreter lock
waits there for one that needs it."""


def faulty(function):
    FAULTY[function.__name__] = function
    return function


def healthy(function):
    HEALTHY[function.__name__] = function
    return function


def train(model, compute_loss, optimizer=None, steps=STEPS):
    """Train, and remember losses and parameters."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        loss = compute_loss(step)
        loss.backward()
        optimizer.step()
        digests.append(loss.detach().clone())
    digests.extend(parameter.detach().clone() for parameter in model.parameters())


def batch(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@faulty
def log_of_zero():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())

    def compute_loss(step):
        shares = model(batch(8, 4)) * (step < 1)
        entropy = torch.log(shares)  # origin: log_of_zero
        return -(shares * entropy).sum() if step >= 1 else shares.sum()

    train(model, compute_loss)


class Normalized(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        x = self.layer(x) * x
        norm = x.pow(2).sum(1, keepdim=True).detach().sqrt()
        return x / norm  # origin: zero_by_zero_in_norm


@faulty
def zero_by_zero_in_norm():
    model = nn.Sequential(nn.Identity(), Normalized())
    x = batch(8, 4)

    def compute_loss(step):
        return model(x if step < 2 else x * (torch.arange(8) != 5)[:, None]).sum()

    train(model, compute_loss)


@faulty
def half_precision_overflow():
    model = nn.Linear(64, 2).half()
    nn.init.constant_(model.weight, 30.0)

    def compute_loss(step):
        x = torch.full((4, 64), 10.0 ** (step + 1), dtype=torch.float16)
        return model(x).float().mean()  # origin: half_precision_overflow

    train(model, compute_loss, torch.optim.SGD(model.parameters(), lr=1e-6))


@faulty
def ignored_labels():
    model = nn.Linear(4, 3)
    labels = torch.tensor([0, 1, 2, 0])

    def compute_loss(step):
        target = labels if step < 1 else torch.full((4,), -100)
        return nn.CrossEntropyLoss()(model(batch(4, 4)), target)  # origin: ignored_labels

    train(model, compute_loss)


@faulty
def missing_target():
    model = nn.Linear(4, 1)

    def compute_loss(step):
        target = torch.tensor([[1.0], [float("nan") if step == 1 else 2.0], [3.0], [4.0]])
        return F.mse_loss(model(batch(4, 4)), target)  # origin: missing_target

    train(model, compute_loss)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(5 * torch.eye(8))

    def forward(self, x):
        hidden = torch.zeros(2, 8)
        for _ in range(80):
            hidden = hidden @ self.weight + x  # origin: exploding_recurrence
        return hidden


@faulty
def exploding_recurrence():
    model = Recurrent()
    train(model, lambda step: model(batch(2, 8)).pow(2).mean())


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, padding):
        scores = self.query(x) @ self.key(x).transpose(1, 2)
        scores = scores.masked_fill(padding[:, None, :], float("-inf"))
        return scores.softmax(-1) @ x  # origin: masked_row


@faulty
def masked_row():
    model = Attention()
    padding = torch.tensor([[False, False, True], [False, True, True]])

    def compute_loss(step):
        mask = padding if step < 2 else padding | torch.tensor([[False], [True]])
        return model(batch(2, 3, 4), mask).pow(2).sum()

    train(model, compute_loss)


@faulty
def division_in_loss():
    model = nn.Linear(4, 1)

    def compute_loss(step):
        weights = (torch.arange(8) < 4 - 4 * step).float()
        errors = (model(batch(8, 4)).squeeze(1) - 1).abs()
        return (weights * errors).sum() / weights.sum()  # origin: division_in_loss

    train(model, compute_loss)


class Samples(Dataset):
    def __init__(self, corrupt):
        self.corrupt = corrupt

    def __len__(self):
        return 24

    def __getitem__(self, index):
        sample = [float(index), 1.0, float("nan") if index == self.corrupt else 2.0, 3.0]
        return torch.tensor(sample), torch.tensor([1.0])


def train_on_samples(corrupt):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for x, target in DataLoader(Samples(corrupt), batch_size=4):  # origin: corrupt_sample
        loss = F.mse_loss(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        digests.append(loss.detach())


@faulty
def corrupt_sample():
    train_on_samples(13)


@faulty
def epsilon_zero():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters(), eps=0.0)
    x = batch(8, 4)
    x[:, 1] = 0
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()  # origin: epsilon_zero


@faulty
def square_root_at_zero():
    model = nn.Linear(4, 4, bias=False)
    x = batch(8, 4)

    def compute_loss(step):
        squares = model(x if step < 1 else torch.zeros(8, 4)).pow(2).sum(1)
        return squares.sqrt().mean()  # origin: square_root_at_zero

    train(model, compute_loss)


@faulty
def hidden_branch():
    """The gradient of the branch that `where` does not take is NaN."""
    model = nn.Linear(4, 4)

    def compute_loss(step):
        x = model(batch(8, 4))
        return torch.where(x > 0, x.sqrt(), x).sum()  # origin: hidden_branch

    train(model, compute_loss)


@faulty
def infinite_weight():
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight[0, 0] = float("nan")
    train(model, lambda step: model(batch(8, 4)).sum())  # origin: infinite_weight


@faulty
def deviation_of_one():
    """Standardized in place, in a batch of one, within a checkpoint."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def standardize(x):
        y = model(x)
        return y.sub_(y.mean(0)).div_(y.std(0))  # origin: deviation_of_one

    def compute_loss(step):
        x = batch(8 if step < 1 else 1, 4)
        return checkpoint(standardize, x, use_reentrant=False).sum()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(model, compute_loss)


@faulty
def complex_phase():
    model = nn.Linear(4, 4)

    def compute_loss(step):
        spectrum = torch.fft.fft(model(batch(8, 4)) * (step < 1))
        return (spectrum / spectrum.abs()).real.sum()  # origin: complex_phase

    train(model, compute_loss)


@faulty
def second_loss():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(batch(8, 4)).pow(2).mean().backward()
        penalty = model.weight.sum() * step
        torch.acos(2 * penalty / penalty.detach()).backward()  # origin: second_loss
        optimizer.step()


@faulty
def collapsed_scale():
    model = nn.Linear(4, 2, bias=False)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        optimizer.zero_grad()
        norm = model(torch.zeros(4, 4)).pow(2).sum().sqrt()  # origin: collapsed_scale
        scaler.scale(norm).backward()
        scaler.step(optimizer)
        scaler.update()


@faulty
def stops_at_loss():
    """The script raises instead of calling `backward()`."""
    model = nn.Linear(4, 2)

    def compute_loss(step):
        loss = (model(batch(8, 4)).sum() * 0) / step  # origin: stops_at_loss
        if not torch.isfinite(loss):
            raise FloatingPointError("the loss is not finite")
        return loss

    train(model, lambda step: compute_loss(1 - step))


@faulty
def exchanged_gradients():
    """Two ranks, of which the second one computes a gradient that is not finite."""
    rank, store = int(os.environ["RANK"]), os.environ["STORE"]
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=RANKS)
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4, bias=False))
    ddp_models.append(model)

    def compute_loss(step):
        squares = model(batch(8, 4) * (0 if step == rank == 1 else 1)).pow(2).sum()
        return squares.sqrt()  # origin: exchanged_gradients

    train(model, compute_loss)
    dist.destroy_process_group()


class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("mask", torch.triu(torch.full((3, 3), float("-inf")), 1))

    def forward(self, x):
        x = self.layer(x)
        scores = x @ x.transpose(1, 2)
        shares = (scores + self.mask).softmax(-1)
        mask = torch.tensor([1.0, 1.0, 0.0]).log()
        return F.scaled_dot_product_attention(x, x, shares @ x, attn_mask=mask.expand(3, 3))


@healthy
def deliberate_masks():
    model = Causal()

    def compute_loss(step):
        best = torch.full((2,), float("inf"))
        best = torch.minimum(best, model(batch(2, 3, 4)).pow(2).sum((1, 2)))
        return best.sum()

    train(model, compute_loss)


@healthy
def skipped_steps():
    model = nn.Linear(4, 2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(12):
        optimizer.zero_grad()
        loss = (100 * model(batch(8, 4))).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        digests.append(loss.detach())
    assert scaler.get_scale() < 2.0**127


@healthy
def metric_without_value():
    model = nn.Linear(4, 2)

    def compute_loss(step):
        output = model(batch(8, 4))
        precision = torch.zeros(2) / torch.zeros(2)
        digests.append(precision.nanmean().nan_to_num())
        assert math.isnan(precision[0].item())
        return output.pow(2).mean()

    train(model, compute_loss)


@healthy
def gradient_that_is_clipped():
    model = nn.Linear(4, 4, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(batch(8, 4)).pow(2).sum().backward()
        model.weight.grad[0, 0] = float("inf")
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()


@faulty
def recurs():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step in range(6):
        optimizer.zero_grad()
        count = (torch.arange(8) < (0 if step in {2, 4} else 4)).float()
        errors = (model(batch(8, 4)).squeeze(1) - 1).abs()
        scaler.scale((count * errors).sum() / count.sum()).backward()  # origin: recurs
        scaler.step(optimizer)
        scaler.update()


@faulty
def last_loss():
    model = nn.Linear(4, 1)
    scales = [1.0, 1.0, 1e4]

    def compute_loss(step):
        output = model(batch(8, 4)).abs() * scales[step]
        return output.exp().mean()  # origin: last_loss

    train(model, compute_loss)


@healthy
def samples_without_fault():
    train_on_samples(None)


def run(function, out, name):
    """Run one training, and write a digest of what it has computed; return the exit status."""
    torch.manual_seed(0)
    status = 0
    try:
        function()
    except FloatingPointError as error:
        sys.last_type = type(error)  # as the interpreter does
    except BaseException:  # noqa: BLE001 - the test reads it
        traceback.print_exc()
        status = 1
    data = b"".join(tensor.detach().numpy().tobytes() for tensor in digests)
    digest = hashlib.sha256(data).hexdigest()
    with Path(out).open("a", encoding="utf-8") as file:
        file.write(f"{name} {os.getpid()} {digest}\n")
    return status


def main():
    out, *names = sys.argv[1:]
    torch.set_num_threads(1)
    start = os.environ.pop("START", None)
    status = 0
    for name in names or [*FAULTY, *HEALTHY]:
        function = (FAULTY | HEALTHY)[name]
        os.environ["STORE"] = f"{out}-{name}"
        pids = []
        for rank in range(RANKS if function is exchanged_gradients else 1):
            os.environ["RANK"] = str(rank)
            pid = os.fork()
            if not pid:
                if start is not None:
                    os.environ["STEPSCOPE_NAN_SEARCH"] = start
                    nan_search.install()
                sys.exit(run(function, out, f"{name}_{rank}" if rank else name))
            pids.append(pid)
        for pid in pids:
            status |= os.waitpid(pid, 0)[1]
    sys.exit(bool(status))


if __name__ == "__main__":
    main()
