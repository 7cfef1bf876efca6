"""Whether smaller or fewer machines would do for a job, and what that would save.

The method: a machine is under-used when the 95th percentiles of its CPU and of all of its GPUs lie
below the thresholds of the rule BatchSize. What all machines used together is then laid out on
fewer or smaller ones of the same provider, region and model of GPU, and must fill no more than
`FULL` of them. The run's own type of machine costs what this run is reckoned at, any other what the
table of prices says. A share of another model of GPU cannot be foretold from this record.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

import msgspec

from stepscope.cost.job_cost import JobCost
from stepscope.cost.prices import Offer
from stepscope.cost.pricing import Priced
from stepscope.cost.usage import FEWEST_SAMPLES, NodeUsage
from stepscope.diagnosis import SUSPECT_NAMES, Suspect, Verdict
from stepscope.rules import BatchSizeParameters

FULL = 0.85
"""How far what was used may fill the machines that are recommended."""
MOST = 3
GIB = 1 << 30
MEND_FIRST: tuple[Suspect, ...] = ("data_pipeline", "communication", "framework_overhead")
"""While the job waits for one of these, idle GPUs say nothing of the machine's size."""
ASSUMPTIONS = [
    "a step takes the same time as long as the GPUs left are not full: fewer of them do the same "
    "work with larger batches or accumulated gradients, so check that training still converges",
    "what the CPUs compute can be spread over time by prefetching: their mean has to fit, and "
    "peaks above it queue",
    f"what was used may fill {FULL:.0%} of what is recommended",
]
LISTED_PRICES = "other types of machine cost what the table of prices says, though yours do not"


class SmallerChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Machines on which what was used would fit; shares are of all of them together."""

    instance_type: str
    instance_count: int
    usd_per_hour: float
    """Of one machine."""
    said: str
    """Where that price is from and of which day."""
    job_usd: float
    """What this run would have cost, rounded to the cent."""
    saving_usd: float
    saving_ratio: float
    """Of the cost of this run; both from rounded costs."""
    gpu_p95_ratio: float
    cpu_mean_ratio: float
    cpu_p95_ratio: float
    memory_ratio: float
    gpu_memory_ratio: float
    """If what all GPUs held together is spread over those that are left."""
    caution: str | None


class RightSizing(msgspec.Struct, frozen=True, kw_only=True):
    """Advice on the size of machines."""

    headline: str
    choices: list[SmallerChoice]
    """The cheapest first; none where the record does not carry a recommendation."""
    evidence: list[str]
    assumptions: list[str]
    """What the choices take for granted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Demand:
    """What the job used on all machines together."""

    gpus: float
    """Sum over GPUs of the 95th percentile of how busy each was."""
    cores_mean: float
    cores_p95: float
    memory_gib: float
    gpu_memory_gib: float


def right_sizing(
    nodes: list[NodeUsage], verdict: Verdict, paid: JobCost, priced: Priced
) -> RightSizing:
    """Whether fewer or smaller machines would do.

    Args:
        nodes: what the machines used.
        verdict: what the job waited for.
        paid: what the run cost.
        priced: the price, and the machine in the table of prices.
    """
    evidence = [_evidence(node) for node in nodes]
    why = _why_none(nodes, verdict)
    if why is not None:
        return _none(why, evidence)
    offer, table = priced.offer, priced.table
    if offer is None or table is None:
        return _none(
            "which type of machine this is, is not known, or is in no table of prices: give "
            "--instance-type",
            evidence,
        )
    demand = _demand(nodes, offer)
    if isinstance(demand, str):
        return _none(demand, evidence)
    offers = table.alternatives(offer)
    choices = list(_smaller_choices(offers, offer, demand, paid, priced.used.said))
    choices.sort(key=lambda each: (each.instance_count * each.usd_per_hour, each.instance_count))
    if not choices:
        where = " ".join(part for part in (offer.provider, offer.region) if part)
        return _none(
            "the machines are under-used, but no smaller and cheaper choice of machines with "
            f"{offer.gpu} GPUs ({where}) that holds what the job used is in the table of prices",
            evidence,
        )
    if verdict.suspect == "insufficient_evidence":
        evidence.append("what the job waited for is not known: see its verdict")
    best, shown = choices[0], choices[:MOST]
    listed = paid.usd_per_hour != offer.usd_per_hour and any(
        each.instance_type != offer.type for each in shown
    )
    return RightSizing(
        headline=f"The machines are under-used: {best.instance_count} x {best.instance_type} "
        f"instead of {paid.instance_count} x {offer.type} would cost {best.saving_ratio:.1%} less.",
        choices=shown,
        evidence=evidence,
        assumptions=[*ASSUMPTIONS, LISTED_PRICES] if listed else ASSUMPTIONS,
    )


def _none(why: str, evidence: list[str]) -> RightSizing:
    return RightSizing(
        headline=f"No smaller machine is recommended: {why}.",
        choices=[],
        evidence=evidence,
        assumptions=[],
    )


def _why_none(nodes: list[NodeUsage], verdict: Verdict) -> str | None:
    if not any(node.gpus for node in nodes):
        return "no GPU was sampled, and without their use a machine's size cannot be judged"
    levels = [level for node in nodes for level in node.gpus.values()]
    levels += [node.cpu for node in nodes if node.cpu is not None]
    if any(node.cpu is None for node in nodes):
        return "the CPU was not sampled on every machine"
    fewest = min(level.count for level in levels)
    if fewest < FEWEST_SAMPLES:
        return f"{fewest} samples are too few for a 95th percentile; it takes {FEWEST_SAMPLES}"
    if verdict.suspect in MEND_FIRST:
        return (
            f"{SUSPECT_NAMES[verdict.suspect]} owns {verdict.share_ratio:.0%} of the step, and "
            "the machines idle for that: mend it first, then look again"
        )
    limits = BatchSizeParameters()
    for node in nodes:
        busiest = max((level.p95 for level in node.gpus.values()), default=0.0)
        if busiest >= limits.gpu_threshold_p95 / 100:
            return f"a GPU of {node.node} is used: its 95th percentile is {busiest:.1%}"
        if node.cpu is not None and node.cpu.p95 >= limits.cpu_threshold_p95 / 100:
            return f"the CPU of {node.node} is used: its 95th percentile is {node.cpu.p95:.1%}"
    return None


