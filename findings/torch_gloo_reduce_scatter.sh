#!/bin/sh
# A trace of PyTorch names what gloo carries out, not what was asked for. A reduce-scatter
# (`torch.distributed.reduce_scatter_tensor`, FSDP2) runs as an all-reduce of the whole tensor: its
# range on gloo's own thread is "gloo:all_reduce" with the dims of the whole, and no arrow leads to it
# from "c10d::_reduce_scatter_base_" on the thread that asked. A reader that counts collectives by the
# ranges of the library finds no reduce-scatter in a job of FSDP, and twice the bytes per rank.
# Seen with torch 2.13.0 on Python 3.11. The script ends with 1 if that changes.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/environment"
"$directory/environment/bin/pip" install --quiet torch==2.13.0 numpy==2.3.5
cd "$directory"
cat > job.py <<'PYTHON'
import json

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
whole, part = torch.ones(4096), torch.empty(2048)
cpu = [torch.profiler.ProfilerActivity.CPU]
with torch.profiler.profile(activities=cpu, record_shapes=True) as profiler:
    for _ in range(5):
        dist.reduce_scatter_tensor(part, whole)
profiler.export_chrome_trace(f"rank{rank}.json")
assert part.tolist() == [2.0] * 2048
if rank == 0:
    events = json.load(open("rank0.json"))["traceEvents"]
    ranges = [e for e in events if e.get("ph") == "X" and e["name"].startswith(("c10d::", "gloo:"))]
    names = sorted({event["name"] for event in ranges})
    of_gloo = [event for event in ranges if event["name"].startswith("gloo:")]
    threads = {event["tid"] for event in ranges if event not in of_gloo}
    arrows = {(e["tid"], e["ts"]) for e in events if e.get("ph") == "f"}
    print("torch", torch.__version__, names, of_gloo[0]["args"]["Input Dims"])
    assert names == ["c10d::_reduce_scatter_base_", "gloo:all_reduce"]
    assert all(event["args"]["Input Dims"] == [[4096]] for event in of_gloo)
    assert not {event["tid"] for event in of_gloo} & threads
    assert not {(event["tid"], event["ts"]) for event in of_gloo} & arrows
dist.destroy_process_group()
PYTHON
"$directory/environment/bin/torchrun" --standalone --nproc_per_node 2 job.py
