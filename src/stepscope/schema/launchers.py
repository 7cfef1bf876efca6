"""Documents by which the launchers of one job share a run."""

from __future__ import annotations

import msgspec


class LauncherInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`launchers/<node>.json`: one `stepscope run` of a job of several, written once."""

    node: str
    """Name of its node in the run: `gpu01`, or `gpu01~2` for the second launcher there."""
    host: str
    """Name of the machine."""
    slot: str
    """Place of the launcher in the job: its host, and its rank if the launcher of the job has
    started it as one. A launcher that is started again has the slot of the earlier one."""
    incarnation: int
    """Lowest incarnation that its processes can be of."""
    registered_ns: int
    """Time of registration, epoch nanoseconds."""
    machine: str
    """Identifies the machine since its last start, and its space of process ids."""
    pid: int
    start_ticks: int
    """Clock ticks from the start of the machine to that of the launcher."""
    parent: str | None = None
    """Process that has started the launcher, as `<pid>-<start in clock ticks>`: the agent of
    torchrun, for a script that profiles itself; null if unknown."""


class Incarnation(msgspec.Struct, frozen=True, kw_only=True):
    """`incarnations/<number>.json`: one start of the training processes of a job, written by the
    first monitor that sees one of its processes."""

    number: int
    """Counted from 1."""
    world_size: int | None
    started_ns: int
    """Start of its first process, epoch nanoseconds."""
    node: str


class RankClaim(msgspec.Struct, frozen=True, kw_only=True):
    """`rank-claims/<incarnation>-<rank>.json`: the process that is this rank, written once."""

    node: str
    process: str


class JobStop(msgspec.Struct, frozen=True, kw_only=True):
    """`stops/<number>.json`: a request of a rule or a person that has stopped the job on one node,
    for the launchers of the others; written once."""

    node: str
    """Node on which it was stopped."""
    incarnation: int
    """Latest incarnation at that time. Launchers of later ones are not meant."""
    rule: str | None = None
    """Rule that has requested it."""
    by: str | None = None
    """Person who has requested it."""
    stopped_ns: int
    """Epoch nanoseconds."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """`leases/<number>.json`: the node that evaluates rules and writes the verdict, written once.

    The lease of the highest number is valid. Another node takes the next one if the holder has sent
    no heartbeat for a minute.
    """

    number: int
    """Counted from 1."""
    node: str
    taken_ns: int
    """Epoch nanoseconds."""