def _evidence(node: NodeUsage) -> str:
    parts = [f"CPU {node.cpu.p95:.1%}"] if node.cpu is not None else []
    if node.gpus:
        count = f"{len(node.gpus)} GPU" + ("s" if len(node.gpus) > 1 else "")
        low, high = (f(level.p95 for level in node.gpus.values()) for f in (min, max))
        parts.append(f"{count} {low:.1%}" + (f" to {high:.1%}" if high - low > 5e-4 else ""))
    return f"{node.node}: the 95th percentile of {', '.join(parts) or 'nothing'}"


def _demand(nodes: list[NodeUsage], offer: Offer) -> _Demand | str:
    """What was used together; a sentence where a part of it is not known."""
    memory = _sum(
        node.memory_bytes / GIB
        if node.memory_bytes is not None
        else _product(node.memory_ratio, offer.memory_gib)
        for node in nodes
    )
    if memory is None:
        return "how much memory the machines used is not known"
    held = _sum(
        node.gpu_memory_bytes[gpu] / GIB
        if gpu in node.gpu_memory_bytes
        else _product(node.gpu_memory_ratio.get(gpu), offer.gpu_memory_gib)
        for node in nodes
        for gpu in node.gpus
    )
    if held is None:
        return "how much memory the GPUs used is not known"
    return _Demand(
        gpus=sum(level.p95 for node in nodes for level in node.gpus.values()),
        cores_mean=sum(node.cores * node.cpu.mean for node in nodes if node.cpu is not None),
        cores_p95=sum(node.cores * node.cpu.p95 for node in nodes if node.cpu is not None),
        memory_gib=memory,
        gpu_memory_gib=held,
    )


def _smaller_choices(
    offers: Iterable[Offer], own: Offer, demand: _Demand, paid: JobCost, said: str
) -> Iterator[SmallerChoice]:
    """Machines that hold the demand, are less than the run's own, and cost less.

    Args:
        offers: types to choose from.
        own: the type that the run was on.
        paid: what the run cost, at a price that is not always that of the table.
        said: where that price is from.
    """
    used = _size(own, paid.instance_count)
    for offer in offers:
        mine = offer.type == own.type
        choice = _fit(offer, demand, paid, paid.usd_per_hour if mine else offer.usd_per_hour)
        if choice is None or choice.saving_usd <= 0:
            continue
        if _size(offer, choice.instance_count).is_less_than(used):
            yield msgspec.structs.replace(choice, said=said) if mine else choice


class _Size(NamedTuple):
    """Of machines together; infinite where it is not known."""

    gpus: float
    cores: float
    memory_gib: float

    def is_less_than(self, other: _Size) -> bool:
        """Fewer GPUs, for which such machines are paid; or as many, and less beside them."""
        if self.gpus != other.gpus:
            return self.gpus < other.gpus
        return self != other and self.cores <= other.cores and self.memory_gib <= other.memory_gib


def _size(offer: Offer, count: int) -> _Size:
    each = (offer.gpu_count, offer.vcpu_count, offer.memory_gib)
    return _Size(*(count * size if size else math.inf for size in each))


def _fit(
    offer: Offer, demand: _Demand, paid: JobCost, usd_per_hour: Decimal
) -> SmallerChoice | None:
    """The fewest machines of a type that hold the demand; None where its size is not known."""
    cores, memory, each = offer.vcpu_count, offer.memory_gib, offer.gpu_memory_gib
    if not (offer.gpu_count and cores and memory and each):
        return None
    of_one = {
        "gpu": demand.gpus / offer.gpu_count,
        "cpu": demand.cores_mean / cores,
        "memory": demand.memory_gib / memory,
        "held": demand.gpu_memory_gib / (offer.gpu_count * each),
    }
    count = max(1, math.ceil(max(of_one.values()) / FULL))
    cost = JobCost(instance_count=count, usd_per_hour=usd_per_hour, duration_ns=paid.duration_ns)
    busy = demand.cores_p95 / (cores * count)
    return SmallerChoice(
        instance_type=offer.type,
        instance_count=count,
        usd_per_hour=float(usd_per_hour),
        said=offer.origin,
        job_usd=float(cost.usd),
        saving_usd=float(paid.usd - cost.usd),
        saving_ratio=cost.saving_ratio(paid) or 0.0,
        gpu_p95_ratio=of_one["gpu"] / count,
        cpu_mean_ratio=of_one["cpu"] / count,
        cpu_p95_ratio=busy,
        memory_ratio=of_one["memory"] / count,
        gpu_memory_ratio=of_one["held"] / count,
        caution=_caution(demand, cores * count) if busy > FULL else None,
    )


def _caution(demand: _Demand, cores: int) -> str:
    return (
        f"for a twentieth of the time the job kept {demand.cores_p95:.1f} cores or more busy, and "
        f"these have {cores}: such moments would take longer"
    )


def _product(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other


def _sum(values: Iterable[float | None]) -> float | None:
    """None as soon as one of them is not known: a part is no bound on the whole."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total
