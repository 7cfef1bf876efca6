"""Jobs whose ranks do not meet: is the rank to blame named, and how soon?

Each repetition draws a number of ranks, a rank and a step for each fault: the rank skips a
collective, calls another one, sleeps, is killed, or sends another shape. A job counts as right if
exactly that rank is named, with the right kind, within `--stuck-after` and ten seconds after the
last progress. A healthy job and one that writes a checkpoint accompany each repetition: no rank is
to blame there.

python -m benchmarks.stuck_jobs [--repetitions 3] [--seed 0] [--stuck-after 15] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path
from typing import Any

from tests.support.under_stepscope import E2E, TORCHRUN, run_under

JOB = E2E / "stuck" / "faulty_job.py"
KINDS = {
    "skip": "differs",
    "kind": "differs",
    "sleep": "missing",
    "kill": "ended first",
    "shape": "differs",
    "none": None,
    "checkpoint": None,
}
"""Kind of the account by fault; None where there is none at the end."""
RANKS = (2, 3, 4)
STEPS = (6, 25)
"""First and last step that may be faulty."""
GRACE_S = 10.0
FOREVER_S = 600.0
CHECKPOINT_S = 10.0
"""Duration of a checkpoint, beyond `--stuck-after`."""


def main() -> None:
    """Run the jobs, and print what was named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stuck-after", type=float, default=15.0)
    parser.add_argument("--faults", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    generator = random.Random(options.seed)
    jobs = []
    for repetition in range(options.repetitions):
        for fault in options.faults:
            ranks = generator.choice(RANKS)
            rank = generator.randrange(ranks)
            step = generator.randint(*STEPS)
            job = run_job(fault, ranks, rank, step, options.stuck_after)
            jobs.append({"repetition": repetition, **job})
            print("{fault:<10} {ranks} ranks, rank {rank}, step {step:>2}: ".format(**job), end="")
            print("right" if job["is_right"] else "WRONG", f"{job['named_s']:.1f} s", flush=True)
            if job["headline"]:
                print(f"    {job['headline']}")
    right = sum(job["is_right"] for job in jobs)
    print(f"{right} of {len(jobs)} jobs right")
    if options.json is not None:
        options.json.write_text(json.dumps({"jobs": jobs, "right": right}, indent=1))


def run_job(fault: str, ranks: int, rank: int, step: int, stuck_after_s: float) -> dict[str, Any]:
    """Run one job, and judge what is said of it."""
    is_checkpoint = fault == "checkpoint"
    seconds = stuck_after_s + CHECKPOINT_S if is_checkpoint else FOREVER_S
    launcher = [word.replace("per-node=2", f"per-node={ranks}") for word in TORCHRUN]
    with tempfile.TemporaryDirectory(prefix="stepscope-stuck-") as directory:
        job = run_under(
            Path(directory) / "run",
            *launcher,
            *(str(JOB), fault, str(seconds), str(rank), str(step)),
            options=(
                *("--window", "off", "--stuck-after", str(stuck_after_s)),
                *("--on-stuck", "stop", "--stop-grace", "1"),
            ),
            OMP_NUM_THREADS="1",
        )
        stuck = job.verdict["stuck"]
        documents = [json.loads(path.read_bytes()) for path in (job.run / "stuck").glob("*")]
    kind, culprits = (None, []) if stuck is None else (stuck["kind"], stuck["culprits"])
    named_s = 0.0 if stuck is None else stuck["duration_ns"] / 1e9
    expected = (KINDS[fault], [] if KINDS[fault] is None else [rank])
    is_right = (kind, culprits) == expected and named_s <= stuck_after_s + GRACE_S
    if KINDS[fault] is None:
        is_right = is_right and job.code == 0
    if is_checkpoint:  # it was looked at, and not stopped
        is_right = is_right and any(one["resolved_ns"] is not None for one in documents)
    return {
        "fault": fault,
        "ranks": ranks,
        "rank": rank,
        "step": step,
        "is_right": is_right,
        "named_s": named_s,
        "kind": kind,
        "culprits": culprits,
        "headline": "" if stuck is None else stuck["headline"],
    }


if __name__ == "__main__":
    main()
