"""Software events in place of those of the processor, for monitors with this directory in the path.

Its calls of `perf_event_open` are changed: CPU time is counted for cycles and for instructions,
page faults for misses. So machines without a PMU count real processes.
"""

import struct
import sys

SOFTWARE, TASK_CLOCK, PAGE_FAULTS = 1, 1, 2
HARDWARE, CYCLES, INSTRUCTIONS = 0, 0, 1


def _change_events():
    from stepscope.monitor.samplers import counters

    call_kernel = counters._call_kernel

    def call_with_software_events(number, attributes, *arguments):
        kind, size, config = struct.unpack_from("=IIQ", attributes)
        is_clock = kind == HARDWARE and config in (CYCLES, INSTRUCTIONS)
        event = TASK_CLOCK if is_clock else PAGE_FAULTS
        changed = struct.pack("=IIQ", SOFTWARE, size, event) + attributes[16:]
        return call_kernel(number, changed, *arguments)

    counters._call_kernel = call_with_software_events


if {"stepscope.monitor", "run"} & set(sys.orig_argv):  # the launcher forks its monitor
    _change_events()
