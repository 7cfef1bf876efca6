"""Dependencies between the operations of a training step with pipeline and data parallelism.

An operation of a worker starts when the operations before it have ended:

    computations         one after the other, in the order of their starts
    a receive            after the previous computation of its kind; its computation follows it
    a send               after its computation
    transfers            those of one kind on one worker, one after the other
    first of backward    a first backward transfer is posted one forward pass ahead of the last one
    params-all-gather    before the first forward computation of its chunk
    grads-reduce-scatter after the last backward computation of its chunk if exchange and
                         computation overlap (the job then has separate-grads-all-reduce);
                         otherwise in the closing chain
    closing chain        last computation → gc → layernorm and embedding gradients →
                         gradient exchange → clipping → optimizer

Operations of a group end together with the slowest: each takes its transfer from the latest start
in the group on. Groups are a send and its receive; exchanges of one stage over the data ranks;
embedding gradients over the stages that have them; clipping over all workers. A receive belongs to
the send of the same microbatch on the neighbouring chunk of the model. Where the trace lacks one of
the two, the end of the computation before it stands for its start; where it lacks both, the
computation follows that of the neighbouring chunk directly.

The model follows "Understanding Stragglers in Large Model Training Using What-if Analysis",
section 3 (https://arxiv.org/abs/2505.05713).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from stepscope.analysis.ranks import stage_operations

Key = tuple[str, int, int]
"""Computation: its kind, microbatch and chunk of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Operations that end only after all of them have started; one alone waits for no other."""

    members: tuple[int, ...]
    synced: bool
    """True if the members of all data ranks are one group."""
    communicates: bool


class StageGraph(msgspec.Struct, frozen=True, kw_only=True):
    """Groups in an order in which each comes after all that it depends on."""

    groups: list[Group]
    dependencies: list[list[int]]
    """Operations that an operation follows, by operation."""
    ready: dict[int, int]
    """Transfers without a recorded counterpart, with the computation after which that started."""
    unused: frozenset[int]
    """Recorded transfers that transfer nothing: a first chunk receives no input."""
    unpaired_count: int
    """Transfers without a counterpart in the trace."""


class _Builder(msgspec.Struct):
    operations: stage_operations.AlignedOperations
    before: list[set[int]]
    links: dict[tuple[str, Key], int]
    """Transfer by its kind and its computation."""
    unused: set[int]
    previous: dict[int, int] = msgspec.field(default_factory=dict)
    """Computation before a computation, on its stage."""
    previous_same: dict[int, int] = msgspec.field(default_factory=dict)
    """The same, of the same kind."""
    ready: dict[int, int] = msgspec.field(default_factory=dict)
    unmatched: int = 0

    def chain(self, order: Sequence[int], after: Iterable[int] = ()) -> None:
        """Make operations follow each other, the first one those of `after`."""
        previous = list(after)
        for operation in order:
            self.before[operation].update(previous)
            previous = [operation]


def build_graph(operations: stage_operations.AlignedOperations) -> StageGraph:
    """Build the dependencies of the operations of a step, the same for all cells.

    Raises:
        StageOperationsError: the operations depend on each other in a circle.
    """
    builder = _Builder(operations, [set() for _ in operations.kind], {}, set())
    keys = _name_computations(operations)
    by_key = {key: index for index, key in keys.items()}
    overlaps = stage_operations.SEPARATE_ALL_REDUCE in operations.kind
    for stage in range(operations.stage_count):
        computations = _sort_by_start(
            operations,
            operations.find(stage_operations.FORWARD, stage_operations.BACKWARD, stage=stage),
        )
        builder.chain(computations)
        builder.previous |= dict(zip(computations[1:], computations, strict=False))
        for kind in (stage_operations.FORWARD, stage_operations.BACKWARD):
            same = [index for index in computations if operations.kind[index] == kind]
            _link_transfers(builder, stage, same, keys)
        _post_first_backward(builder, stage, computations)
        _link_exchanges(builder, stage, computations, overlaps=overlaps)
        _close_step(builder, stage, computations[-1], overlaps=overlaps)
    groups, unpaired = _pair_transfers(builder, keys, by_key)
    groups += _group_exchanges(operations)
    return StageGraph(
        groups=_sort_groups(groups, builder.before),
        dependencies=[sorted(before) for before in builder.before],
        ready=builder.ready,
        unused=frozenset(builder.unused),
        unpaired_count=unpaired + builder.unmatched,
    )


def _name_computations(operations: stage_operations.AlignedOperations) -> dict[int, Key]:
    """Name computations by kind, microbatch and chunk; unknown microbatches count in order."""
    keys: dict[int, Key] = {}
    for kind in (stage_operations.FORWARD, stage_operations.BACKWARD):
        for chunk in np.unique(operations.model_chunk[operations.find(kind)]).tolist():
            same = [i for i in operations.find(kind) if operations.model_chunk[i] == chunk]
            ordered = _sort_by_start(operations, same)
            numbers = operations.microbatch[ordered].tolist()
            if min(numbers) < 0 or len(set(numbers)) < len(numbers):
                numbers = list(range(len(ordered)))
            keys |= {i: (kind, n, chunk) for i, n in zip(ordered, numbers, strict=True)}
    return keys


def _sort_by_start(
    operations: stage_operations.AlignedOperations, indices: Sequence[int]
) -> list[int]:
    """Sort operations by their start in the cell that has most of them; one that it lacks comes
    after the one that it follows elsewhere."""
    if not indices:
        return []
    start = operations.start[list(indices)].reshape(len(indices), -1)
    present = ~np.isnan(start)
    ties = operations.sequence[list(indices)]
    cell = int(present.sum(axis=0).argmax())
    order = [row for row in np.lexsort((ties, start[:, cell])).tolist() if present[row, cell]]
    for row in np.flatnonzero(~present[:, cell]).tolist():
        fuller = int(np.where(present[row], present.sum(axis=0), -1).argmax())
        earlier = [index for index, o in enumerate(order) if start[o, fuller] <= start[row, fuller]]
        order.insert(max(earlier, default=-1) + 1, row)
    return [indices[row] for row in order]


# --- transfers between stages --------------------------------------------------------------------


def _neighbour(kind: str, chunk: int, *, sends: bool) -> int:
    """Return the chunk that a computation sends to or receives from."""
    forward = (kind == stage_operations.FORWARD) == sends
    return chunk + (1 if forward else -1)


def _link_transfers(
    builder: _Builder, stage: int, computations: Sequence[int], keys: dict[int, Key]
) -> None:
    """Link the sends and receives of one kind of computation on a stage to their computations."""
    operations = builder.operations
    if not computations:
        return
    builder.previous_same |= dict(zip(computations[1:], computations, strict=False))
    kind = operations.kind[computations[0]]
    last_chunk = int(operations.model_chunk.max())
    for sends, names in ((True, stage_operations.SENDS), (False, stage_operations.RECEIVES)):
        transfers = _sort_by_start(operations, operations.find(names[kind], stage=stage))
        builder.chain(transfers)
        needed = [
            0 <= _neighbour(kind, keys[i][2], sends=sends) <= last_chunk for i in computations
        ]
        for target, transfer in _match(operations, transfers, computations, needed, sends=sends):
            if target is None:
                builder.unmatched += 1
                continue
            computation = computations[target]
            if sends:
                builder.before[transfer].add(computation)
            else:
                builder.before[computation].add(transfer)
                if target:
                    builder.before[transfer].add(computations[target - 1])
            if needed[target]:
                builder.links[names[kind], keys[computation]] = transfer
            else:
                builder.unused.add(transfer)


def _match(
    operations: stage_operations.AlignedOperations,
    transfers: Sequence[int],
    computations: Sequence[int],
    needed: Sequence[bool],
    *,
    sends: bool,
) -> list[tuple[int | None, int]]:
    """Match transfers, in order, to indices of `computations`; None for one that has none.

    A stage records a transfer for each computation that needs one, or for each computation; then
    the first receive of the step may be missing. Numbers of the sequence show gaps. Recorders also
    note transfers before the first computation or after the last one that never ran.
    """
    needing = [index for index, is_needed in enumerate(needed) if is_needed]
    all_indices = list(range(len(computations)))
    numbers = operations.sequence[list(transfers)].tolist()
    for targets in (needing, all_indices):
        if transfers and numbers == sorted(numbers) and max(numbers) + 1 == len(targets):
            return [(targets[n], t) for n, t in zip(numbers, transfers, strict=True)]
    ran = [t for t in transfers if _has_run(operations, t, computations, sends=sends)]
    idle: list[tuple[int | None, int]] = [(None, t) for t in transfers if t not in ran]
    for targets in (needing, all_indices, all_indices[:-1] if sends else all_indices[1:]):
        if len(targets) == len(ran):
            return [*zip(targets, ran, strict=True), *idle]
    return [(None, transfer) for transfer in transfers]


def _has_run(
    operations: stage_operations.AlignedOperations,
    transfer: int,
    computations: Sequence[int],
    *,
    sends: bool,
) -> bool:
    """Return True if a transfer is not before the first or after the last computation."""
    margin_ns = 50_000.0
    edge = computations[0] if sends else computations[-1]
    if sends:
        late = operations.end[transfer] - operations.end[edge]
    else:
        late = operations.start[edge] - operations.start[transfer]
    return bool(np.nanmedian(late) >= -margin_ns)


def _post_first_backward(builder: _Builder, stage: int, computations: Sequence[int]) -> None:
    """Let the first backward transfers follow the forward pass before the last warm-up one."""
    operations = builder.operations
    kinds = [operations.kind[index] for index in computations]
    first = kinds.index(stage_operations.BACKWARD)
    if kinds[max(0, first - 2) : first] != [stage_operations.FORWARD, stage_operations.FORWARD]:
        return
    for name in (
        stage_operations.SENDS[stage_operations.BACKWARD],
        stage_operations.RECEIVES[stage_operations.BACKWARD],
    ):
        transfers = _sort_by_start(operations, operations.find(name, stage=stage))
        builder.chain(transfers[:1], [computations[first - 2]])


def _pair_transfers(
    builder: _Builder, keys: dict[int, Key], by_key: dict[Key, int]
) -> tuple[list[Group], int]:
    """Group sends with their receives; where one is missing, link what there is directly."""
    groups: list[Group] = []
    grouped: set[int] = set()
    unpaired = 0
    for computation, key in keys.items():
        kind, microbatch, chunk = key
        source = (kind, microbatch, _neighbour(kind, chunk, sends=False))
        if source not in by_key:
            continue
        send = builder.links.get((stage_operations.SENDS[kind], source))
        receive = builder.links.get((stage_operations.RECEIVES[kind], key))
        if send is not None and receive is not None:
            groups.append(Group(members=(send, receive), synced=False, communicates=True))
            grouped |= {send, receive}
            continue
        unpaired += (send is not None) + (receive is not None)
        builder.before[computation].add(by_key[source] if send is None else send)
        if receive is not None:
            builder.before[receive].add(by_key[source])
            builder.ready[receive] = by_key[source]
        elif send is not None and computation in builder.previous_same:
            builder.before[send].add(builder.previous_same[computation])
            builder.ready[send] = builder.previous[computation]
    transfers = builder.operations.find(
        *stage_operations.SENDS.values(), *stage_operations.RECEIVES.values()
    )
    alone = [index for index in transfers if index not in grouped]
    groups += [Group(members=(index,), synced=False, communicates=True) for index in alone]
    return groups, unpaired


# --- exchanges and the end of the step -----------------------------------------------------------


def _link_exchanges(
    builder: _Builder, stage: int, computations: Sequence[int], *, overlaps: bool
) -> None:
    """Link the exchanges of parameters and gradients over data ranks to computations."""
    operations = builder.operations
    exchanges = operations.find(
        stage_operations.ALL_GATHER, stage_operations.REDUCE_SCATTER, stage=stage
    )
    builder.chain(_sort_by_start(operations, exchanges))
    for exchange in exchanges:
        gathers = operations.kind[exchange] == stage_operations.ALL_GATHER
        kind = stage_operations.FORWARD if gathers else stage_operations.BACKWARD
        chunk = operations.chunk[exchange]
        same = [
            index
            for index in computations
            if operations.kind[index] == kind and (chunk < 0 or operations.chunk[index] == chunk)
        ]
        if gathers and same:
            builder.before[same[0]].add(exchange)
        elif overlaps and same:
            builder.before[exchange].add(same[-1])


def _close_step(builder: _Builder, stage: int, last: int, *, overlaps: bool) -> None:
    operations = builder.operations
    closing = [
        stage_operations.COLLECTION,
        stage_operations.NORM_ALL_REDUCE,
        stage_operations.EMBEDDING_ALL_REDUCE,
    ]
    closing += (
        [stage_operations.SEPARATE_ALL_REDUCE] if overlaps else [stage_operations.REDUCE_SCATTER]
    )
    closing += [stage_operations.CLIP, stage_operations.OPTIMIZER]
    order = [
        i
        for kind in closing
        for i in _sort_by_start(operations, operations.find(kind, stage=stage))
    ]
    builder.chain(order, [last])
    scatters = _sort_by_start(
        operations, operations.find(stage_operations.REDUCE_SCATTER, stage=stage)
    )
    after = next((i for i in order if operations.kind[i] != stage_operations.COLLECTION), None)
    if overlaps and scatters and after is not None:
        builder.before[after].add(scatters[-1])


def _group_exchanges(operations: stage_operations.AlignedOperations) -> list[Group]:
    """Group the exchanges over data ranks, those over stages, and single operations."""
    groups = [
        Group(members=(index,), synced=True, communicates=True)
        for index in operations.find(
            stage_operations.ALL_GATHER,
            stage_operations.REDUCE_SCATTER,
            stage_operations.SEPARATE_ALL_REDUCE,
        )
    ]
    for kind, synced in (
        (stage_operations.EMBEDDING_ALL_REDUCE, False),
        (stage_operations.CLIP, True),
    ):
        indices = operations.find(kind)
        for number in np.unique(operations.sequence[indices]).tolist():
            members = tuple(i for i in indices if operations.sequence[i] == number)
            groups.append(Group(members=members, synced=synced, communicates=True))
    alone = operations.find(
        stage_operations.FORWARD,
        stage_operations.BACKWARD,
        stage_operations.COLLECTION,
        stage_operations.NORM_ALL_REDUCE,
        stage_operations.OPTIMIZER,
    )
    groups += [Group(members=(index,), synced=False, communicates=False) for index in alone]
    return groups


def _sort_groups(groups: list[Group], before: Sequence[set[int]]) -> list[Group]:
    """Sort groups so that each comes after those that it depends on (Kahn's algorithm)."""
    group_of = {member: number for number, group in enumerate(groups) for member in group.members}
    followers: list[set[int]] = [set() for _ in groups]
    waits = [0] * len(groups)
    for number, group in enumerate(groups):
        sources = {group_of[i] for member in group.members for i in before[member]}
        waits[number] = len(sources)
        for source in sources:
            followers[source].add(number)
    ready = [number for number, count in enumerate(waits) if not count]
    for number in ready:  # grows while it is read
        for follower in sorted(followers[number]):
            waits[follower] -= 1
            if not waits[follower]:
                ready.append(follower)
    if len(ready) < len(groups):
        raise stage_operations.StageOperationsError(
            "its operations depend on each other in a circle"
        )
    return [groups[number] for number in ready]
