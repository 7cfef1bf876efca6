"""Every collective of the process, from PyTorch's flight recorder, off the training thread.

    recorders    the recorders of this version of PyTorch, transfers, stacks of all threads
    reader       thread that reads them as often as their rings need

The recorder numbers the collectives of every process group, with those that DistributedDataParallel
and other C++ code start (https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html).
"""

from __future__ import annotations

from stepscope.capture.frameworks.pytorch.flight_recorder.reader import keep_reading

__all__ = ["keep_reading"]
