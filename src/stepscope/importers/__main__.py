"""`python -m stepscope.importers`: child process of the monitor that stores one profiler window.

Exit status 0: the window is durably stored, by this call or an earlier one. 2: the file cannot be
read; the reason is on stderr. Anything else: the run could not be written; the call may be
repeated.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stepscope import errors, schema, store
from stepscope.importers.kineto import Identity, import_trace
from stepscope.importers.xplane import import_window

TEMPORARY_FAILURE = 75
"""Exit status that requests another attempt (EX_TEMPFAIL of sysexits.h)."""


def main() -> int:
    """Store one window."""
    parser = argparse.ArgumentParser(prog="python -m stepscope.importers")
    parser.add_argument("--run", required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--process", required=True)
    parser.add_argument("--window", type=int, required=True)
    parser.add_argument("--rank", type=int)
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    try:
        stored = store.open_run(arguments.run).table(
            "traces",
            columns=["trace"],
            condition='process = ? AND "window" = ?',
            parameters=(arguments.process, arguments.window),
        )
        if len(stored["trace"]):
            return 0
        identity = Identity(
            name=f"{arguments.process}, window {arguments.window}",
            node=arguments.node,
            process=arguments.process,
            window=arguments.window,
            rank=arguments.rank,
        )
        with store.RunWriter(arguments.run, arguments.node) as writer:
            is_xplane = arguments.file.name.endswith(schema.XPLANE_SUFFIX)
            import_file = import_window if is_xplane else import_trace
            import_file(arguments.file, writer, identity, scratch=Path(arguments.run))
    except errors.StepscopeError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_code
    except OSError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return TEMPORARY_FAILURE
    return 0


if __name__ == "__main__":
    sys.exit(main())
