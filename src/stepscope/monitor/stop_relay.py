"""Stops of a job on all of its nodes: the node that is asked to stop the job tells the others.

The launcher of a node looks for requests in its spool only, so that a slow run never makes it wait.
The monitors pass them on through the run; where that is in an object store, the uploads of the
nodes exchange them.
"""

from __future__ import annotations

import signal
import time

from stepscope.monitor.handshake import Handshake, StopSignal
from stepscope.schema import JobStop, LauncherInfo
from stepscope.store import SharedRun


class StopRelay:
    """Passes on requests to stop the job, from and to one node.

    Args:
        location: the run.
        launcher: the launcher of this node in a run of several; None in a run of one, where nothing
            is to be done.
        handshake: files that this monitor and its launcher share.
    """

    def __init__(self, location: str, launcher: LauncherInfo | None, handshake: Handshake) -> None:
        self._run = None if launcher is None else SharedRun(location)
        self._launcher = launcher
        self._handshake = handshake
        self._count = 0
        """Number of stops in the run that were read."""
        self._is_told = False

    def poll(self) -> None:
        """Tell the other nodes that the job was stopped here, and this node of a stop elsewhere.

        Raises:
            OSError: the run or the spool cannot be read or written; the next call tries again.
        """
        if self._run is None or self._launcher is None:
            return
        for stop in self._run.read_stops(self._count + 1):
            if stop.node != self._launcher.node and stop.incarnation >= self._launcher.incarnation:
                self._handshake.write_stop_elsewhere(
                    StopSignal(signal=signal.SIGTERM, rule=stop.rule, by=stop.by, node=stop.node)
                )
            self._count += 1
        here = self._handshake.read_stop()
        if here is not None and here.is_requested and here.node is None and not self._is_told:
            self._run.add_stop(
                JobStop(
                    node=self._launcher.node,
                    incarnation=self._run.find_latest_incarnation(),
                    rule=here.rule,
                    by=here.by,
                    stopped_ns=time.time_ns(),
                )
            )
            self._is_told = True
