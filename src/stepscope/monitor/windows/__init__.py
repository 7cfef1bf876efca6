"""Detailed windows of one node: planned, followed and imported.

service      thread that plans, follows and stores windows; detector of slowdowns
planner      start of a window, its plans, and the training processes
schedules    scheduled windows, and changes of the schedules while the job runs
requests     window requests and their progress
censuses     requests for censuses of memory
imports      import of finished files into tables
kineto_peer  daemon of libkineto, in a thread of its own
"""

from __future__ import annotations

from stepscope.monitor.windows.kineto_peer import open_peer

__all__ = ["open_peer"]
