"""`python -m stepscope.watch`, configured on stdin: started by the launcher, not by users."""

from __future__ import annotations

import os
import signal
import sys

import msgspec

from stepscope.cores import collect_seldom
from stepscope.watch.config import LeaseWatch, WatchConfig

NICENESS = 10
"""The job has priority: importing our dependencies alone takes a second of a core."""


def main() -> None:
    """Watch the job of the configuration on stdin."""
    os.nice(NICENESS)
    collect_seldom()
    _watch(msgspec.json.decode(sys.stdin.buffer.read(), type=WatchConfig))


def import_watch() -> None:
    """Import what the watch process needs."""
    import stepscope.watch.process  # noqa: F401
    from stepscope.rule_feed import check_rules  # noqa: F401


def watch_job(config: WatchConfig) -> None:
    """Watch one job in this process."""
    os.nice(NICENESS)
    _watch(config)


def _watch(config: WatchConfig) -> None:
    # The launcher handles its signals one by one and has them blocked, which children inherit.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    lease = LeaseWatch(config.run, config.node)
    if lease.wait(config.launcher_pid):
        # A node without the lease does not pay for these imports.
        from stepscope.watch.process import Watch

        Watch(config, lease).run()


if __name__ == "__main__":
    main()
