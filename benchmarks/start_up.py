"""Time until a command answers, and until a job under it begins.

    bare       `python -c pass`, the yardstick: each round runs it once
    version    `stepscope --version`
    help       `stepscope --help`
    show       `stepscope show RUN`, of a recorded run of 300 steps
    diagnose   `stepscope diagnose RUN`
    run        from the start of `stepscope run -- python job.py` to the first line of job.py, less
               the same without stepscope
    pyinstrument, py-spy     the same under them, where they are installed

All of them alternate, with bytecode, as an installed package has. Reported: the median and the
quartiles of seconds, and of the ratio to the yardstick of the same round.

    python benchmarks/start_up.py [--rounds 15]

Writes benchmarks/results/start_up.json.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
STEPSCOPE = str(BIN / "stepscope")
FIRST_LINE = "import time; print(time.monotonic_ns(), flush=True); time.sleep(0.5)"
"""The job goes on for a while, because py-spy fails on one that has ended before it attaches."""
STEPS = "import stepscope, time\nfor _ in stepscope.steps(range(300)): time.sleep(0.001)\n"


def measure_command(command, directory):
    start = time.monotonic_ns()
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    return (time.monotonic_ns() - start) / 1e9


def measure_first_line(command, directory):
    """Seconds from the start of a command to the first line of its job.

    The exit status does not count: py-spy fails where it could not write a profile.
    """
    start = time.monotonic_ns()
    ended = subprocess.run(command, cwd=directory, check=False, capture_output=True, text=True)
    numbers = [int(line) for line in ended.stdout.splitlines() if line.isdigit()]
    return (numbers[0] - start) / 1e9


def list_launchers(directory):
    job = str(directory / "job.py")
    launchers = {"run": [STEPSCOPE, "run", "--quiet", "--", sys.executable, job]}
    if (BIN / "pyinstrument").exists():
        launchers["pyinstrument"] = [str(BIN / "pyinstrument"), "-o", "profile.txt", job]
    if shutil.which("py-spy", path=str(BIN)):
        spy = [str(BIN / "py-spy"), "record", "-o", "profile.svg", "--"]
        launchers["py-spy"] = [*spy, sys.executable, job]
    return launchers


def measure_round(directory):
    seconds = {
        "bare": measure_command([sys.executable, "-c", "pass"], directory),
        "version": measure_command([STEPSCOPE, "--version"], directory),
        "help": measure_command([STEPSCOPE, "--help"], directory),
        "show": measure_command([STEPSCOPE, "show", "recorded"], directory),
        "diagnose": measure_command([STEPSCOPE, "diagnose", "recorded"], directory),
    }
    alone_s = measure_first_line([sys.executable, str(directory / "job.py")], directory)
    for name, command in list_launchers(directory).items():
        seconds[name] = measure_first_line(command, directory) - alone_s
    return seconds


def summarize(values):
    low, median, high = statistics.quantiles(values, n=4)
    return {"quartiles": [round(low, 3), round(high, 3)], "median": round(median, 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        (directory / "job.py").write_text(FIRST_LINE)
        (directory / "steps.py").write_text(STEPS)
        recording = [STEPSCOPE, "run", "--out", "recorded", "--", sys.executable, "steps.py"]
        measure_command(recording, directory)
        measure_round(directory)  # compiles what is not compiled yet
        rounds = [measure_round(directory) for _ in range(options.rounds)]
    results = {
        name: {
            "seconds": summarize([one[name] for one in rounds]),
            "ratio_to_bare": summarize([one[name] / one["bare"] for one in rounds]),
        }
        for name in rounds[0]
    }
    for name, result in results.items():
        seconds, ratio = result["seconds"], result["ratio_to_bare"]
        print(
            f"{name:13} {seconds['median']:6.3f} s {seconds['quartiles']}, {ratio['median']:5.1f} x"
        )
    document = {"rounds": options.rounds, "results": results}
    (HERE / "results" / "start_up.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
