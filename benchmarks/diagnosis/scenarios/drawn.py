"""Shared code of drawn runs: jobs that this machine cannot run, drawn thread by thread.

Such a script also accepts --run, the run directory to create.
"""

import argparse
from pathlib import Path

from stepscope.testing import RunBuilder

CODE = {"read": "main > report # history.append([value.item() for value in metrics.values()])"}


def drawn_arguments(description):
    """Parse the arguments; `builder` draws the run."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--run", type=Path, required=True)
    args = parser.parse_args()
    args.builder = RunBuilder(args.run, code=CODE)
    return args


def report_drawn(builder, steps, samples):
    """Write the run and print the step time like a training script."""
    start, end = builder.processes[0].spans[0].start, builder.processes[0].now
    builder.write()
    print(f"{steps} steps of {samples} samples: {(end - start) / 1e6 / steps:.4f} ms a step")
