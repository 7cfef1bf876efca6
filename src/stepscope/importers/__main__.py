"""`python -m stepscope.importers`: the monitor's child that stores one profiler window.

Exit status 0: the window is durably stored, now or before. 2: the file cannot be read; the reason
is on stderr. Anything else: the run could not be written, and the same call may be repeated.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stepscope.errors import StepscopeError
from stepscope.importers.kineto import Identity, import_trace
from stepscope.store import RunWriter, open_run

ENVIRONMENT_TROUBLE = 75
"""The exit status that asks for another attempt (EX_TEMPFAIL of sysexits.h)."""


def main() -> int:
    """Stores one window."""
    parser = argparse.ArgumentParser(prog="python -m stepscope.importers")
    parser.add_argument("--run", required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--process", required=True)
    parser.add_argument("--window", type=int, required=True)
    parser.add_argument("--rank", type=int)
    parser.add_argument("file", type=Path)
    given = parser.parse_args()
    try:
        held = open_run(given.run).table(
            "traces",
            columns=["trace"],
            condition='process = ? AND "window" = ?',
            parameters=(given.process, given.window),
        )
        if len(held["trace"]):
            return 0
        identity = Identity(
            name=f"{given.process}, window {given.window}",
            node=given.node,
            process=given.process,
            window=given.window,
            rank=given.rank,
        )
        with RunWriter(given.run, given.node) as writer:
            import_trace(given.file, writer, identity, scratch=Path(given.run))
    except StepscopeError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_code
    except OSError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return ENVIRONMENT_TROUBLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
