"""Account of host memory for the verdict: what grows, and when it is full."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import msgspec

from stepscope import rules, schema
from stepscope.quantities import count, memory, number, percent
from stepscope.run import Holder, NodeMemory, Run, read_host_memory, read_memory_censuses, recommend


class MemoryAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Host memory of the job on the node where it is full first, or was used most."""

    headline: str
    """Growth, or the peak of the memory, in one sentence."""
    lines: list[str] = []
    """The forecast, what holds the growing memory with the fix, and other nodes that grow."""
    is_growing: bool
    node: str
    used_bytes: float
    """Memory of the job at the latest sample."""
    peak_bytes: float
    limit_bytes: int | None
    full_in_ns: float | None
    """Time from the latest sample until the limit is full; null without growth or limit."""
    full_at_step: Annotated[float | None, schema.field_label("full at step", unit="count")]
    oom_kill_count: int | None
    """Processes that the kernel ended because memory was full; null where it does not tell."""


COMPILED_CODE = (
    "Compiled code stays in memory, and every recompilation adds to it: see the cause below."
)


def account_for_memory(run: Run, cause: str = "") -> MemoryAccount | None:
    """Account for the host memory of a job; None without samples.

    Args:
        cause: cause of the verdict.
    """
    nodes = read_host_memory(run)
    if not nodes:
        return None
    nodes.sort(key=_rank_node)
    first = nodes[0]
    growth = first.growth
    prefix = f"Node {first.node}: " if len(nodes) > 1 else ""
    headline, *lines = describe_node_memory(first)
    if growth.is_growing:
        lines += _list_holders(run)
        lines += [COMPILED_CODE] if cause == "recompilation" else []
    lines += [
        f"Node {node.node}: {line}"
        for node in nodes[1:]
        if node.growth.is_growing
        for line in describe_node_memory(node)
    ]
    forecast = growth.forecast
    return MemoryAccount(
        headline=f"{prefix}{headline}",
        lines=lines,
        is_growing=growth.is_growing,
        node=first.node,
        used_bytes=growth.use_bytes,
        peak_bytes=growth.peak_bytes,
        limit_bytes=None if growth.limit is None else growth.limit.limit_bytes,
        full_in_ns=None if forecast is None else forecast.in_ns.value,
        full_at_step=None if forecast is None or forecast.step is None else forecast.step.value,
        oom_kill_count=first.oom_kill_count,
    )


def describe_node_memory(node: NodeMemory) -> list[str]:
    """Describe growth and forecast, or the peak of memory, one sentence each."""
    lines = list(rules.describe_growth(node.growth, node.names, has_ended=node.has_ended))
    lines[0] = lines[0][0].upper() + lines[0][1:]
    notes = (_describe_copies(node), *(_describe_rest(node) if node.growth.is_growing else ()))
    return [*lines, *(note for note in notes if note)]


MIN_HOLDER_RATIO = 0.1
"""Holders of a smaller share of the growth of their process are not told."""
MAX_HOLDERS = 3


def _list_holders(run: Run) -> list[str]:
    """List what holds the growing memory, and what to do; or say that no container does."""
    censuses = read_memory_censuses(run)
    holders = [
        holder
        for census in censuses
        for holder in census.holders
        if not holder.device and (holder.share_ratio or 0.0) >= MIN_HOLDER_RATIO
    ]
    by_name = {(holder.name, holder.file, holder.line): holder for holder in reversed(holders)}
    lines = []
    for holder in sorted(by_name.values(), key=lambda entry: -entry.bytes_per_step)[:MAX_HOLDERS]:
        fix = recommend(holder)
        lines.append(f"Held by {describe_holder(holder)}.{f' {fix}' if fix else ''}")
    native = max(censuses, key=lambda census: census.growth_per_step_bytes, default=None)
    if not lines and native is not None and native.native_ratio is not None:
        note = f" {native.note}" if native.note else ""
        lines.append(
            f"No container of the job holds {percent(native.native_ratio)} of what {native.title} "
            "grew by meanwhile: memory of C or C++ code, or freed and kept by the allocator."
            f"{note}"
        )
    return lines


