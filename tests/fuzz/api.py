"""`python -m tests.fuzz.api`: fuzz the HTTP API by its OpenAPI document, with schemathesis."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.counts import FuzzCounts, save_counts
from tests.support.served import serving
from tests.support.served_runs import draw_job, import_trace, trace_events

_RUNS = ("team/job", "recorded")
_ANY_RUN = ""
"""Parameters without a value: most requests name a run that does not exist."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.api")
    parser.add_argument("--examples", type=int, default=750, help="requests per address and run")
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
            url = f"http://{served.authority}/api/openapi.json"
            codes = [
                _run(url, file, setting, options)
                for setting in (_ANY_RUN, *(f'"query.run" = "{run}"' for run in _RUNS))
            ]
        names = {path.name for path in Path(directory).iterdir()}
        save_counts("http-api", _count(answers))
        expected = {"outside", "served", "cache", file.name, answers.name, ".schemathesis"}
        if not names <= expected or outside.read_text() != "kept":
            print(f"files outside of the served directory were changed: {sorted(names)}")
            return 1
        return max(codes)


def _run(url: str, file: Path, setting: str, options: argparse.Namespace) -> int:
    hooks = json.dumps(str(Path(__file__).with_name("api_hooks.py")))
    file.write_text(f"hooks = {hooks}\n[parameters]\n{setting}\n")
    return subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(file), "run", url),
            *("--checks", "not_a_server_error", "--phases", "fuzzing", "--mode", "all"),
            *("--exclude-path-regex", "events"),  # these streams have no end
            *("--max-examples", str(options.examples), "--seed", str(options.seed)),
            *("--generation-database", "none", "--request-timeout", "70"),
        ],
        cwd=file.parent,
    ).returncode


def _count(answers: Path) -> FuzzCounts:
    """Count the requests, and those that got no answer or an error of the server."""
    sent, *_ = lines = answers.read_text().splitlines()
    received = [line.split() for line in lines if line != sent]
    failed = sum(int(status) >= 500 for status, _ in received)
    request_count = len(lines) - len(received)
    return FuzzCounts(
        cases=request_count,
        defects=request_count - len(received) + failed,
        slowest_s=max(float(seconds) for _, seconds in received),
    )


if __name__ == "__main__":
    sys.exit(main())
