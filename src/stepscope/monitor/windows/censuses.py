"""Requests for censuses of memory on this node, and their progress."""

from __future__ import annotations

import msgspec

from stepscope import schema, spool, store

TIMEOUT_NS = 180_000_000_000
"""Time that a process has for two censuses, of which the second may follow after a minute."""
JOURNAL_FILE = "journal.jsonl"
UNAVAILABLE = "the spool of the job has no page for requests of censuses"
NO_PROCESS = "no process of the job has finished a step or made a batch"
NOT_ASKED = "no process of this node that trains or loads grows"
ENDED = "the process ended before the second census"
TOO_SLOW = "the process finished too few steps in 3 minutes"


class _Census(msgspec.Struct):
    number: int
    since_ns: int
    processes: dict[str, str]
    """Directories by the names of the processes."""


class CensusRequests:
    """Requests for censuses of the processes of one spool."""

    def __init__(self, tree: spool.SpoolTree, node: str) -> None:
        self._tree = tree
        self._node = node
        self._active: dict[str, _Census] = {}

    def follow(self, request: store.WindowRequest, now_ns: int) -> store.RequestStatus:
        """Make the request of the processes, and return how far they are."""
        census = self._active.get(request.name)
        if census is None:
            pids = request.pids.get(self._node, [])
            processes = self._find_processes()
            if request.pids:
                processes = {n: p for n, p in processes.items() if _read_pid(n) in pids}
            if not processes:
                return _fail(NOT_ASKED if request.pids else NO_PROCESS)
            number = spool.request_census(self._tree.root, pids)
            if number is None:
                return _fail(UNAVAILABLE)
            census = self._active[request.name] = _Census(number, now_ns, processes)
        is_late = now_ns - census.since_ns > TIMEOUT_NS
        windows = [
            _read_status(name, path, census.number, is_late=is_late)
            for name, path in census.processes.items()
        ]
        running = [w for w in windows if not w.state.is_final]
        stored = [w for w in windows if w.state is store.RequestState.STORED]
        if running:
            state = store.RequestState.RECORDING
        else:
            state = store.RequestState.STORED if stored else store.RequestState.FAILED
        reasons = [window.reason for window in windows if window.reason is not None]
        message = reasons[0] if reasons and not stored else ""
        return store.RequestStatus(state=state, message=message, windows=windows)

    def _find_processes(self) -> dict[str, str]:
        """Find the running processes that train or make batches."""
        paths = {n: p for n, p in self._tree.process_directories().items() if _is_asked(p)}
        return {name: path for name, path in paths.items() if spool.process_is_alive(path)}


def _read_pid(name: str) -> int:
    """Return the process id at the start of the name of a process."""
    pid = name.partition("-")[0]
    return int(pid) if pid.isdigit() else 0


def _is_asked(path: str) -> bool:
    heartbeat = spool.Heartbeat.open(path)
    if heartbeat is not None and heartbeat.words[spool.STEPS_WORD]:
        return True
    return bool(schema.decode_facts(_read_lines(path), schema.DataLoaderWorkerFact))


def _read_status(name: str, path: str, number: int, *, is_late: bool) -> store.WindowStatus:
    is_alive = spool.process_is_alive(path)
    facts = schema.decode_facts(_read_lines(path), schema.MemoryCensusFact)
    state, reason = store.RequestState.RECORDING, None
    if any(fact.request == number for fact in facts):
        state = store.RequestState.STORED
    elif is_late or not is_alive:
        state, reason = store.RequestState.FAILED, TOO_SLOW if is_alive else ENDED
    return store.WindowStatus(process=name, number=number, rank=None, state=state, reason=reason)


def _read_lines(path: str) -> list[dict[str, object]]:
    try:
        return spool.read_journal(f"{path}/{JOURNAL_FILE}")[0]
    except OSError:
        return []


def _fail(message: str) -> store.RequestStatus:
    return store.RequestStatus(state=store.RequestState.FAILED, message=message)