MIN_COPIED_BYTES = 32 << 20
MIN_NEW_PROCESSES = 8
MIN_SHARED_RATIO = 0.2
"""Share of the growth from which growth of /dev/shm is told."""
MAX_NAMED = 4


def _describe_copies(node: NodeMemory) -> str:
    """Tell which workers came to own pages that they shared at first; empty without such."""
    copied = {name: size for name, size in node.copied_bytes.items() if size >= MIN_COPIED_BYTES}
    if not copied:
        return ""
    names = ", ".join(f"{name} {memory(size)}" for name, size in list(copied.items())[:MAX_NAMED])
    more = f" and {len(copied) - MAX_NAMED} more" if len(copied) > MAX_NAMED else ""
    return (
        f"Pages that were shared at the fork became private: {names}{more}. A page is copied when "
        "a process writes to it; reading a Python object writes its reference count."
    )


def _describe_rest(node: NodeMemory) -> tuple[str, str]:
    """Tell of growth that is in no process: of /dev/shm, and by further processes."""
    rises = {name: node.peak[name] - node.first[name] for name in node.peak}
    shared, processes = rises.get("shared_memory_used_bytes", 0), rises.get("job_process_count", 0)
    trend = node.growth.trend
    is_shared = trend is not None and shared >= MIN_SHARED_RATIO * trend.growth_bytes
    return (
        f"Files in /dev/shm grew by {memory(shared)}." if is_shared else "",
        f"The number of processes rose from {count(node.first['job_process_count'])} to "
        f"{count(node.peak['job_process_count'])}{_name_commonest(node)}."
        if processes >= MIN_NEW_PROCESSES
        else "",
    )


def _name_commonest(node: NodeMemory) -> str:
    """Name the function that most processes of multiprocessing run at the end of the steps; empty
    if there are few of them."""
    trend = node.growth.trend
    end_ns = node.growth.latest_ns if trend is None else trend.end_ns
    targets = Counter(
        fact.target
        for process in node.processes
        if process.info is not None and process.end_ns >= end_ns
        for fact in process.info.facts_of(schema.WorkerProcessFact)
    )
    for target, number_of_processes in targets.most_common(1):
        if number_of_processes >= MIN_NEW_PROCESSES:
            return (
                f"; {count(number_of_processes)} of them run {target} and do not end. Let each "
                "end and call join() on it, or give the work to one pool of processes"
            )
    return ""


def _rank_node(node: NodeMemory) -> tuple[bool, float, float]:
    """Rank nodes: those that grow first, by the time until the limit is full."""
    forecast = node.growth.forecast
    in_ns = float("inf") if forecast is None else forecast.in_ns.value
    return (not node.growth.is_growing, in_ns, -node.growth.peak_bytes)


def describe_holder(holder: Holder) -> str:
    """Describe a holder in one line."""
    kinds = {
        "global": "global",
        "local": f"variable of {holder.owner}",
        "closure": f"variable that {holder.owner} encloses",
        "cache": "lru_cache",
        "class": "class attribute",
    }
    position = holder.file.rpartition("/")[2]
    if position and holder.line is not None:
        position = f"{position}:{holder.line}"
    remarks = [part for part in (kinds.get(holder.kind, ""), position) if part]
    name = holder.name or f"a {holder.type} without a name"
    text = f"{name} ({', '.join(remarks)})" if remarks else name
    unit = holder.unit
    items = holder.item_type.rpartition(".")[2] or "item"
    if holder.is_copy:
        text += f": copies of shared pages of its {number(holder.item_count)} {items} objects"
    elif holder.items_per_step:
        text += f": {number(holder.items_per_step)} {items} a {unit}"
        if holder.has_graph:
            text += " with the graph that computed it"
    size = memory(holder.bytes_per_step)
    text += f", {'about ' if holder.is_estimate else ''}{size} a {unit}"
    if holder.device:
        text += f" on {holder.device}"
    if holder.share_ratio is not None:
        text += f", {percent(holder.share_ratio)} of what its process grew by meanwhile"
    return text
