"""Account of a job that waits for none of its ranks: what each process does, and which one the
training waits for.

A thread is where its innermost frame of the user's code is. What it waits for follows from the
function of a library that this frame calls, or else from the function of the kernel in which the
thread waits; a wait that neither tells has no name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set as AbstractSet
from pathlib import PurePath

import msgspec

from stepscope import quantities, schema
from stepscope.diagnosis.stuck_account import StuckAccount, StuckProcess, find_user_frame

LIBRARY_WAITS: tuple[tuple[str, str, str], ...] = (
    ("torch/utils/data/dataloader.py", "", "a batch of its DataLoader workers"),
    ("threading.py", r"Barrier\.", "a barrier of threads"),
    ("threading.py", r"Semaphore\.", "a semaphore"),
    ("threading.py", r"\bjoin$|_wait_for_tstate_lock|_shutdown", "the end of a thread"),
    ("threading.py", r"Event\.wait$", "an event"),
    ("threading.py", r"\bwait(_for)?$", "an event or a condition"),
    ("multiprocessing/process.py", "", "the end of a process"),
    ("multiprocessing/popen_fork.py", "", "the end of a process"),
    ("multiprocessing/synchronize.py", "", "a lock that processes share"),
    ("multiprocessing/queues.py", r"\bput$", "room in a queue between processes"),
    ("multiprocessing/queues.py", "", "a queue between processes"),
    ("multiprocessing/pool.py", "", "the result of a pool of processes"),
    ("multiprocessing/connection.py", "", "another process"),
    ("concurrent/futures/", "", "the result of a pool"),
    ("queue.py", r"\bput$", "room in a queue"),
    ("queue.py", "", "a queue"),
    ("subprocess.py", "", "a subprocess"),
    ("socket.py", "", "the network"),
    ("ssl.py", "", "the network"),
    ("http/client.py", "", "the network"),
    ("torch/distributed/", "", "other ranks"),
)
"""End or part of a file of a library, pattern of the name of a function, and what that waits for.
Python before 3.11 tells no class."""
KERNEL_WAITS: tuple[tuple[str, str], ...] = (
    ("futex", "waits for a lock"),
    ("pipe_write", "waits for room in a full pipe"),
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
PROCESS_WAITS = ("DataLoader workers", "process", "pool of", "a subprocess")
"""Parts of what a thread waits for that other processes of the job have to end."""
QUEUE_WAITS = ("a queue", "room in a queue")
INPUT = re.compile(r"\binput\(|\bbreakpoint\(")
MAX_THREADS = 3
MAX_IDLE_CORES = 0.1
"""CPU time per time of a job that waits."""
WORKER_ROLE = "dataloader_worker"


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
    candidates = [
        blamed
        for node in nodes.values()  # a pid says which process it is on its own node only
        for trainer in node.processes
        if trainer in trainers and (blamed := _find_blamed(trainer, node.processes)) is not trainer
    ]
    candidates += [trainer for trainer in trainers if not _waits_for_ranks(trainer)]
    blamed = next(iter(candidates), trainers[0])
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
        culprits=[] if blamed.rank is None or _waits_for_ranks(blamed) else [blamed.rank],
        ranks=[],
        processes=[_make_process(process, process is blamed) for process in order],
    )


class ProcessStates(msgspec.Struct, frozen=True, kw_only=True):
    """Activity of the processes of a job at one moment: the payload of `attach PID --once`."""

    headline: str
    duration_ns: int
    """Time between two looks, over which CPU time was measured."""
    has_moved: bool
    """True if the job has used CPU time, or a stack has changed."""
    processes: list[StuckProcess]
    """The one that the others wait for first."""
    notes: list[str] = []
    """What is not known, and why; one sentence each."""


def describe_processes(
    processes: Sequence[schema.ProcessAccount],
    duration_ns: int,
    moved: AbstractSet[int] = frozenset(),
    notes: Sequence[str] = (),
) -> ProcessStates | None:
    """Describe what processes do at one moment; None without any.

    Args:
        processes: the processes, the root of the job first.
        duration_ns: time between two looks.
        moved: processes whose stacks have changed meanwhile.
        notes: what is not known.
    """
    if not processes:
        return None
    trainers = [p for p in processes if p.role == "program"][:1] or [processes[0]]
    blamed = _find_blamed(trainers[0], processes)
    cores = sum(process.cpu_ratio or 0.0 for process in processes)
    has_moved = bool(moved) or cores > MAX_IDLE_CORES
    first = blamed.threads[0] if blamed.threads else None
    activity = "runs" if first is None else _place(blamed, first, is_short=True, is_stuck=False)
    text = f"{name_process(blamed)} {activity}"
    if blamed is not trainers[0]:
        text += f", and process {trainers[0].pid} waits for it"
    span = quantities.duration(duration_ns)
    headline = (
        f"The job moves: in {span} it used {quantities.number(cores)} cores; {text}."
        if has_moved
        else f"Nothing moved for {span}: {text}."
    )
    order = sorted(processes, key=lambda process: (process is not blamed, process.pid))
    return ProcessStates(
        headline=headline,
        duration_ns=duration_ns,
        has_moved=has_moved,
        processes=[_make_process(process, process is blamed) for process in order],
        notes=[*notes],
    )


def _waits_for_ranks(process: schema.ProcessAccount) -> bool:
    return bool(process.threads) and "other ranks" in describe_wait(process, process.threads[0])


def _find_blamed(
    trainer: schema.ProcessAccount, processes: Sequence[schema.ProcessAccount]
) -> schema.ProcessAccount:
    """Find the process that a training process waits for; that itself if it waits for none."""
    wait = "" if not trainer.threads else describe_wait(trainer, trainer.threads[0])
    children = [p for p in processes if p.parent_pid == trainer.pid and p is not trainer]
    dead = [p for p in children if p.state in {schema.RankState.KILLED, schema.RankState.FAILED}]
    waits_for_process = any(part in wait for part in PROCESS_WAITS)
    if dead and waits_for_process:
        return dead[0]
    if not waits_for_process:
        return trainer
    if "DataLoader" in wait:
        children = [p for p in children if p.role == WORKER_ROLE]
    stopped = [p for p in children if p.state is schema.RankState.SUSPENDED]
    busy = [p for p in children if not _is_idle(p)]
    unrecorded = [p for p in children if p.role == "child"]
    return next(iter([*stopped, *busy, *unrecorded]), trainer)


def _is_idle(process: schema.ProcessAccount) -> bool:
    """Return True for a worker that waits for work: it is in no code of the user, or takes what it
    works on from a queue."""
    if not process.threads:
        return True
    thread = process.threads[0]
    wait = describe_wait(process, thread)
    return not _runs_user_code(thread) or any(part in wait for part in QUEUE_WAITS)


def own_frames(thread: schema.ThreadAccount) -> list[schema.StackFrame]:
    """Return the frames of a thread, without those of the script that forked its process."""
    frames = thread.frames
    start = next((i for i, f in enumerate(frames) if f.function.endswith("_bootstrap")), None)
    return frames[:start]


def describe_wait(process: schema.ProcessAccount, thread: schema.ThreadAccount) -> str:
    """Describe what a thread does, in words that follow its name; empty if that is unknown."""
    if process.state is schema.RankState.SUSPENDED:
        return f"is suspended (kill -CONT {process.pid} resumes it)"
    frames = own_frames(thread)
    user = next((i for i, f in enumerate(frames) if not schema.library_of(f.file)), len(frames))
    if user < len(frames) and thread.state != "R" and INPUT.search(frames[user].text):
        return "waits for input"
    for frame in reversed(frames[:user]):  # that which the user's code calls is the first
        file = frame.file.replace("\\", "/")
        for part, function, wait in LIBRARY_WAITS:
            is_file = part in file if part.endswith("/") else file.endswith(f"/{part}")
            if is_file and re.search(function, frame.function):
                return f"waits for {wait}"
    return _bare_wait(thread)


def name_process(process: schema.ProcessAccount) -> str:
    """Name a process as a user would."""
    if process.role == WORKER_ROLE:
        number = "" if process.worker is None else f" {process.worker}"
        return f"DataLoader worker{number}"
    if process.rank is not None:
        return f"rank {process.rank}"
    if process.role == "main":
        return schema.TRAINER
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
    unit = "step" if any(process.has_trained for process in trainers) else "progress"
    verb = "was stuck until it ended" if has_ended else "is stuck"
    text = f"The job {verb}, no {unit} for {quantities.duration(duration_ns)}: "
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
    process: schema.ProcessAccount,
    thread: schema.ThreadAccount,
    *,
    is_short: bool = False,
    is_stuck: bool = True,
) -> str:
    """Say what a thread does and where."""
    wait = describe_wait(process, thread) or "waits"
    if wait == "runs" and is_stuck:
        wait = "runs without progress"
    frame = find_user_frame(own_frames(thread))
    if frame is None:
        return wait
    if process.role == WORKER_ROLE and schema.library_of(frame.file):
        return "waits for work"
    file = PurePath(frame.file).name if is_short else frame.file
    code = f": {frame.text}" if frame.text and not is_short else ""
    line = f":{frame.line}" if frame.line else ""
    return f"{wait} in {frame.function} ({file}{line}){code}"


def _bare_wait(thread: schema.ThreadAccount) -> str:
    """Describe what a thread without a stack does; empty if that is unknown."""
    if thread.state == "R":
        return "runs"
    return next((wait for part, wait in KERNEL_WAITS if part in thread.wait_channel), "")


def _runs_user_code(thread: schema.ThreadAccount) -> bool:
    return any(not schema.library_of(frame.file) for frame in own_frames(thread))


def _describe_death(process: schema.ProcessAccount) -> str:
    if process.state is schema.RankState.FAILED:
        return f"ended with {process.detail}"
    return f"was killed by {process.detail}" if process.detail else "has ended"


def _make_process(process: schema.ProcessAccount, is_blamed: bool) -> StuckProcess:
    thread = process.threads[0] if process.threads else None
    frame = None if thread is None else find_user_frame(own_frames(thread))
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
    bare = Counter(wait for t in process.threads[1:] if not t.frames and (wait := _bare_wait(t)))
    for wait, number in bare.most_common(MAX_THREADS):
        parts.append(f"{quantities.count_of(number, 'other thread')}: {wait}")
    more = [t for t in process.threads[1:] if _runs_user_code(t)]
    parts += [f"its thread {t.name} {_place(process, t)}" for t in more[:MAX_THREADS]]
    first = process.threads[0]
    kernel = [part for part in (first.state, first.wait_channel) if part]
    if kernel:
        parts.append(f"state {', '.join(kernel)}")
    if process.cpu_ratio is not None:
        parts.append(f"{quantities.percent(process.cpu_ratio)} of one core")
    if process.detail:
        parts.append(process.detail)
    return f"{'; '.join(parts)}."
