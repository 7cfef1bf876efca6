"""Runs for the pages of the web UI: two ranks with kernels and collectives, a job of two nodes, and
one whose every name is hostile."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

from tests.support.kineto_files import Event, kernel, launch, memory, op, python, span, trace
from tests.support.report_runs import many_gpus

STEPS = 6
STEP_NS = 10_000_000
FIRST_STEP = 40
SLOWEST = "ampere_sgemm_128x64_nn"
SLOWEST_NS = 2_400_000
LAUNCH_NS = 8_000
LATE_NS = 200_000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)"
KERNELS = {SLOWEST: SLOWEST_NS, "vectorized_elementwise_kernel": 400_000, ALL_REDUCE: 1_500_000}
"""Kernels of every step with their durations, one after the other."""
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def rank_events(rank: int) -> list[Event]:
    """Return steps with one operator per kernel; rank 0 waits for rank 1, which is late."""
    late = LATE_NS * rank
    events: list[Event] = [
        {"ph": "M", "name": "process_name", "pid": 10, "tid": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "pid": 10, "tid": 1, "args": {"name": "thread 1"}},
    ]
    number = 0
    for step in range(STEPS):
        begin = step * STEP_NS
        shadow = span("gpu_user_annotation", "", begin, STEP_NS - 100_000, pid=0, tid=7)
        title = f"ProfilerStep#{FIRST_STEP + step}"
        events += [
            span("user_annotation", title, begin, STEP_NS - 1_000),
            shadow | {"name": title},
            python("nn.Module: Net_0", begin + 10_000, 2_000_000, number + 1, None, 0),
            python("train.py(12): forward", begin + 20_000, 1_900_000, number + 2, number + 1),
            memory(begin + 50_000, 4096, **{"Total Allocated": 4096 * (step + 1)}),
        ]
        device = begin + 1_000_000 + late
        waiting = {ALL_REDUCE: LATE_NS - late}
        for directory, (name, minimum) in enumerate(KERNELS.items()):
            duration = minimum + waiting.get(name, 0)
            number += 10
            at = begin + 100_000 + 300_000 * directory
            sequence = {"Sequence number": number, "Input Dims": [[64, 128]]}
            events += [
                op(f"aten::op{directory}", at, 200_000, sequence, external=number),
                launch(at + 50_000, LAUNCH_NS, number, external=number),
                kernel(device, duration, number, _collective(name, step), name=name),
            ]
            device += duration + 50_000
    return events


def _collective(name: str, step: int) -> dict[str, object]:
    grid = {"grid": [8, 1, 1], "block": [256, 1, 1]}
    if name != ALL_REDUCE:
        return grid
    return grid | {
        "Collective name": "allreduce",
        "In msg nelems": 1 << 20,
        "Out msg nelems": 1 << 20,
        "Group size": 2,
        "dtype": "Float",
        "Process Group Name": "0",
        "Process Group Ranks": "[0, 1]",
        "Seq": step,
    }


def two_ranks(path: Path, directory: Path) -> Path:
    """Make a run of two imported traces; `place` is the directory of their files."""
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for rank in range(2):
        info = {"backend": "nccl", "rank": rank, "world_size": 2}
        devices = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000}]
        content = trace(*rank_events(rank), distributedInfo=info, deviceProperties=devices)
        file = directory / f"rank{rank}.json.gz"
        file.write_bytes(gzip.compress(content))
        files.append(file)
    return imported(files, path)


def imported(files: list[Path], path: Path) -> Path:
    """Import these files with the command line."""
    command = [sys.executable, "-m", "stepscope", "import", *map(str, files), "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


def hostile(path: Path, directory: Path) -> Path:
    """Make a run whose names are HTML, a megabyte long, or not valid text."""
    directory.mkdir(parents=True, exist_ok=True)
    names = [EVIL, "long" * 250_000, "\u202eright to left\u0000\u0007", "-1+1|cmd", ""]
    events = [
        {"ph": "M", "name": "process_name", "pid": 10, "tid": 0, "args": {"name": EVIL}},
        {"ph": "M", "name": "thread_name", "pid": 10, "tid": 1, "args": {"name": EVIL}},
    ]
    for number, name in enumerate(names):
        at = 1_000 + 20_000 * number
        events += [
            op(name, at, 15_000, {"Input Dims": EVIL}, external=number + 1),
            launch(at + 100, 500, number + 1, external=number + 1, name=name),
            kernel(at + 1_000, -5 if number == 3 else 9_000, number + 1, name=name),
        ]
    file = directory / "rank0.json"
    file.write_bytes(trace(*events))
    return imported([file], path)


def runs_below(root: Path) -> Path:
    """Make all of these runs."""
    two_ranks(root / "training" / "fixed", root / "files")
    many_gpus(root / "training" / "job", nodes=2, gpus=2, seconds=900)
    hostile(root / "hostile", root / "files-hostile")
    return root
