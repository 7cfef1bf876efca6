"""Critical paths of HolisticTraceAnalysis, run by an interpreter that has it."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.measuring import describe_failure
from benchmarks.what_if.results import PeerPath

LIMIT_S = 600
VERSION = "import importlib.metadata as m; print(m.version('HolisticTraceAnalysis'))"
SCRIPT = """
import json, logging, sys, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
rank = next(iter(analysis.t.traces))
frame = analysis.t.get_trace(rank)
names = analysis.t.symbol_table.get_sym_table()
steps = {names[name] for name in frame.name if names[name].startswith("ProfilerStep")}
instances = (0, len(steps) - 1) if steps else None
graph, found = analysis.critical_path_analysis(
    rank=rank, annotation="ProfilerStep" if steps else "", instance_id=instances
)
sums = graph.get_critical_path_breakdown().groupby("bound_by").duration.sum()
print(json.dumps({name: float(us) / 1e3 for name, us in sums.items() if us}))
"""
"""Milliseconds by kind, of the range of all steps, or of the whole trace without any."""


def read_version(python: str) -> str:
    """Read the version of HolisticTraceAnalysis of an interpreter."""
    output = subprocess.run([python, "-c", VERSION], capture_output=True, text=True, check=True)
    return f"HolisticTraceAnalysis {output.stdout.strip()}"


def find_peer_path(python: str, trace: Path) -> PeerPath:
    """Find the critical path of a trace with HolisticTraceAnalysis."""
    with tempfile.TemporaryDirectory(prefix="stepscope-hta-") as directory:
        shutil.copy(trace, directory)
        command = [python, "-c", SCRIPT, directory]
        try:
            completed = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired:
            return PeerPath(path_ms={}, error=f"no result within {LIMIT_S} s")
    if completed.returncode:
        return PeerPath(
            path_ms={}, error=describe_failure(command, completed.returncode, completed.stderr)
        )
    return PeerPath(path_ms=json.loads(completed.stdout.splitlines()[-1]))
