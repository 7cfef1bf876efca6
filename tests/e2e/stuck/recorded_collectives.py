"""A process group of one rank, whose recorder is read; the test says how the job goes on.

recorded_collectives.py CASE
"""

import os
import sys
import threading
import time

import torch
import torch.distributed as dist

from stepscope.capture.frameworks.pytorch.flight_recorder import reader, recorders
from stepscope.spool import ENDED_WORD, STARTED_WORD


def call(count):
    tensor = torch.ones(4)
    for _ in range(count):
        dist.all_reduce(tensor)


def read_directly():
    """The dump without the interpreter lock is that of PyTorch's own function."""
    call(50)
    (recorder,) = recorders.find_recorders()
    expected = torch._C._distributed_c10d._dump_fr_trace(includeStackTraces=False)
    print(recorder.holds_lock, recorder.dump() == expected, recorder.read_progress())


def fork():
    """A child has no reader and can end; the parent goes on."""
    call(5)
    child = os.fork()
    if not child:
        os._exit(0 if reader._reader is None else 1)
    status = os.waitpid(child, 0)[1]
    stopped = reader._reader is None
    call(5)
    print(status, stopped, reader._reader is not None)


def destroy():
    """Groups are destroyed and made again."""
    call(3)
    dist.destroy_process_group()
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    dist.init_process_group("gloo")
    group = dist.new_group([0])
    dist.broadcast(torch.ones(2), 0, group=group)
    dist.destroy_process_group()
    print("done")


def flood():
    """More calls than the ring holds, as fast as they can be made."""
    call(4000)
    print("done")


def fail():
    """An exception ends the script right after its last collective."""
    call(7)
    raise KeyError("end of the job")


def wait_for_thread():
    """A reader that was started by a thread that has ended goes on."""
    thread = threading.Thread(target=call, args=(3,))
    thread.start()
    thread.join()
    deadline = time.monotonic() + 20
    while reader._rings[0].progress[0] < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    print(reader._rings[0].progress)


def race():
    """Many threads make a collective at once while there is no reader: one of them starts it."""
    sys.setswitchinterval(1e-6)
    counts = set()
    for _ in range(50):
        reader._stop()
        barrier = threading.Barrier(8)
        threads = [threading.Thread(target=start_reader, args=(barrier,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        names = [thread.name for thread in threading.enumerate()]
        counts.add(names.count("stepscope-collectives"))
    print(counts)


def start_reader(barrier):
    barrier.wait()
    reader.keep_reading()


def leave():
    """The recorder goes on to say that a collective has not ended, as that of NCCL may do."""
    call(3)
    reader._rings[0].recorder.read_progress = lambda: (3, 2)
    shown = [show_progress((3, 2))]
    dist.destroy_process_group()
    print(*shown, show_progress((3, 3)))


def show_progress(expected):
    """Return what the page shows, as soon as that is expected."""
    words = reader._reader._page.words
    deadline = time.monotonic() + 20
    while True:
        shown = words[STARTED_WORD], words[ENDED_WORD]
        if shown == expected or time.monotonic() > deadline:
            return shown
        time.sleep(0.01)


dist.init_process_group("gloo")
globals()[sys.argv[1]]()
