"""Training loop with short steps that switches stepscope off and on between epochs.

Usage: short_steps.py OUT.json --job plain|lightning|anomaly [--width N] [--layers N] [--batch N]

Off, every patched function of torch is the original again, the sampler and the garbage collector's
callback are removed, and the monitor is stopped. It writes for each epoch, in pairs of random
order, the wall and thread CPU nanoseconds of its steps.
"""

import argparse
import gc
import json
import os
import random
import signal
import time
from pathlib import Path

import torch
from torch import nn
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, TensorDataset, _utils, dataloader

from stepscope.capture import stacks
from stepscope.capture.frameworks.pytorch import loading

STEPS_PER_EPOCH = 50
SKIPPED_STEPS = 5
"""Steps after a switch: the interpreter adapts to the exchanged functions."""
WARM_UP_S = 6.0
"""Longer than the automatic window takes."""
CLASSES = 10


class Switch:
    """Switch between the adapters with the monitor, and nothing."""

    def __init__(self):
        owners = (
            (nn.Module, "__call__"),
            (torch.autograd.graph, "_engine_run_backward"),
            (torch.autograd, "_engine_run_backward"),
            (dataloader._BaseDataLoaderIter, "__next__"),
            (DataLoader, "__iter__"),
            (_utils.fetch._MapDatasetFetcher, "fetch"),
        )
        self.patches = [(owner, name, getattr(owner, name)) for owner, name in owners]
        hooks = optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks
        self.hooks = [(registry, dict(registry)) for registry in hooks]
        self.watch = stacks.watch_this_thread
        self.monitors = find_monitors()
        self.off_since_ns = None

    def set(self, *, on):
        for owner, name, wrapper in self.patches:
            setattr(owner, name, wrapper if on else wrapper._torchdynamo_inline)
        for registry, hooks in self.hooks:
            registry.clear()
            registry.update(hooks if on else {})
        for pid in self.monitors:
            os.kill(pid, signal.SIGCONT if on else signal.SIGSTOP)
        if on and self.off_since_ns is not None:
            # The time without stepscope is none between two batches that it recorded.
            for thinning in loading._thinnings.values():
                thinning._start_ns += time.monotonic_ns() - self.off_since_ns
            self.off_since_ns = None
        elif not on and self.off_since_ns is None:
            self.off_since_ns = time.monotonic_ns()
        if on:
            stacks.watch_this_thread = self.watch
            stacks.watch_this_thread(stacks.MAIN_PERIOD_S)
            stacks.watch_this_process()
        else:
            stacks.watch_this_thread = lambda period_s: None
            stacks.stop()
            if stacks._watch in gc.callbacks:
                gc.callbacks.remove(stacks._watch)


def find_monitors():
    spool = os.environ["STEPSCOPE_SPOOL"]
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_text()
        except OSError:  # ended
            continue
        if "stepscope.monitor" in command and spool in command:
            pids.append(int(entry.name))
    return pids


class Recorder:
    """Measurement of epochs: warm-up, then pairs of an epoch with and one without stepscope."""

    def __init__(self, pairs):
        self.pairs = pairs
        self.results = {"off": [], "on": []}
        self.order = []
        self.steps = []
        self.switch = None
        self.started = time.monotonic()

    def begin_epoch(self):
        """Return False if all pairs are measured."""
        if self.switch is None:
            if time.monotonic() - self.started < WARM_UP_S:
                return True
            self.switch = Switch()
        if not self.order:
            if len(self.results["on"]) == self.pairs:
                self.switch.set(on=True)
                return False
            self.order = random.sample(["on", "off"], 2)
        self.switch.set(on=self.order[-1] == "on")
        return True

    def begin_steps(self):
        self.steps = []
        self.last = time.perf_counter_ns(), time.thread_time_ns()

    def end_step(self):
        now = time.perf_counter_ns(), time.thread_time_ns()
        self.steps.append((now[0] - self.last[0], now[1] - self.last[1]))
        self.last = now

    def end_epoch(self):
        if self.switch is not None:
            self.results[self.order.pop()].append(self.steps[SKIPPED_STEPS:])


def make_model(arguments):
    width = arguments.width
    hidden = [
        layer for _ in range(arguments.layers) for layer in (nn.Linear(width, width), nn.ReLU())
    ]
    return nn.Sequential(*hidden, nn.Linear(width, CLASSES))


def run_plain(arguments, loader, recorder):
    model = make_model(arguments)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_function = nn.CrossEntropyLoss()
    while recorder.begin_epoch():
        recorder.begin_steps()
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss_function(model(inputs), labels).backward()
            optimizer.step()
            recorder.end_step()
        recorder.end_epoch()


def run_lightning(arguments, loader, recorder):
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = make_model(arguments)
            self.loss_function = nn.CrossEntropyLoss()

        def training_step(self, batch, _):
            inputs, labels = batch
            loss = self.loss_function(self.model(inputs), labels)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

    class Blocks(lightning.Callback):
        def on_train_epoch_start(self, trainer, module):
            recorder.begin_steps()

        def on_train_batch_end(self, trainer, module, *_):
            recorder.end_step()

        def on_train_epoch_end(self, trainer, module):
            recorder.end_epoch()
            trainer.should_stop = not recorder.begin_epoch()

    recorder.begin_epoch()
    trainer = lightning.Trainer(
        max_epochs=-1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=[Blocks()],
    )
    trainer.fit(Classifier(), loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--job", choices=["plain", "lightning", "anomaly"], default="plain")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=60)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    if arguments.job == "anomaly":
        torch.autograd.set_detect_anomaly(True)
    count = arguments.batch * STEPS_PER_EPOCH
    data = TensorDataset(torch.randn(count, arguments.width), torch.randint(CLASSES, (count,)))
    loader = DataLoader(data, batch_size=arguments.batch, shuffle=True)
    recorder = Recorder(arguments.pairs)
    run = run_lightning if arguments.job == "lightning" else run_plain
    run(arguments, loader, recorder)
    arguments.out.write_text(json.dumps(recorder.results))


if __name__ == "__main__":
    main()
