"""Holders of the memory that grows, from the censuses of the processes of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from stepscope import schema
from stepscope.quantities import count, memory
from stepscope.run.model.process_names import process_names
from stepscope.run.model.run import Run


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Container, or large value, that grows while the job trains."""

    process: str
    """Process that it is in."""
    name: str
    """Variable, or attribute with its class, such as `Images.cache`; '' if no name was found."""
    kind: schema.HolderKind
    """What holds it."""
    path: str
    """Path from a variable of the job."""
    owner: str
    """Module, function or class that it belongs to."""
    type: str
    """Type of the container."""
    item_type: str
    """Commonest type of its newest items."""
    item_count: int
    """Number of its items."""
    file: str
    """File of the owner; '' if unknown."""
    line: Annotated[int | None, schema.field_label(display="identifier")]
    """The only line that adds to it; null if there is not just one."""
    unit: str
    """`step`, or `batch` in a worker of a loader."""
    items_per_step: Annotated[float, schema.field_label("items per step", unit="count")]
    """Items that it gets in a step, or in a batch of the worker."""
    bytes_per_step: Annotated[float, schema.field_label("growth per step", unit="bytes")]
    """Bytes that it grows by in a step, or in a batch of the worker."""
    item_bytes_per_step: Annotated[float, schema.field_label("new items per step", unit="bytes")]
    """Bytes of its new items themselves, without the graphs that computed them."""
    share_ratio: float | None
    """Share of the growth of the memory of its process; null if that did not grow."""
    has_graph: bool
    """Its tensors hold the graphs that computed them."""
    is_estimate: bool
    """The bytes are the growth of the process that no container explains: C++ code holds graphs."""
    is_copy: bool
    """It does not grow: the process gets copies of pages that it has shared since the fork."""
    device: str
    """Device of its tensors; '' for the host."""


class MemoryCensus(msgspec.Struct, frozen=True, kw_only=True):
    """Two censuses of one process."""

    process: str
    """Process."""
    title: str
    """Its rank or process id."""
    node: str
    """Its node."""
    request: int
    """Number of the request on the node."""
    unit: str
    """`step`, or `batch` in a worker of a loader."""
    step_count: int
    """Steps or batches between the censuses."""
    pause_ns: int
    """Time for which both held up the process."""
    object_count: int
    """Objects that were there; 0 in a worker, where only named ones are looked at."""
    is_sampled: bool
    """Something was left out."""
    scanned_count: int
    """Objects that were looked at."""
    note: str
    """What was left out to keep the pause short, and pages that may have been copied; '' for
    nothing."""
    growth_per_step_bytes: float
    """Growth of the memory that the process shares with no other, in a step or batch."""
    native_ratio: float | None
    """Share of it that no container explains; null if nothing grew."""
    holders: list[Holder]
    """What grows, the largest first."""
    types: list[schema.TypeGrowth]
    """Types of which there are more objects."""
    tensors: list[schema.TensorGrowth]
    """Tensors of which there are more."""


def read_memory_censuses(run: Run) -> list[MemoryCensus]:
    """Return the last census of each process of a run; empty if none was requested."""
    censuses = []
    for process in run.processes:
        facts = process.facts_of(schema.MemoryCensusFact)
        if facts:
            censuses.append(_make_census(process, process_names(run)[process.process], facts[-1]))
    return censuses


def read_memory_holders(run: Run) -> list[Holder]:
    """Return what holds the memory that grows, over all processes, the largest first."""
    holders = [holder for census in read_memory_censuses(run) for holder in census.holders]
    return sorted(holders, key=lambda holder: -holder.bytes_per_step)


def _make_census(
    process: schema.ProcessInfo, title: str, fact: schema.MemoryCensusFact
) -> MemoryCensus:
    growth = max(0, fact.private_growth_bytes or fact.anonymous_growth_bytes)
    sizes = attribute_growth(fact.holders, growth)
    explained = sum(
        size for size, holder in zip(sizes, fact.holders, strict=True) if not holder.device
    )
    step_count = max(1, fact.count)
    holders = [
        Holder(
            process=process.process,
            name=holder.name,
            kind=holder.kind,
            path=holder.path,
            owner=holder.owner,
            type=holder.type,
            item_type=holder.item_type,
            item_count=holder.item_count,
            file=holder.file,
            line=holder.line or None,
            unit=fact.unit,
            items_per_step=holder.items / step_count,
            bytes_per_step=size / step_count,
            item_bytes_per_step=holder.bytes / step_count,
            share_ratio=min(1.0, size / growth) if growth and not holder.device else None,
            has_graph=holder.has_graph,
            is_estimate=size != holder.bytes,
            is_copy=holder.is_copy,
            device=holder.device,
        )
        for size, holder in zip(sizes, fact.holders, strict=True)
    ]
    holders.sort(key=lambda holder: -holder.bytes_per_step)
    return MemoryCensus(
        process=process.process,
        title=title,
        node=process.node,
        request=fact.request,
        unit=fact.unit,
        step_count=fact.count,
        pause_ns=sum(fact.pauses_ns),
        object_count=fact.object_count,
        is_sampled=fact.is_sampled,
        scanned_count=fact.scanned_count,
        note=_describe_limits(fact),
        growth_per_step_bytes=growth / step_count,
        native_ratio=max(0.0, 1 - explained / growth) if growth else None,
        holders=holders,
        types=fact.types,
        tensors=fact.tensors,
    )


