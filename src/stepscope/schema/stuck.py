"""State of the ranks of a job that makes no progress, as the monitor of each node finds it."""

from __future__ import annotations

import enum

import msgspec

STUCK = "stuck"
"""Kind of the documents, one per node."""
STUCK_ALERT = "Stuck"
"""Name of the alert of a stuck job, where actions expect that of a rule."""


class RankState(enum.StrEnum):
    """State of a rank when its monitor asked."""

    ANSWERED = "answered"
    """It has told its stack and its collectives."""
    SILENT = "silent"
    """It runs and has not answered: a thread holds the interpreter lock."""
    SUSPENDED = "suspended"
    """A signal or a debugger has stopped it."""
    FINISHED = "finished"
    """Its script has ended."""
    FAILED = "failed"
    """An exception has ended its script."""
    KILLED = "killed"
    """It has ended without the interpreter, by a signal or an abort."""


class StackFrame(msgspec.Struct, frozen=True, kw_only=True):
    """Frame of a Python stack."""

    file: str
    line: int
    function: str
    text: str = ""
    """Source of the line, with secrets masked; only of the user's code."""


class CalledCollective(msgspec.Struct, frozen=True, kw_only=True):
    """Collective that a rank has called."""

    group: str
    number: int
    """Number within the group."""
    kind: str
    sizes: str = ""
    """Sizes of the inputs, or of the outputs without inputs."""
    dtypes: str = ""
    has_ended: bool = True
    t_ns: int = 0
    """Time of the call, epoch nanoseconds."""
    peer: int | None = None
    """Other rank of a transfer between two ranks; null for a collective."""


class RankAccount(msgspec.Struct, frozen=True, kw_only=True):
    """State and collectives of one rank."""

    rank: int
    process: str
    pid: int
    state: RankState
    detail: str = ""
    """Exception that has ended the script, or why there is no stack."""
    frames: list[StackFrame] = []
    """Stack of the main thread, innermost first."""
    calls: list[CalledCollective] = []
    """Latest collectives and transfers between two ranks, in the order of the calls."""
    is_last_read: bool = False
    """True if the calls are complete: the process was read when it was asked, or when it ended."""
    started_count: int | None = None
    """Collectives that it has started, over all groups; null if unknown."""


class StuckNode(msgspec.Struct, frozen=True, kw_only=True):
    """`stuck/<node>.json`: ranks of a node while nothing moves, replaced by its monitor."""

    node: str
    since_ns: int
    """Time of the last progress of any rank of the node, epoch nanoseconds."""
    seen_ns: int
    """Time of this state, epoch nanoseconds."""
    resolved_ns: int | None = None
    """Time at which the job went on; null while it does not."""
    has_ended: bool = False
    """True if the job has ended, not by itself with success."""
    was_stuck: bool = True
    """False for an account of a job that did not get stuck before it failed."""
    limit_ns: int
    """Time without progress from which the job counts as stuck. Ranks are asked earlier before the
    first step, and where another node is stuck."""
    groups: dict[str, list[int]] = {}
    """Ranks of process groups by name."""
    descriptions: dict[str, str] = {}
    """Purpose of process groups by name."""
    ranks: list[RankAccount] = []

    @property
    def has_reached_limit(self) -> bool:
        """True once the node has made no progress for so long that its job counts as stuck."""
        return self.seen_ns - self.since_ns >= self.limit_ns
