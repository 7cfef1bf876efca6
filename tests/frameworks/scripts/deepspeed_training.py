"""Training of a small network by DeepSpeed on the CPU; two batches make a step.

Options are those of `stepscope.testing.framework_contract`. On several ranks the state of the
optimizer and the gradients are sharded.
"""

import argparse
import hashlib
import os
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH, BATCHES_PER_STEP = 4, 2
SLOW_S = 0.04
LONG_VALIDATION = 512
"""Batches: they take longer than the communication of four steps on cores that others use, too."""
ALONE = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}
"""Environment of a process without a launcher."""
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # which would be compiled first


class Samples(Dataset):
    """Random samples; slow ones take most of a step."""

    def __init__(self, count, is_slow=False):
        self.inputs = torch.randn(count, 16, generator=torch.Generator().manual_seed(1))
        self.is_slow = is_slow

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        if self.is_slow:
            time.sleep(SLOW_S / BATCH)
        return self.inputs[index], self.inputs[index].sum(dim=0, keepdim=True).tanh()


def evaluate(engine, batch_count):
    """Return the losses of another set of samples."""
    engine.eval()
    with torch.no_grad():
        batches = DataLoader(Samples(batch_count * BATCH), batch_size=BATCH)
        losses = [nn.functional.mse_loss(engine(inputs), targets) for inputs, targets in batches]
    engine.train()
    return [loss.item() for loss in losses]


def main():
    parser = argparse.ArgumentParser(description="Trains a small network with DeepSpeed.")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--slow-loader", action="store_true")
    parser.add_argument("--validate-often", action="store_true")
    # `deepspeed` adds an option for the rank.
    arguments, _ = parser.parse_known_args()

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.update({name: value for name, value in ALONE.items() if name not in os.environ})
    torch.manual_seed(0)
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    ranks = torch.distributed.get_world_size()
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
        config={
            "train_micro_batch_size_per_gpu": BATCH,
            "gradient_accumulation_steps": BATCHES_PER_STEP,
            "zero_optimization": {"stage": 2 if ranks > 1 else 0},
            "zero_allow_untested_optimizer": True,
        },
    )
    data = Samples(arguments.steps * BATCHES_PER_STEP * BATCH, arguments.slow_loader)
    steps_between = 4 if arguments.validate_often else 10
    losses = []
    for inputs, targets in DataLoader(data, batch_size=BATCH):
        loss = nn.functional.mse_loss(engine(inputs), targets)
        engine.backward(loss)
        is_due = engine.is_gradient_accumulation_boundary()
        engine.step()
        losses.append(loss.item())
        is_due = is_due and engine.global_steps % steps_between == 0
        if is_due and (arguments.evaluate or arguments.validate_often):
            losses += evaluate(engine, LONG_VALIDATION if arguments.validate_often else 2)
    digest = hashlib.sha256("".join(loss.hex() for loss in losses).encode())
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    # One write: the ranks share a pipe.
    os.write(1, f"result {torch.distributed.get_rank()} {digest.hexdigest()}\n".encode())
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


main()
