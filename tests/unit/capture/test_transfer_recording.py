"""Transfers between two ranks in a script that bound the functions before they are recorded."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import Spool

SCRIPT = """
import inspect, os, pickle, sys
import torch
import torch.distributed as dist
from torch.distributed import P2POp, batch_isend_irecv, irecv, isend

signature = inspect.signature(isend)
from stepscope.capture.frameworks.pytorch.flight_recorder import recorders
recorders.install_transfers()

child = os.fork()
rank = int(child == 0)
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)

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
assert recorders.count_transfers() == 7
assert {one["peer"] for one in recorders.describe_transfers()} == {1 - rank}
assert [one["kind"] for one in recorders.describe_transfers()][:2] == ["isend", "irecv"]
dist.barrier()
assert not child or os.waitpid(child, 0)[1] == 0
"""


def test_functions_that_were_bound_before_stay_valid_in_batches(
    spool: Spool, tmp_path: Path
) -> None:
    spool.run_torch(SCRIPT, str(tmp_path / "store"), STEPSCOPE_SPOOL="")
