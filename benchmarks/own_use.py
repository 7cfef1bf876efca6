"""CPU time and memory that the monitor and the watch process take beside an ordinary job.

The job takes twenty steps per second, whose cost is nothing, so that it does not slow down
stepscope's processes. The first seconds are not measured: starting costs once. CPU time is that of
each process, as a share of one core. Memory is private memory and pages of files, of which the
processes use the same ones, the libraries: together they take the private memory of both, and the
files of the larger one. Writes benchmarks/results/own_use.json.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
START_UP_S = 20.0
JOB = """
import time
import stepscope

while True:
    time.sleep(0.05)
    stepscope.step()
"""


def find_companions(launcher):
    """Return the pids of the monitor and the watch process of a launcher by their names."""
    names = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            parent = read_fields(directory.name)[1]
            words = (directory / "cmdline").read_bytes().decode().split("\0")
        except OSError:  # it has ended
            continue
        for name in ("monitor", "watch"):
            if int(parent) == launcher and f"stepscope.{name}" in words:
                names[name] = int(directory.name)
    return names


def read_fields(pid):
    """Return the fields of a process's `stat` after its name."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu_s(pid):
    fields = read_fields(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_memory(pid):
    """Return the bytes of private memory and of pages of files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Rss")}
    return 1024 * int(sizes["RssAnon"]), 1024 * int(sizes["RssFile"])


def measure(seconds):
    """Return the share of a core and the memory of each process."""
    with tempfile.TemporaryDirectory(prefix="stepscope-bench-") as directory:
        command = [sys.executable, "-m", "stepscope", "run", "--quiet"]
        command += ["--out", f"{directory}/run", "--", sys.executable, "-c", JOB]
        launcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(START_UP_S)
            pids = find_companions(launcher.pid)
            start_s, before = time.monotonic(), {name: cpu_s(pid) for name, pid in pids.items()}
            time.sleep(seconds)
            elapsed_s = time.monotonic() - start_s
            use = {}
            for name, pid in pids.items():
                private, files = read_memory(pid)
                use[name] = {
                    "core_ratio": (cpu_s(pid) - before[name]) / elapsed_s,
                    "private_bytes": private,
                    "file_bytes": files,
                }
            return use
        finally:
            launcher.send_signal(signal.SIGTERM)
            launcher.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    use = measure(arguments.seconds)
    parts = list(use.values())
    use["together"] = {
        "core_ratio": sum(part["core_ratio"] for part in parts),
        "private_bytes": sum(part["private_bytes"] for part in parts),
        "file_bytes": max(part["file_bytes"] for part in parts),
    }
    print(f"{'':<12}{'of a core':>12}{'private':>12}{'files':>12}")
    for name, part in use.items():
        private, files = (part[key] / 1e6 for key in ("private_bytes", "file_bytes"))
        print(f"{name:<12}{100 * part['core_ratio']:>10.2f} %{private:>9.1f} MB{files:>9.1f} MB")
    result = {"machine": {"cores": os.cpu_count(), "python": sys.version.split()[0]}, **use}
    out = HERE / "results" / "own_use.json"
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\nwritten to {out}")


if __name__ == "__main__":
    main()
