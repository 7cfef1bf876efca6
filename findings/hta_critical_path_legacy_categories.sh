#!/bin/sh
# HolisticTraceAnalysis finds no operator and no call of the runtime in a trace of a PyTorch before 1.12:
# there the categories are "Operator", "Runtime" and "Kernel", not "cpu_op", "cuda_runtime" and
# "kernel". Its critical path makes points for the last three alone, so a kernel that starts on an empty
# queue has no launch, and the analysis ends with an AssertionError, "Could not find runtime index".
# With the later names of the same events it has a path. The trace below has one operator, its launch
# and its kernel.
# Seen with HolisticTraceAnalysis 0.5.0, pandas 2.3.3 on Python 3.11. The script ends with 1 if that
# changes.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/environment"
"$directory/environment/bin/pip" install --quiet HolisticTraceAnalysis==0.5.0 pandas==2.3.3
cd "$directory"
"$directory/environment/bin/python" - <<'PYTHON'
import json
import logging
import os
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis


def write(folder, operator, call, kernel):
    """Write a step with an operator of 50 us that launches a kernel of 20 us."""
    ids = {"correlation": 7, "External id": 1}
    on_device = {**ids, "device": 0, "stream": 7, "context": 1}
    rows = [
        (operator, "ProfilerStep#1", 1, 1, 1000, 100, {"External id": 2}),
        (operator, "aten::relu", 1, 1, 1010, 50, {"External id": 1}),
        (call, "cudaLaunchKernel", 1, 1, 1020, 10, {**ids, "cbid": 211}),
        (kernel, "relu_kernel", 0, 7, 1035, 20, on_device),
    ]
    events = [
        dict(ph="X", cat=cat, name=name, pid=pid, tid=tid, ts=ts, dur=dur, args=args)
        for cat, name, pid, tid, ts, dur, args in rows
    ]
    os.mkdir(folder)
    trace = {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": events}
    with open(f"{folder}/rank0.json", "w") as file:
        json.dump(trace, file)


def analyze(folder):
    analysis = TraceAnalysis(trace_dir=folder)
    graph, found = analysis.critical_path_analysis(0, annotation="ProfilerStep", instance_id=0)
    return int(graph.get_critical_path_breakdown().duration.sum())


write("later", "cpu_op", "cuda_runtime", "kernel")
write("legacy", "Operator", "Runtime", "Kernel")
path_us = analyze("later")
print("later categories: a path of", path_us, "us")
assert path_us > 0
try:
    analyze("legacy")
except AssertionError as error:
    print("legacy categories: AssertionError:", error)
    assert "Could not find runtime index" in str(error)
else:
    raise SystemExit("legacy categories: no error any more")
PYTHON
