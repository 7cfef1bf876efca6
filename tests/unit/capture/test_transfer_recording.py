"""Transfers between two ranks in a script that bound the functions before they are recorded."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("torch") is None:  # importing it would take seconds
    pytest.skip("needs PyTorch", allow_module_level=True)

TIMEOUT_S = 120
SCRIPT = """
import inspect, pickle, sys
import torch
import torch.distributed as dist
from torch.distributed import P2POp, batch_isend_irecv, irecv, isend

signature = inspect.signature(isend)
from stepscope.capture.frameworks.pytorch import transfers
transfers.install()

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)

def swap(send, receive):
    received = torch.empty(3)
    sent = torch.full((3,), float(rank))
    batch = [P2POp(send, sent, 1 - rank), P2POp(receive, received, 1 - rank)]
    for work in batch_isend_irecv(batch):
        work.wait()
    assert received.tolist() == [1.0 - rank] * 3

swap(isend, irecv)
swap(dist.isend, dist.irecv)
swap(dist.distributed_c10d.isend, dist.distributed_c10d.irecv)
if rank:
    dist.send(torch.ones(2), 0)
else:
    dist.recv(torch.empty(2), src=1)
assert dist.isend is isend and pickle.loads(pickle.dumps(isend)) is isend
assert inspect.signature(isend) == signature
assert transfers.count_transfers() == 7
assert {one["peer"] for one in transfers.describe_transfers()} == {1 - rank}
assert [one["kind"] for one in transfers.describe_transfers()][:2] == ["isend", "irecv"]
dist.barrier()
print("swapped", flush=True)
"""


def test_functions_that_were_bound_before_stay_valid_in_batches(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [rank.communicate(timeout=TIMEOUT_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [out for out, _ in outputs] == ["swapped\n"] * 2, [error for _, error in outputs]
