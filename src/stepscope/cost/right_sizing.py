"""Right-sizing: fewer or smaller machines that hold what a job used, and their saving.

A machine is underused when the 95th percentiles of its CPU and of all of its GPUs are below the
thresholds of the rule BatchSize. The utilization of all machines together is then placed on fewer
or smaller machines of the same provider, region and GPU model, filling at most `MAX_FILL_RATIO` of
them. The run's own machine type costs what the run is priced at, other types what the price table
says. Utilization of another GPU model cannot be predicted from the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, diagnosis, rules, schema
from stepscope.cost.prices import JobCost, Offer
from stepscope.cost.pricing import MachinePrice
from stepscope.quantities import count_of, number, percent
from stepscope.run import NodeMetrics, Run

MAX_FILL_RATIO = 0.85
"""Maximum share of the recommended machines that the job's usage may fill."""
MAX_CHOICES = 3
GIB = 1 << 30
FIX_FIRST: tuple[diagnosis.Suspect, ...] = ("data_pipeline", "communication", "framework_overhead")
"""Bottlenecks that leave GPUs idle on machines of any size."""
ASSUMPTIONS = [
    "a step takes the same time while the remaining GPUs are not full: fewer GPUs do the same work "
    "with larger batches or accumulated gradients, so check that training still converges",
    "prefetching can spread CPU work over time: its mean has to fit, and peaks above it queue",
    f"usage may fill {percent(MAX_FILL_RATIO)} of the recommended machines",
]
LISTED_PRICES = "other machine types cost what the price table says, though yours do not"


class SmallerChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Machines that hold the job's usage; shares are of all of them together."""

    instance_type: str
    instance_count: int
    usd_per_hour: float
    """Price of one machine."""
    price_origin: str = msgspec.field(name="said")
    """Source and date of that price."""
    job_usd: float
    """Cost of this run on these machines, rounded to the cent."""
    saving_usd: float
    saving_ratio: float
    """Share of the cost of this run; both from rounded costs."""
    gpu_p95_ratio: float
    cpu_mean_ratio: float
    cpu_p95_ratio: float
    memory_ratio: float
    gpu_memory_ratio: float
    """With the memory used on all GPUs spread over the remaining ones."""
    caution: str | None


class RightSizing(msgspec.Struct, frozen=True, kw_only=True):
    """Right-sizing advice."""

    headline: str
    choices: list[SmallerChoice]
    """Cheapest first; empty where the run does not support a recommendation."""
    evidence: list[str]
    assumptions: list[str]
    """Assumptions of the choices."""


