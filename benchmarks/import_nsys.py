"""Cost of importing an export of Nsight Systems, compared with reading the same columns by SQL.

    import   `stepscope import FILE` as a complete process: reading, linking, levels, Parquet
    select   a process that reads the columns that the import needs into numpy arrays, and no more

Both read a million kernels of one stream, with a thousand names and no calls. Every round runs both
once, in turn; reported are medians with quartiles. Memory is measured in a separate run.

    python -m benchmarks.import_nsys [--kernels N] [--rounds N]

Writes benchmarks/results/import_nsys.json.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.measuring import OURS, measure, quartiles, use_bytecode
from stepscope.importers.nsys.events import SOURCES
from tests.support.nsys_files import facts, kernel, write_export

TARGET = Path(__file__).resolve().parent / "results" / "import_nsys.json"
NAME_COUNT = 1_000
SELECT = """
import sqlite3, sys
import numpy as np
database = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro&immutable=1", uri=True)
cursor = database.execute(sys.argv[2])
parts = []
while rows := cursor.fetchmany(65_536):
    parts.append(np.array(rows, dtype=np.int64))
columns = np.concatenate(parts).T.copy()
"""


def write_kernels(path, count):
    """Write an export with kernels one after the other."""
    chance = random.Random(1)
    names = [{"id": n, "value": f"void kernel<float, {n}>(float*)"} for n in range(NAME_COUNT)]

    def rows():
        for number in range(count):
            start = 1_000_000_000 + 5_000 * number
            name = chance.randrange(NAME_COUNT)
            # graphId and graphNodeId are 0, not NULL, so that numpy takes the rows as they are
            yield kernel(
                start, start + 3_000 + name, number + 1,
                demangledName=name, graphId=0, graphNodeId=0,
            )  # fmt: skip

    write_export(path, {**facts(), "StringIds": names, SOURCES[0].table: rows()})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    columns = ", ".join(f'"{names[0]}"' for names in SOURCES[0].integers.values())
    query = f"SELECT {columns} FROM {SOURCES[0].table}"  # noqa: S608
    with tempfile.TemporaryDirectory(prefix="stepscope-bench-") as directory:
        use_bytecode(Path(directory))
        file, run = Path(directory, "kernels.sqlite"), Path(directory, "run")
        write_kernels(file, arguments.kernels)
        commands = {
            "import": OURS.command("import", file, "-o", run),
            "select": [sys.executable, "-c", SELECT, str(file), query],
        }

        def measure_one(name, **options):
            shutil.rmtree(run, ignore_errors=True)
            return measure(commands[name], environment=OURS.environment, **options)

        costs = {name: [] for name in commands}
        for number in range(arguments.rounds):
            for name in commands:
                costs[name].append(cost := measure_one(name))
                print(f"round {number}: {name} {cost.seconds:.2f} s, CPU {cost.cpu_s:.2f} s")
        memory = {name: measure_one(name, samples_memory=True).memory_mb for name in commands}
    pairs = list(zip(costs["import"], costs["select"], strict=True))
    results = {
        "kernels": arguments.kernels,
        "rounds": arguments.rounds,
        "file_columns": len(SOURCES[0].integers),
        **{
            name: {
                "seconds": quartiles([cost.seconds for cost in values]),
                "cpu_s": quartiles([cost.cpu_s for cost in values]),
                "memory_mb": memory[name],
            }
            for name, values in costs.items()
        },
        "seconds_ratio": quartiles([ours.seconds / bare.seconds for ours, bare in pairs]),
        "cpu_ratio": quartiles([ours.cpu_s / bare.cpu_s for ours, bare in pairs]),
    }
    TARGET.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
