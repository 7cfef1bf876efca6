"""`python -m stepscope.importers`: child process of the monitor that stores one profiler window
or, with `--memory-snapshot`, one memory snapshot.

Exit status 0: it is durably stored, by this call or an earlier one. 2: the file cannot be
read; the reason is on stderr. Anything else: the run could not be written; the call may be
repeated.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from pathlib import Path

from stepscope import errors, schema, store
from stepscope.importers.kineto import Identity, import_trace
from stepscope.importers.memory_snapshot import SnapshotIdentity, import_snapshot
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
    parser.add_argument("--memory-snapshot", action="store_true")
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    import_file = _import_snapshot if arguments.memory_snapshot else _import_window
    try:
        import_file(arguments)
    except errors.StepscopeError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_code
    except OSError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return TEMPORARY_FAILURE
    return 0


def _import_window(arguments: argparse.Namespace) -> None:
    stored = store.open_run(arguments.run).table(
        "traces",
        columns=["trace"],
        condition='process = ? AND "window" = ?',
        parameters=(arguments.process, arguments.window),
    )
    if len(stored["trace"]):
        return
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


def _import_snapshot(arguments: argparse.Namespace) -> None:
    identity = SnapshotIdentity(
        name=f"{arguments.process}, memory snapshot {arguments.window}",
        rank=arguments.rank,
        process=arguments.process,
    )
    stored = store.open_run(arguments.run).table(
        "memory_snapshots", ["snapshot"], condition="name = ?", parameters=(identity.name,)
    )
    if len(stored["snapshot"]):
        return
    with store.RunWriter(arguments.run, arguments.node) as writer:
        try:
            import_snapshot(arguments.file, writer, identity)
        except (EOFError, zlib.error, ValueError) as error:
            raise errors.UnreadableTraceError(str(error)) from error


if __name__ == "__main__":
    sys.exit(main())
