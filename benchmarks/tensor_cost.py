"""Cost of recording statistics of tensors, by steps with and without it in one process.

A transformer (2.2 million parameters in 51 tensors) trains with one thread. Its steps take turns:
nothing recorded; statistics of all weights, biases and gradients; the same with histograms; and two
ways to do it by hand, seven reductions of each tensor read with `.item()`, and these with
`torch.histc` of 64 bins; and `wandb.watch(log="all")`, offline and at every step, if wandb is
installed (`pip install wandb`). Each way is compared with the step of its own round in which
nothing is recorded: reported are the medians over rounds of the thread's CPU time, with a bootstrap
interval of 95%. Writes benchmarks/results/tensor_cost.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from stepscope.capture import session
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch import install, tensors
from stepscope.capture.frameworks.pytorch.tensors.recorder import TensorRecorder
from stepscope.spool import TensorPlan

RESULTS = Path(__file__).resolve().parent / "results" / "tensor_cost.json"
WIDTH, LAYERS, VOCABULARY, BATCH, LENGTH = 192, 4, 1000, 24, 64
RESAMPLES = 4000
WANDB = 'wandb.watch(log="all")'


class Transformer(nn.Module):
    """Encoder with an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.TransformerEncoder(layer, LAYERS)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> Any:
        """Return the logits."""
        return self.head(self.layers(self.embedding(tokens)))


def reduce_by_hand(model: nn.Module, *, histograms: bool = False) -> list[Any]:
    """Read seven reductions of each weight and gradient, as hooks that are written by hand do."""
    numbers: list[Any] = []
    with torch.no_grad():
        for parameter in model.parameters():
            for tensor in (parameter, parameter.grad):
                if tensor is None:
                    continue
                for reduction in (
                    tensor.min(), tensor.max(), tensor.mean(), tensor.std(),
                    tensor.norm(1), tensor.norm(2), (tensor == 0).sum(),
                ):  # fmt: skip
                    numbers.append(reduction.item())
                if histograms:
                    numbers.append(torch.histc(tensor, 64).tolist())
    return numbers


class WandbWatch:
    """`wandb.watch` of a model: histograms of its parameters and gradients, in an offline run.

    Args:
        directory: for the files of wandb.
    """

    def __init__(self, directory: str) -> None:
        import wandb

        os.environ["WANDB_SILENT"] = "true"
        self._wandb: Any = wandb
        self._run: Any = wandb.init(mode="offline", dir=directory)

    def start(self, model: nn.Module) -> None:
        """Place the hooks, which is not measured."""
        self._wandb.watch(model, log="all", log_freq=1)

    def end(self, model: nn.Module) -> None:
        """Remove the hooks, which is not measured."""
        self._wandb.unwatch(model)

    def log(self, model: nn.Module) -> None:
        """Log the step."""
        self._run.log({})

    def finish(self) -> None:
        """End the run."""
        self._run.finish()


def main() -> None:
    """Measure, print a table, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as spool:
        session.attach(spool, 1 << 30)
        install()
        watch = None
        if importlib.util.find_spec("wandb") is None:
            print("wandb is not installed: it is not measured")
        else:
            watch = WandbWatch(spool)
        times = measure(arguments.rounds, watch)
        if watch is not None:
            watch.finish()
        session.detach()
    report(times)


def measure(rounds: int, watch: WandbWatch | None) -> dict[str, list[float]]:
    """Train, and return the CPU seconds of the steps by way."""
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    collections = ("weights", "biases", "gradients")
    plain, binned = (
        TensorRecorder(TensorPlan(collections=collections, interval=1, histograms=histograms))
        for histograms in (False, True)
    )
    ways: dict[str, tuple[TensorRecorder | None, Callable[[nn.Module], Any] | None]] = {
        "nothing": (None, None),
        "stepscope": (plain, None),
        "stepscope, histograms": (binned, None),
        "by hand": (None, reduce_by_hand),
        "by hand, histograms": (None, lambda model: reduce_by_hand(model, histograms=True)),
    }
    if watch is not None:
        ways[WANDB] = (None, watch.log)
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 2):
        for way, (recorder, hook) in ways.items():
            tensors.recorder = recorder
            tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
            if watch is not None and way == WANDB:
                watch.start(model)
            start = time.thread_time()
            optimizer.zero_grad()
            logits = model(tokens).view(-1, VOCABULARY)
            nn.functional.cross_entropy(logits, tokens.view(-1)).backward()
            optimizer.step()
            if hook is not None:
                hook(model)
            if number >= 2:
                times[way].append(time.thread_time() - start)
            if watch is not None and way == WANDB:
                watch.end(model)
    assert progress.step_count > rounds
    return times


def report(times: dict[str, list[float]]) -> None:
    """Print a table, and write the results."""
    base = np.array(times.pop("nothing"))
    generator = np.random.default_rng(0)
    results: dict[str, Any] = {
        "step_ms": 1e3 * float(np.median(base)),
        "load_average": os.getloadavg()[0],
        "rounds": len(base),
        "extra_ratio": {},
    }
    print(f"step without recording: {results['step_ms']:.0f} ms of CPU time")
    for way, seconds in times.items():
        extra = np.array(seconds) / base - 1
        resampled = np.median(extra[generator.integers(0, len(extra), (RESAMPLES, len(extra)))], 1)
        low, high = np.quantile(resampled, (0.025, 0.975))
        middle = statistics.median(extra)
        results["extra_ratio"][way] = [middle, float(low), float(high)]
        print(f"{way:24} {middle:7.1%}  ({low:.1%} to {high:.1%})")
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
