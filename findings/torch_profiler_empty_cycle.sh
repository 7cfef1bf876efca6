#!/bin/sh
# The last cycle of torch.profiler's schedule may hold no iteration. With wait=1, warmup=1, active=2 and
# ten iterations, the step() after the last one starts to record, and the end of the block exports that
# recording as well: a trace with one range "ProfilerStep#10" and no operator. A handler that writes
# one file name (as Accelerate's `output_trace_dir` does: profile_0.json) so replaces the trace
# of the two full cycles before by an empty one.
# Seen with torch 2.13.0 on Python 3.11. The script ends with 1 if that changes.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/environment"
"$directory/environment/bin/pip" install --quiet torch==2.13.0 numpy==2.3.5
cd "$directory"
"$directory/environment/bin/python" - <<'PYTHON'
import json

import torch
from torch.profiler import ProfilerActivity, profile, schedule

steps = []


def export(profiler):
    profiler.export_chrome_trace("trace.json")
    events = json.load(open("trace.json"))["traceEvents"]
    names = [event["name"] for event in events if event.get("ph") == "X"]
    marks = [name for name in names if name.startswith("ProfilerStep#")]
    steps.append((marks, sum(name.startswith("aten::") for name in names) > 0))


layer = torch.nn.Linear(8, 8)
plan = schedule(wait=1, warmup=1, active=2)
cpu = [ProfilerActivity.CPU]
with profile(activities=cpu, schedule=plan, on_trace_ready=export) as profiler:
    for _ in range(10):
        layer(torch.ones(4, 8)).sum().backward()
        profiler.step()
print("torch", torch.__version__)
for marks, has_operators in steps:
    print(marks, "with operators" if has_operators else "without operators")
assert [has_operators for _, has_operators in steps] == [True, True, False]
assert steps[-1][0] == ["ProfilerStep#10"]
PYTHON
