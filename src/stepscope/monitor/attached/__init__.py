"""Recording of a job that runs already, from outside its processes.

    target     what can be seen of a process, which is described in the spool as capture would
    recorder   stack samples by py-spy, and windows that libkineto records on request

Does not belong here: samples of the node, which do not depend on how the job was started.
"""

from __future__ import annotations

from stepscope.monitor.attached.recorder import AttachedRecorder

__all__ = ["AttachedRecorder"]
