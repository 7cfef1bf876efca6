"""`python -m stepscope.watch`, configured on stdin: started by the launcher, not by users."""

from __future__ import annotations

import os
import signal
import sys

import msgspec

from stepscope.cores import collect_seldom

NICENESS = 10
"""The job has priority: importing our dependencies alone takes a second of a core."""


def main() -> None:
    """Watch one job."""
    os.nice(NICENESS)
    collect_seldom()
    # The launcher handles its signals one by one and has them blocked, which children inherit.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    from stepscope.watch.config import LeaseWatch, WatchConfig

    config = msgspec.json.decode(sys.stdin.buffer.read(), type=WatchConfig)
    lease = LeaseWatch(config.run, config.node)
    if lease.wait(config.launcher_pid):
        # A node without the lease does not pay for these imports.
        from stepscope.watch.process import Watch

        Watch(config, lease).run()


if __name__ == "__main__":
    main()
