"""Append until killed and print a line after every append. Arguments: run, round."""

from __future__ import annotations

import sys

import numpy as np

from stepscope.store import DictColumn, RunWriter

ROWS = 7

run, round_name = sys.argv[1:]
with RunWriter(run, "n0") as writer:
    number = 0
    while True:
        constants = {"node": "n0", "process": round_name, "log": "1c", "name": "x"}
        writer.append(
            "scalars",
            {
                **{name: DictColumn.constant(text, ROWS) for name, text in constants.items()},
                "seq": np.arange(number * ROWS, (number + 1) * ROWS),
                "t_ns": np.full(ROWS, number),
                "step": np.arange(ROWS),
                "value": np.ones(ROWS),
            },
        )
        print(number, flush=True)
        writer.compact("scalars")
        number += 1
