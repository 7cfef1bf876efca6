#!/bin/sh
# The profiler plug-in of TensorBoard leaves out every range of the category `user_annotation`, except
# steps and collectives of its own list. Since torch 2, waits for the DataLoader are such ranges:
# of steps that wait 90% of their time, it shows 0% as DataLoader. With the category `cpu_op` of older
# releases it shows 90%.
# Seen with torch_tb_profiler 0.4.3 on Python 3.11. The script ends with 1 if that changes.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/environment"
"$directory/environment/bin/pip" install --quiet torch_tb_profiler==0.4.3 'setuptools<81'
"$directory/environment/bin/python" - <<'PYTHON'
from torch_tb_profiler.profiler.data import RunProfileData
from torch_tb_profiler.profiler.event_parser import ProfileRole

WAIT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def dataloader_share(category):
    def span(category, name, start, duration):
        return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start,
                "dur": duration, "args": {"External id": start + duration}}

    events = [
        event
        for step in range(3)
        for event in (
            span("user_annotation", f"ProfilerStep#{step}", 1000 * step, 1000),
            span(category, WAIT, 1000 * step, 900),
            span("cpu_op", "aten::mm", 1000 * step + 920, 50),
        )
    ]
    document = {"schemaVersion": 1, "traceEvents": events, "deviceProperties": []}
    costs = RunProfileData.from_json("worker", 1, document).avg_costs.costs
    return costs[ProfileRole.DataLoader] / costs[ProfileRole.Total]


shares = {category: dataloader_share(category) for category in ("user_annotation", "cpu_op")}
print(shares)
assert shares["user_annotation"] == 0
assert abs(shares["cpu_op"] - 0.9) < 1e-9
PYTHON
