"""Recording of a job that runs already, from outside its processes.

    outside_process  a process of the job, described in the spool as capture would
    py_spy           stack samples of its main thread, by py-spy
    target           what can be seen of the process to attach to
    recorder         both, and windows that libkineto records on request

Does not belong here: samples of the node, which do not depend on how the job was started.
"""

from __future__ import annotations

from stepscope.monitor.attached.recorder import AttachedRecorder

__all__ = ["AttachedRecorder"]
