"""Account of a job that waits for none of its ranks: what each process does, and which one the
training waits for.

A thread is where its innermost frame of the user's code is. What it waits for follows from the
function of a library that this frame calls, or else from the function of the kernel in which the
thread waits; a wait that neither tells has no name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from stepscope import quantities, schema
from stepscope.diagnosis.stuck_account import StuckAccount, StuckProcess, find_user_frame

LIBRARY_WAITS: tuple[tuple[str, str, str], ...] = (
    ("torch/utils/data/dataloader.py", "", "a batch of its DataLoader workers"),
    ("threading.py", r"(Event\.)?wait$", "an event"),
    ("threading.py", r"Condition\.", "a condition"),
    ("threading.py", r"Barrier\.", "a barrier of threads"),
    ("threading.py", r"Semaphore\.|__enter__", "a semaphore"),
    ("threading.py", r"join|_wait_for_tstate_lock|_shutdown", "the end of a thread"),
    ("multiprocessing/process.py", "", "the end of a process"),
    ("multiprocessing/popen_fork.py", "", "the end of a process"),
    ("multiprocessing/synchronize.py", "", "a lock that processes share"),
    ("multiprocessing/queues.py", r"put", "room in a queue between processes"),
    ("multiprocessing/queues.py", "", "a queue between processes"),
    ("multiprocessing/pool.py", "", "the result of a pool of processes"),
    ("multiprocessing/connection.py", "", "another process"),
    ("concurrent/futures/", "", "the result of a pool"),
    ("queue.py", r"put", "room in a queue"),
    ("queue.py", "", "a queue"),
    ("subprocess.py", "", "a subprocess"),
    ("socket.py", "", "the network"),
    ("ssl.py", "", "the network"),
    ("http/client.py", "", "the network"),
    ("torch/distributed/", "", "other ranks"),
)
"""End or part of a file of a library, start of the name of a function, and what that waits for."""
KERNEL_WAITS: tuple[tuple[str, str], ...] = (
    ("futex", "waits for a lock"),
    ("pipe_write", "waits for room in a pipe, which no process reads"),
    ("pipe_read", "waits for input from a pipe"),
    ("tty_read", "waits for input from the terminal"),
    ("wait_woken", "waits for input from the terminal or the network"),
    ("do_wait", "waits for a subprocess"),
    ("kernel_wait", "waits for a subprocess"),
    ("nanosleep", "sleeps"),
    ("flock", "waits for a lock on a file"),
    ("locks_lock", "waits for a lock on a file"),
    ("setlk", "waits for a lock on a file"),
    ("fifo_open", "waits for the other end of a named pipe"),
    ("wait_for_partner", "waits for the other end of a named pipe"),
    ("nfs", "waits for the network file system"),
    ("rpc", "waits for the network file system"),
    ("fuse", "waits for the file system"),
    ("request_wait_answer", "waits for the file system"),
    ("folio_wait", "waits for the file system"),
    ("io_schedule", "waits for a disk"),
    ("unix_stream", "waits for another process at a socket"),
    ("inet_csk", "waits for the network"),
    ("sk_wait", "waits for the network"),
    ("tcp_", "waits for the network"),
    ("poll", "waits for a file or a socket"),
    ("select", "waits for a file or a socket"),
    ("jobctl_signal_stop", "is stopped by a signal"),
)
"""Part of the name of a function of the kernel, and what a thread does in it."""
PROCESS_WAITS = ("DataLoader workers", "process", "pool", "a subprocess")
"""Parts of what a thread waits for that other processes of the job have to end."""
QUEUE_WAITS = ("a queue", "room in a queue")
INPUT = re.compile(r"\binput\(|\bbreakpoint\(")
MAX_THREADS = 3


def explain_hang(nodes: Mapping[str, schema.StuckNode]) -> StuckAccount | None:
    """Explain why a job makes no progress, or made none until it ended; None if no node has told
    what its processes do."""
    nodes = {name: node for name, node in nodes.items() if node.processes}
    if not nodes:
        return None
    processes = [process for node in nodes.values() for process in node.processes]
    trainers = [p for p in processes if p.has_trained] or [p for p in processes if p.role == "main"]
    if not trainers:
        trainers = [p for p in processes if p.role != "child"] or processes
    blamed = next((b for t in trainers if (b := _find_blamed(t, processes)) is not t), trainers[0])
    since_ns = max(node.since_ns for node in nodes.values())
    seen_ns = max(node.seen_ns for node in nodes.values())
    has_ended = all(node.has_ended for node in nodes.values())
    order = sorted(processes, key=lambda p: (p is not blamed, p not in trainers, p.pid))
    return StuckAccount(
        kind="hang",
        headline=_write_headline(blamed, trainers, seen_ns - since_ns, has_ended=has_ended),
        has_ended=has_ended,
        since_ns=since_ns,
        duration_ns=max(0, seen_ns - since_ns),
        group="",
        number=0,
        collective="",
        culprits=[] if blamed.rank is None else [blamed.rank],
        ranks=[],
        processes=[_make_process(process, process is blamed) for process in order],
    )


def _find_blamed(
    trainer: schema.ProcessAccount, processes: Sequence[schema.ProcessAccount]
) -> schema.ProcessAccount:
    """Find the process that a training process waits for; that itself if it waits for none."""
    wait = "" if not trainer.threads else describe_wait(trainer, trainer.threads[0])
    children = [p for p in processes if p.parent_pid == trainer.pid]
    dead = [p for p in children if p.state in {schema.RankState.KILLED, schema.RankState.FAILED}]
    waits_for_process = any(part in wait for part in PROCESS_WAITS)
    if dead and (waits_for_process or any(part in wait for part in QUEUE_WAITS)):
        return dead[0]
    if not waits_for_process:
        return trainer
    if "DataLoader" in wait:
        children = [p for p in children if p.role == "dataloader_worker"]
    stopped = [p for p in children if p.state is schema.RankState.SUSPENDED]
    busy = [p for p in children if not _is_idle(p)]
    unrecorded = [p for p in children if p.role == "child"]
    return next(iter([*stopped, *busy, *unrecorded]), trainer)


def _is_idle(process: schema.ProcessAccount) -> bool:
    """Return True for a worker that waits for work: it is in no code of the user."""
    if not process.threads or not process.threads[0].frames:
        return True
    frames = process.threads[0].frames
    user = [i for i, frame in enumerate(frames) if not schema.library_of(frame.file)]
    has_worker = any(f.file.endswith("torch/utils/data/_utils/worker.py") for f in frames)
    if has_worker:  # frames of the script that started it are outside of the worker's loop
        loop = next(i for i, f in enumerate(frames) if f.file.endswith("_utils/worker.py"))
        user = [index for index in user if index < loop]
    wait = describe_wait(process, process.threads[0])
    return not user or (has_worker is False and any(part in wait for part in QUEUE_WAITS))


def describe_wait(process: schema.ProcessAccount, thread: schema.ThreadAccount) -> str:
    """Describe what a thread does, in words that follow its name; empty if that is unknown."""
    if process.state is schema.RankState.SUSPENDED:
        return f"is suspended (kill -CONT {process.pid} resumes it)"
    frames = thread.frames
    user = next((i for i, f in enumerate(frames) if not schema.library_of(f.file)), len(frames))
    if user < len(frames) and thread.state != "R" and INPUT.search(frames[user].text):
        return "waits for input"
    for frame in reversed(frames[:user]):  # that which the user's code calls is the first
        file = frame.file.replace("\\", "/")
        for part, function, wait in LIBRARY_WAITS:
            is_file = part in file if part.endswith("/") else file.endswith(f"/{part}")
            if is_file and re.match(function, frame.function):
                return f"waits for {wait}"
    if thread.state == "R":
        return "runs"
    return next((wait for part, wait in KERNEL_WAITS if part in thread.wait_channel), "")


def name_process(process: schema.ProcessAccount) -> str:
    """Name a process as a user would."""
    if process.role == "dataloader_worker":
        number = "" if process.worker is None else f" {process.worker}"
        return f"DataLoader worker{number}"
    if process.rank is not None:
        return f"rank {process.rank}"
    if process.role == "child" and process.command:
        return f"process {process.pid} ({process.command})"
    return f"process {process.pid}"


def _write_headline(
    blamed: schema.ProcessAccount,
    trainers: Sequence[schema.ProcessAccount],
    duration_ns: int,
    *,
    has_ended: bool,
) -> str:
    what = "step" if any(process.has_trained for process in trainers) else "progress"
    verb = "was stuck until it ended" if has_ended else "is stuck"
    text = f"The job {verb}, no {what} for {quantities.duration(duration_ns)}: "
    if blamed.state in {schema.RankState.KILLED, schema.RankState.FAILED}:
        text += f"{name_process(blamed)} {_describe_death(blamed)}, and the training waits for it"
        return f"{text}."
    subject = name_process(blamed)
    if blamed in trainers:
        rank = "" if blamed.rank is None or len(trainers) == 1 else f" of rank {blamed.rank}"
        subject = f"the training thread{rank}"
    thread = blamed.threads[0] if blamed.threads else None
    text += f"{subject} {'waits' if thread is None else _place(blamed, thread, is_short=True)}"
    return f"{text}." if blamed in trainers else f"{text}, and the training thread waits for it."


def _place(
    process: schema.ProcessAccount, thread: schema.ThreadAccount, *, is_short: bool = False
) -> str:
    """Say what a thread does and where."""
    wait = describe_wait(process, thread) or "waits"
    if wait == "runs":
        wait = "runs without progress"
    frame = find_user_frame(thread.frames)
    if frame is None:
        return wait
    file = PurePath(frame.file).name if is_short else frame.file
    code = f": {frame.text}" if frame.text and not is_short else ""
    line = f":{frame.line}" if frame.line else ""
    return f"{wait} in {frame.function} ({file}{line}){code}"


def _describe_death(process: schema.ProcessAccount) -> str:
    if process.state is schema.RankState.FAILED:
        return f"ended with {process.detail}"
    return "was killed"


def _make_process(process: schema.ProcessAccount, is_blamed: bool) -> StuckProcess:
    thread = process.threads[0] if process.threads else None
    frame = None if thread is None else find_user_frame(thread.frames)
    return StuckProcess(
        pid=process.pid,
        role=process.role,
        is_blamed=is_blamed,
        location="" if frame is None else f"{frame.file}:{frame.line}",
        function="" if frame is None else frame.function,
        text=_write_process(process),
    )


def _write_process(process: schema.ProcessAccount) -> str:
    name = name_process(process)
    if str(process.pid) not in name:
        name += f", process {process.pid},"
    name = name[0].upper() + name[1:]
    if process.state in {schema.RankState.KILLED, schema.RankState.FAILED}:
        return f"{name} {_describe_death(process)}."
    if not process.threads:
        return f"{name} runs{f'; {process.detail}' if process.detail else ''}."
    parts = [f"{name} {_place(process, process.threads[0])}"]
    for thread in process.threads[1 : MAX_THREADS + 1]:
        if find_user_frame(thread.frames) is not None:
            parts.append(f"its thread {thread.name} {_place(process, thread)}")
    first = process.threads[0]
    kernel = [part for part in (first.state, first.wait_channel) if part]
    if kernel:
        parts.append(f"state {', '.join(kernel)}")
    if process.cpu_ratio is not None:
        parts.append(f"{quantities.percent(process.cpu_ratio)} of one core")
    if process.detail:
        parts.append(process.detail)
    return f"{'; '.join(parts)}."