_STAGES: dict[schema.CensusStage, str] = {
    "names": "all names of the job",
    "containers": "all containers",
    "tensors": "all tensors",
    "values": "all large values",
    "graphs": "the graphs of tensors",
    "pages": "copies of shared pages",
    "sizes": "the sizes of new items",
    "referrers": "what holds containers that no variable of the job leads to",
    "lines": "the lines that add to a container",
}
MIN_COPIED_BYTES = 64 << 20
"""Copies of fewer bytes are not told."""


def _describe_limits(fact: schema.MemoryCensusFact) -> str:
    """Say what a census left out, and what it may have copied."""
    sentences = []
    if "shared" in fact.left_out:
        sentences.append(
            "The census looked only at what has a name: a look at all objects could have copied "
            f"{memory(fact.shared_bytes)} of pages that forked processes share."
        )
    elif "list" in fact.left_out:
        sentences.append(
            "The census looked only at what has a name: there are too many objects for its pause."
        )
    elif "objects" in fact.left_out:
        sentences.append(
            f"The census stopped after {count(fact.scanned_count)} of {count(fact.object_count)} "
            "objects."
        )
    parts = [text for stage, text in _STAGES.items() if stage in fact.left_out]
    if parts:
        sentences.append(f"The census had no time to find {', '.join(parts)}.")
    if fact.scanned_count and fact.shared_bytes >= MIN_COPIED_BYTES:
        sentences.append(
            f"It may have copied up to {memory(fact.shared_bytes)} of pages that forked processes "
            "share."
        )
    return " ".join(sentences)


def attribute_growth(holders: Sequence[schema.MemoryHolderRecord], growth_bytes: int) -> list[int]:
    """Return the bytes of each holder; the rest of the growth goes to the only one whose tensors
    hold graphs, which only C++ code sees.

    Args:
        holders: holders of one process.
        growth_bytes: growth of the memory of the process.
    """
    sizes = [holder.bytes for holder in holders]
    graphs = [i for i, holder in enumerate(holders) if holder.has_graph and not holder.device]
    rest = growth_bytes - sum(
        size for size, holder in zip(sizes, holders, strict=True) if not holder.device
    )
    if len(graphs) == 1 and rest > 0:
        sizes[graphs[0]] += rest
    return sizes


MIN_ITEM_RATIO = 0.1
"""Tensors that are a smaller share of the growth than this are not told beside their graphs."""


def recommend(holder: Holder) -> str:
    """Return the fix that follows from a holder; '' if its kind says nothing of the cause."""
    name = holder.name
    is_tensor = holder.item_type.rpartition(".")[2] in {"Tensor", "Parameter"}
    target = name or "the container"
    if holder.has_graph and holder.item_bytes_per_step > MIN_ITEM_RATIO * holder.bytes_per_step:
        size = f"{memory(holder.item_bytes_per_step)} a {holder.unit}"
        return (
            f"The tensors themselves are {size}, which detach() does not free: keep numbers, such "
            f"as loss.item(), in {target}, or clear it after use."
        )
    if holder.has_graph:
        return f"Keep loss.item() or tensor.detach() in {target}, not the tensor with its graph."
    if holder.is_copy:
        return (
            f"Keep {name} in an array (numpy, torch or Arrow) instead of a {holder.type} of "
            f"{holder.item_type or 'objects'}: reading an object writes to its reference count, "
            "which copies its page in each worker."
        )
    if holder.kind == "cache":
        return f"Give the cache of {name} a limit: lru_cache(maxsize=N)."
    if holder.device:
        return f"Move what {name} keeps to the host: tensor.detach().cpu()."
    if holder.unit == "batch":
        return f"Bound {name}, for example to the latest 1,000 entries, or keep no samples in it."
    if "hooks" in name:
        return "Register the hook once, or call remove() on its handle after the step."
    if holder.name.endswith("_children"):
        return "Call join() on each process that has ended."
    if is_tensor:
        return f"Keep numbers, not tensors, in {name}, or clear it after use."
    return f"Bound or clear {name}." if name else ""
