"""`python -m tests.fuzz.api`: fuzz the HTTP API by its OpenAPI document, with schemathesis."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stepscope.store import open_run
from tests.fuzz.counts import FuzzCounts, save_counts
from tests.support.served import Served, serving
from tests.support.served_runs import draw_job, import_trace, trace_events

_RUNS = ("team/job", "recorded")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.api")
    parser.add_argument("--examples", type=int, default=2500, help="requests per address")
    parser.add_argument("--minutes", type=float, default=120, help="time limit")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stepscope-fuzz-") as directory:
        outside = Path(directory, "outside")
        outside.write_text("kept")
        root, file = Path(directory, "served"), Path(directory, "settings.toml")
        answers = Path(directory, "answers")
        draw_job(root / "team" / "job", step_count=10)
        import_trace(root / "recorded", trace_events())
        os.environ["XDG_CACHE_HOME"] = f"{directory}/cache"
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = f"{directory}/cache/hypothesis"
        os.environ["STEPSCOPE_FUZZ_ANSWERS"] = str(answers)
        with serving(root) as served:
            values = {run: _list_values(served, root, run) for run in _RUNS}
            os.environ["STEPSCOPE_FUZZ_VALUES"] = json.dumps(values)
            code = _run(f"http://{served.authority}/api/openapi.json", file, options)
        names = {path.name for path in Path(directory).iterdir()}
        save_counts("http-api", _count(answers))
        expected = {"outside", "served", "cache", file.name, answers.name, ".schemathesis"}
        if not names <= expected or outside.read_text() != "kept":
            print(f"files outside of the served directory were changed: {sorted(names)}")
            return 1
        return code


def _list_values(served: Served, root: Path, run: str) -> dict[str, list[Any]]:
    """List values of query parameters that the run has."""
    timeline = served.request("/api/views/timeline", run=run).json
    tracks = [track["id"] for group in timeline["groups"] for track in _list_tracks(group)]
    traces = open_run(root / run).table("traces", ["trace"])["trace"].tolist()
    values = {
        "rank": [0],
        "trace": traces,
        "name": ["cpu_busy_ratio", "gemm", "aten::mm", "step", "forward"],
        "bucket_ns": ["1ms", "20us", "3s"],
        "from_ns": ["0", "10us", "40us"],
        "to_ns": ["60us", "150us", "2s"],
        "around_ns": ["0", "50us"],
        "peaks": ["A100", "fp32=10,memory=1"],
        "track": tracks,
        "tracks": [*tracks, ",".join(tracks)],
        "event": [0, 1],
        "file": [__file__],
        "line": [1, 20],
    }
    return {name: choices for name, choices in values.items() if choices}


def _list_tracks(group: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from group["tracks"]
    for inner in group["groups"]:
        yield from _list_tracks(inner)


def _run(url: str, file: Path, options: argparse.Namespace) -> int:
    """Fuzz until all requests are sent, or to the end of the time."""
    file.write_text(f"hooks = {json.dumps(str(Path(__file__).with_name('api_hooks.py')))}\n")
    deadline = time.monotonic() + 60 * options.minutes
    seed, code = options.seed, 0
    # Short runs with seeds of their own: all addresses have their requests whenever it ends.
    remaining = options.examples
    while remaining > 0 and not code and time.monotonic() < deadline:
        code = _run_round(url, file, min(remaining, 100), seed, deadline)
        remaining, seed = remaining - 100, seed + 1
    return code


def _run_round(url: str, file: Path, examples: int, seed: int, deadline: float) -> int:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(file), "run", url),
            *("--checks", "not_a_server_error", "--phases", "fuzzing", "--mode", "all"),
            *("--exclude-path-regex", "events"),  # these streams have no end
            *("--max-examples", str(examples), "--seed", str(seed)),
            *("--generation-database", "none", "--request-timeout", "70"),
        ],
        cwd=file.parent,
    )
    try:
        return process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait(100)
        return 0


def _count(answers: Path) -> FuzzCounts:
    """Count the requests, and those that got no answer or an error of the server."""
    lines = answers.read_text().splitlines()
    if lines[-1] == "sent":  # at the end of the time
        lines.pop()
    received = [line.split() for line in lines if line != "sent"]
    statuses = [int(status) for status, _ in received]
    request_count = len(lines) - len(received)
    return FuzzCounts(
        cases=request_count,
        defects=request_count - len(received) + sum(status >= 500 for status in statuses),
        successes=sum(status < 300 for status in statuses),
        slowest_s=max(float(seconds) for _, seconds in received),
    )


if __name__ == "__main__":
    sys.exit(main())
