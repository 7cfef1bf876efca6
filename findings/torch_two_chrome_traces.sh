#!/bin/sh
# Two functions of PyTorch's profiler are called export_chrome_trace, and write unlike files.
# `profile.export_chrome_trace` writes a category for each range and the range of each step.
# `profile.events().export_chrome_trace` writes no category, no thread of a process but the process
# "CPU functions", and the same names: a reader that goes by categories finds no operator in it.
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

with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
    torch.ones(8, 8) @ torch.ones(8, 8)
    profiler.step()
profiler.export_chrome_trace("profile.json")
profiler.events().export_chrome_trace("events.json")
of_profile = json.load(open("profile.json"))["traceEvents"]
of_events = json.load(open("events.json"))
named = lambda events: [event for event in events if event["name"] == "aten::mm"]
print("torch", torch.__version__)
print("profile.export_chrome_trace:", {event.get("cat") for event in named(of_profile)})
print("events().export_chrome_trace:", {(e.get("cat"), e["pid"]) for e in named(of_events)})
assert {event.get("cat") for event in named(of_profile)} == {"cpu_op"}
assert {(event.get("cat"), event["pid"]) for event in named(of_events)} == {(None, "CPU functions")}
PYTHON