class _Demand(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of the job on all machines together."""

    gpus: float
    """Sum over GPUs of the 95th percentile of their busy share."""
    cores_mean: float
    cores_p95: float
    memory_gib: float
    gpu_memory_gib: float


def recommend_size(
    nodes: list[MachineUsage], verdict: diagnosis.Verdict, cost: JobCost, price: MachinePrice
) -> RightSizing:
    """Recommend fewer or smaller machines.

    Args:
        nodes: utilization of the machines.
        verdict: bottleneck of the job.
        cost: cost of the run.
        price: price of the machines, and their entry in the price table.
    """
    evidence = [_describe_usage(node) for node in nodes]
    reason = _find_obstacle(nodes, verdict)
    if reason is not None:
        return _decline(reason, evidence)
    offer, table = price.offer, price.table
    if offer is None or table is None:
        return _decline(
            "the machine type is not known or in no price table; set --instance-type", evidence
        )
    demand = _measure_demand(nodes, offer)
    if isinstance(demand, str):
        return _decline(demand, evidence)
    offers = table.find_alternatives(offer)
    choices = list(_list_smaller_choices(offers, offer, demand, cost, price.used.origin))
    choices.sort(
        key=lambda choice: (choice.instance_count * choice.usd_per_hour, choice.instance_count)
    )
    if not choices:
        location = " ".join(part for part in (offer.provider, offer.region) if part)
        return _decline(
            "the machines are underused, but the price table has no smaller and cheaper choice of "
            f"machines with {offer.gpu} GPUs ({location}) that holds the job's usage",
            evidence,
        )
    if verdict.suspect == "insufficient_evidence":
        evidence.append("the bottleneck is not known: see the verdict")
    best, top_choices = choices[0], choices[:MAX_CHOICES]
    uses_listed_price = cost.usd_per_hour != offer.usd_per_hour and any(
        choice.instance_type != offer.type for choice in top_choices
    )
    return RightSizing(
        headline=f"The machines are underused: {best.instance_count} x {best.instance_type} "
        f"instead of {cost.instance_count} x {offer.type} would cost "
        f"{percent(best.saving_ratio, 1)} less.",
        choices=top_choices,
        evidence=evidence,
        assumptions=[*ASSUMPTIONS, LISTED_PRICES] if uses_listed_price else ASSUMPTIONS,
    )


def _decline(reason: str, evidence: list[str]) -> RightSizing:
    return RightSizing(
        headline=f"No smaller machine recommended: {reason}.",
        choices=[],
        evidence=evidence,
        assumptions=[],
    )


def _find_obstacle(nodes: list[MachineUsage], verdict: diagnosis.Verdict) -> str | None:
    """Find the reason why the machines cannot be judged or are not underused; None for none."""
    if not any(node.gpus for node in nodes):
        return "no GPU was sampled, and right-sizing needs GPU utilization"
    levels = [level for node in nodes for level in node.gpus.values()]
    levels += [node.cpu for node in nodes if node.cpu is not None]
    if any(node.cpu is None for node in nodes):
        return "the CPU was not sampled on every machine"
    sample_count = min(level.count for level in levels)
    if sample_count < MIN_SAMPLES:
        return f"{count_of(sample_count, 'sample')} recorded, a 95th percentile needs {MIN_SAMPLES}"
    if verdict.suspect in FIX_FIRST:
        return (
            f"the machines idle for the bottleneck ({diagnosis.SUSPECT_NAMES[verdict.suspect]}, "
            f"{percent(verdict.share_ratio)} of step time); fix it first"
        )
    limits = rules.BatchSizeParameters()
    for node in nodes:
        gpu_p95 = max((level.p95 for level in node.gpus.values()), default=0.0)
        if gpu_p95 >= limits.gpu_threshold_p95 / 100:
            return f"a GPU of {node.node} is busy: its 95th percentile is {percent(gpu_p95, 1)}"
        if node.cpu is not None and node.cpu.p95 >= limits.cpu_threshold_p95 / 100:
            return (
                f"the CPU of {node.node} is busy: its 95th percentile is {percent(node.cpu.p95, 1)}"
            )
    return None


def _describe_usage(node: MachineUsage) -> str:
    parts = [f"CPU {percent(node.cpu.p95, 1)}"] if node.cpu is not None else []
    if node.gpus:
        low, high = (f(level.p95 for level in node.gpus.values()) for f in (min, max))
        gpu_range = percent(low, 1) + (f" to {percent(high, 1)}" if high - low > 5e-4 else "")
        parts.append(f"{count_of(len(node.gpus), 'GPU')} {gpu_range}")
    return f"{node.node}: 95th percentile of utilization: {', '.join(parts) or 'not sampled'}"


def _measure_demand(nodes: list[MachineUsage], offer: Offer) -> _Demand | str:
    """Measure the usage of all machines together; a sentence where a part of it is not known."""
    memory = _sum_known(
        node.memory_bytes / GIB
        if node.memory_bytes is not None
        else _multiply(node.memory_ratio, offer.memory_gib)
        for node in nodes
    )
    if memory is None:
        return "the memory usage of the machines is not known"
    gpu_memory = _sum_known(
        node.gpu_memory_bytes[gpu] / GIB
        if gpu in node.gpu_memory_bytes
        else _multiply(node.gpu_memory_ratio.get(gpu), offer.gpu_memory_gib)
        for node in nodes
        for gpu in node.gpus
    )
    if gpu_memory is None:
        return "the memory usage of the GPUs is not known"
    return _Demand(
        gpus=sum(level.p95 for node in nodes for level in node.gpus.values()),
        cores_mean=sum(node.cores * node.cpu.mean for node in nodes if node.cpu is not None),
        cores_p95=sum(node.cores * node.cpu.p95 for node in nodes if node.cpu is not None),
        memory_gib=memory,
        gpu_memory_gib=gpu_memory,
    )


def _list_smaller_choices(
    offers: Iterable[Offer], current: Offer, demand: _Demand, cost: JobCost, price_origin: str
) -> Iterator[SmallerChoice]:
    """List machines that hold the demand, and are smaller and cheaper than the run's own.

    Args:
        offers: types to choose from.
        current: the type that the run used.
        cost: cost of the run, at a price that may differ from the table's.
        price_origin: origin of that price.
    """
    current_size = _measure_size(current, cost.instance_count)
    for offer in offers:
        is_current = offer.type == current.type
        usd_per_hour = cost.usd_per_hour if is_current else offer.usd_per_hour
        choice = _fit_demand(offer, demand, cost, usd_per_hour)
        if choice is None or choice.saving_usd <= 0:
            continue
        if _measure_size(offer, choice.instance_count).is_less_than(current_size):
            if is_current:
                choice = msgspec.structs.replace(choice, price_origin=price_origin)
            yield choice


class _Size(NamedTuple):
    """Size of several machines together; infinite where not known."""

    gpus: float
    cores: float
    memory_gib: float

    def is_less_than(self, other_size: _Size) -> bool:
        """Return whether there are fewer GPUs, which determine the price of such machines; or as
        many, with fewer cores or less memory."""
        if self.gpus != other_size.gpus:
            return self.gpus < other_size.gpus
        has_less = self.cores <= other_size.cores and self.memory_gib <= other_size.memory_gib
        return self != other_size and has_less


def _measure_size(offer: Offer, instance_count: int) -> _Size:
    sizes = (offer.gpu_count, offer.vcpu_count, offer.memory_gib)
    return _Size(*(instance_count * size if size else math.inf for size in sizes))


def _fit_demand(
    offer: Offer, demand: _Demand, cost: JobCost, usd_per_hour: Decimal
) -> SmallerChoice | None:
    """Find the smallest number of machines of a type that hold the demand; None where the size of
    the type is not known."""
    cores, memory, gpu_memory = offer.vcpu_count, offer.memory_gib, offer.gpu_memory_gib
    if not (offer.gpu_count and cores and memory and gpu_memory):
        return None
    gpu_machines = demand.gpus / offer.gpu_count
    cpu_machines = demand.cores_mean / cores
    memory_machines = demand.memory_gib / memory
    gpu_memory_machines = demand.gpu_memory_gib / (offer.gpu_count * gpu_memory)
    demands = (gpu_machines, cpu_machines, memory_machines, gpu_memory_machines)
    count = max(1, math.ceil(max(demands) / MAX_FILL_RATIO))
    new_cost = JobCost(
        instance_count=count, usd_per_hour=usd_per_hour, duration_ns=cost.duration_ns
    )
    cpu_p95_ratio = demand.cores_p95 / (cores * count)
    return SmallerChoice(
        instance_type=offer.type,
        instance_count=count,
        usd_per_hour=float(usd_per_hour),
        price_origin=offer.origin,
        job_usd=float(new_cost.usd),
        saving_usd=float(cost.usd - new_cost.usd),
        saving_ratio=new_cost.saving_ratio(cost) or 0.0,
        gpu_p95_ratio=gpu_machines / count,
        cpu_mean_ratio=cpu_machines / count,
        cpu_p95_ratio=cpu_p95_ratio,
        memory_ratio=memory_machines / count,
        gpu_memory_ratio=gpu_memory_machines / count,
        caution=_warn_about_peaks(demand, cores * count)
        if cpu_p95_ratio > MAX_FILL_RATIO
        else None,
    )


def _warn_about_peaks(demand: _Demand, cores: int) -> str:
    return (
        f"the job kept at least {number(demand.cores_p95)} cores busy for 5% of the time, and "
        f"these machines have {cores}: such peaks would take longer"
    )


def _multiply(ratio: float | None, size: float | None) -> float | None:
    return None if ratio is None or size is None else ratio * size


def _sum_known(values: Iterable[float | None]) -> float | None:
    """Sum values; None as soon as one is not known, because a partial sum is not an upper bound."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


MIN_SAMPLES = 100
"""A 95th percentile of fewer samples has less than five samples above it."""
_GPU_METRICS = ("gpu_busy_ratio", "gpu_memory_used_bytes", "gpu_memory_used_ratio")
_NODE_METRICS = ("cpu_busy_ratio", "memory_used_bytes", "memory_used_ratio")


class UsageLevel(msgspec.Struct, frozen=True, kw_only=True):
    """Distribution of a utilization over time."""

    mean: float
    p95: float
    peak: float
    count: int
    """Number of samples."""


class MachineUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Utilization of one machine; None or empty where not sampled."""

    node: str
    cores: float
    """Cores available to the job."""
    cpu: UsageLevel | None
    """Busy share of these cores."""
    memory_bytes: float | None
    """Peak."""
    memory_ratio: float | None
    """Peak share of the machine's memory, for importers that do not know its size."""
    gpus: dict[str, UsageLevel]
    """Share of the time with a running kernel, by GPU."""
    gpu_memory_bytes: dict[str, float]
    """Peak by GPU."""
    gpu_memory_ratio: dict[str, float]
    """Peak share of the GPU's memory, for importers that do not know its size."""


def measure_node_usage(run: Run) -> list[MachineUsage]:
    """Measure the utilization of the machines by name: during training, or over all samples where
    no steps were recorded."""
    start = min((int(rank.steps.start[0]) for rank in run.ranks), default=None)
    end = max((int(rank.steps.end[-1]) for rank in run.ranks), default=None)
    return [
        _measure_node(run.nodes[node], metrics.between(start, end))
        for node, metrics in sorted(run.metrics.items())
    ]


def average_p95(levels: list[UsageLevel]) -> float | None:
    """Average the 95th percentiles of machines or GPUs; None where one has too few samples."""
    if any(level.count < MIN_SAMPLES for level in levels):
        return None
    return analysis.average_present(level.p95 for level in levels)


def _measure_node(info: schema.NodeInfo, metrics: NodeMetrics) -> MachineUsage:
    samples = metrics.load(*_GPU_METRICS, *_NODE_METRICS)

    def measure_levels(metric: str) -> dict[str, UsageLevel]:
        levels = {
            device: _summarize_samples(series.value, metrics.repeat_by_time(series))
            for device, series in samples[metric].items()
        }
        return {device: level for device, level in levels.items() if level is not None}

    def measure_peaks(metric: str) -> dict[str, float]:
        return {device: level.peak for device, level in measure_levels(metric).items()}

    return MachineUsage(
        node=info.node,
        cores=info.cores_available,
        cpu=measure_levels("cpu_busy_ratio").get(""),
        memory_bytes=measure_peaks("memory_used_bytes").get(""),
        memory_ratio=measure_peaks("memory_used_ratio").get(""),
        gpus=measure_levels("gpu_busy_ratio"),
        gpu_memory_bytes=measure_peaks("gpu_memory_used_bytes"),
        gpu_memory_ratio=measure_peaks("gpu_memory_used_ratio"),
    )


def _summarize_samples(
    samples: NDArray[np.float64], over_time: NDArray[np.float64]
) -> UsageLevel | None:
    """Summarize samples; their values over time are those repeated by their interval."""
    count = int(np.count_nonzero(np.isfinite(samples)))
    if not count:
        return None
    present = over_time[np.isfinite(over_time)]
    return UsageLevel(
        mean=float(present.mean()),
        p95=float(np.percentile(present, 95)),
        peak=float(present.max()),
        count=count,
    )
