"""Account of a job that is stuck: its form, and the sentences on a rank and a call.

`stuck` and `hang` make them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from stepscope import analysis, quantities, schema

CHECKPOINT_FILES = ("torch/serialization.py", "safetensors/torch.py")
CHECKPOINT_PACKAGES = ("torch/distributed/checkpoint/", "numpy/lib/")
CHECKPOINT, CHECKPOINT_VERBS = "checkpoint", ("save", "write")
"""Words in the name of a function that writes a checkpoint, by whatever means."""
MAX_LISTED = 8
"""Ranks that are described one by one."""

RankRole = Literal["waits", "missing", "differs", "ended first", "elsewhere"]
StuckKind = Literal[
    "missing", "differs", "ended first", "hang", "checkpoint", "starting", "unknown"
]
HARMLESS_KINDS = ("checkpoint", "starting", "unknown")
"""Kinds for which no job is stopped."""


class StuckRank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a job that is stuck."""

    rank: int
    node: str
    role: RankRole
    """waits (for others), missing (has not called the collective), differs (has called something
    else), ended first, or elsewhere."""
    state: schema.RankState
    collective: str
    """Last collective that it has called; empty if unknown."""
    location: str
    """Line of the user's code at which it is; empty if unknown."""
    text: str
    """Sentence on the rank."""


class StuckProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a job that waits for none of its ranks."""

    pid: Annotated[int, schema.field_label("process", display="identifier")]
    role: str
    """main, dataloader_worker, worker, program, or child for one that is not recorded."""
    is_blamed: bool
    """True for the one that the others wait for."""
    location: str
    """Line of the user's code at which it is; empty if unknown."""
    function: str
    """Function of that line."""
    text: str
    """Sentence on the process."""


class StuckAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Collective or transfer at which a job is stuck or has failed, and the ranks to blame, or the
    processes of a job that hangs."""

    kind: StuckKind
    """missing, differs, ended first, or hang (the job waits for none of its ranks); or what stops
    no job: checkpoint (ranks wait for one that writes a checkpoint), starting (no step has ended
    yet), or unknown (the others wait for ranks of which nothing is known)."""
    headline: str
    has_ended: bool
    """True if the job has ended; false while it is stuck."""
    since_ns: Annotated[int, schema.field_label("last progress", unit="epoch_ns")]
    duration_ns: int
    """Time without progress."""
    group: str
    """Name of the process group."""
    number: Annotated[int, schema.field_label(display="identifier")]
    """Number of the collective within the group, or of the transfer within its rank, from 1."""
    collective: str
    """Kind, sizes and types."""
    culprits: Annotated[list[int], schema.field_label(display="identifier")]
    """Ranks that have not arrived, differ or ended first; empty where nothing tells."""
    ranks: list[StuckRank]
    processes: list[StuckProcess] = []
    """Processes of a job that hangs, the one that the others wait for first."""
    advice: str = ""
    """What to do; empty for what stops no job."""

    @property
    def is_stuck(self) -> bool:
        """True while the job is stuck, as far as anything tells; False after the end."""
        return not self.has_ended and not self.is_harmless

    @property
    def is_harmless(self) -> bool:
        """True for an account that accuses no rank of a fault."""
        return self.kind in HARMLESS_KINDS

    @property
    def lines(self) -> list[str]:
        """Sentences on the ranks or processes, those that are to blame first."""
        order = sorted(self.ranks, key=lambda rank: (rank.rank not in self.culprits, rank.rank))
        texts = [rank.text for rank in order] or [process.text for process in self.processes]
        more = len(texts) - MAX_LISTED
        lines = texts[:MAX_LISTED]
        if more > 0:
            unit = ("more rank", "more ranks") if order else ("more process", "more processes")
            lines.append(f"{quantities.count_of(more, *unit)}.")
        return [*lines, f"What to do: {self.advice}"] if self.advice else lines


_ADVICE: dict[StuckKind, str] = {
    "missing": "find out why {culprits} did not get there: a branch that only some ranks take, an "
    "error, or work of one rank that takes too long.",
    "differs": "make all ranks call the same collectives in the same order, with the same sizes "
    "and types.",
    "ended first": "find out why {culprits} ended first: an error, or fewer batches than the "
    "others (drop_last=True, or torch.distributed.algorithms.join).",
    "hang": "find out what should have ended the wait{location}, and give it a timeout: then the "
    "job fails with an error.",
}


def advise(account: StuckAccount) -> StuckAccount:
    """Add what to do."""
    ranks = ", ".join(map(str, account.culprits[:MAX_LISTED]))
    culprits = f"{'rank' if len(account.culprits) == 1 else 'ranks'} {ranks}" if ranks else "it"
    blamed = next((process for process in account.processes if process.is_blamed), None)
    location = f" in {blamed.function}" if blamed is not None and blamed.function else ""
    text = _ADVICE.get(account.kind, "").format(culprits=culprits, location=location)
    return msgspec.structs.replace(account, advice=text)


def make_calls(account: schema.RankAccount) -> list[analysis.Call]:
    """Return the collectives of a rank for `analysis`, in the order of the calls."""
    return [_make_call(call) for call in account.calls if call.peer is None]


def make_transfers(account: schema.RankAccount) -> list[analysis.Call]:
    """Return the transfers of a rank for `analysis`, in the order of the calls."""
    return [_make_call(call) for call in account.calls if call.peer is not None]


def _make_call(call: schema.CalledCollective) -> analysis.Call:
    return analysis.Call(
        call.group,
        call.number,
        call.kind,
        call.sizes,
        call.dtypes,
        call.has_ended,
        call.t_ns,
        call.peer,
    )


def make_rank(
    rank: int, node: str, account: schema.RankAccount, role: RankRole, action: str
) -> StuckRank:
    """Make the description of a rank.

    Args:
        rank, node: the rank and its node.
        account: what is known of it.
        role: its part in why the job is stuck.
        action: the same in words, which follow "Rank 3".
    """
    frame = find_user_frame(account.frames)
    last = account.calls[-1] if account.calls else None
    return StuckRank(
        rank=rank,
        node=node,
        role=role,
        state=account.state,
        collective="" if last is None else name_call(_make_call(last)),
        location="" if frame is None else f"{frame.file}:{frame.line}",
        text=_write_rank(rank, role, action, account, frame),
    )


def _write_rank(
    rank: int,
    role: RankRole,
    action: str,
    account: schema.RankAccount,
    frame: schema.StackFrame | None,
) -> str:
    state = describe_state(account)
    if state and role != "ended first":
        action += f"; {state}"
    if checkpoint_frame(account.frames) is not None:
        action += "; it writes a checkpoint"
    if frame is None:
        return f"Rank {rank} {action}."
    code = f": {frame.text}" if frame.text else ""
    return f"Rank {rank} {action}; it is at {frame.file}:{frame.line} in {frame.function}{code}."


def is_starting(nodes: Mapping[str, schema.StuckNode]) -> bool:
    """Check that a job waits as jobs do before their first step: no node has reached its limit."""
    has_ended = all(node.has_ended for node in nodes.values())
    return not has_ended and not any(node.has_reached_limit for node in nodes.values())


def begin_headline(kind: StuckKind, duration_ns: int, *, has_ended: bool, was_stuck: bool) -> str:
    """Write the beginning of the sentence on a job.

    A duration of 0 is not known: dumps of gloo state no time but that of the creation of a call.
    """
    if not was_stuck:
        return "The job failed"
    if kind == "starting":
        return f"No step has ended yet, and the job has waited {quantities.duration(duration_ns)}"
    verb = f"The job {'was' if has_ended else 'is'} stuck"
    return f"{verb} for {quantities.duration(duration_ns)}" if duration_ns else verb


def describe_state(account: schema.RankAccount) -> str:
    """Describe the state of a rank that did not answer or has ended; empty for others."""
    match account.state:
        case schema.RankState.SUSPENDED:
            return f"process {account.pid} is suspended (kill -CONT {account.pid} resumes it)"
        case schema.RankState.SILENT:
            return account.detail
        case schema.RankState.KILLED | schema.RankState.FAILED:
            return f"it {describe_end(account)}"
        case schema.RankState.FINISHED:
            return "its script has ended"
        case schema.RankState.ANSWERED:
            return ""


def describe_end(account: schema.RankAccount) -> str:
    """Describe how a rank has ended."""
    if account.state is schema.RankState.FAILED:
        return f"ended with {account.detail}"
    return "was killed"


def checkpoint_frame(frames: Sequence[schema.StackFrame]) -> schema.StackFrame | None:
    """Find the frame that writes a checkpoint: that of torch.save, of a library for them, or of a
    function that is called so, such as save_checkpoint."""
    for frame in frames:
        file, function = frame.file.replace("\\", "/"), frame.function.lower()
        is_library = any(package in file for package in CHECKPOINT_PACKAGES)
        if (file.endswith(CHECKPOINT_FILES) or is_library) and "save" in function:
            return frame
        if CHECKPOINT in function and any(verb in function for verb in CHECKPOINT_VERBS):
            return frame
    return None


def find_user_frame(frames: Sequence[schema.StackFrame]) -> schema.StackFrame | None:
    """Find the innermost frame of the user's code; the innermost of all without one."""
    return next((f for f in frames if not schema.library_of(f.file)), frames[0] if frames else None)


def name_call(call: analysis.Call) -> str:
    """Name a call with its sizes and types, a transfer with the other rank."""
    details = " ".join(part for part in (call.sizes, call.dtypes) if part)
    name = f"{call.kind} ({details})" if details else call.kind
    if call.peer is None:
        return name
    return f"{name} {'from' if is_receive(call) else 'to'} rank {call.peer}"


def is_receive(call: analysis.Call) -> bool:
    """Return True for a transfer in which the rank receives."""
    return "recv" in call.kind.lower()


def list_ranks(ranks: Sequence[int]) -> str:
    """List ranks in words.

    >>> list_ranks([1]), list_ranks([0, 2, 5])
    ('rank 1', 'ranks 0, 2 and 5')
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > MAX_LISTED:
        return f"{len(ranks)} ranks (first {ranks[0]})"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
