"""What has to be equal for two runs to do the same work: the workload contract.

A change of the step time says something about the code only where model, batch, precision,
hardware and software stayed as they were. Each of these groups lists what a run says of it, and has
a digest: two runs whose digests are equal may be compared.

    model       number and shapes of the parameters of the largest model, and of those trained
    batch       what a DataLoader puts into a batch, batches per step, shapes of the inputs
    precision   element types of parameters and inputs, autocast
    hardware    GPUs and CPUs, cores that the job may use, nodes, ranks
    software    Python, PyTorch, CUDA or HIP, the GPU's driver

Of the modules that the script calls, the one with most parameters counts: how a script calls its
parts, and by which class they are wrapped, may be what a change is about. Shapes of its inputs are
those of the first forward passes; a dimension that varied among them is "*", since
it depends on the order of the data. stepscope's own version is not part of the contract. What
only one of the runs says is unknown, which is neither equal nor different.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, get_args

import msgspec
import numpy as np

from stepscope.run import Rank, Run, inputs_of, largest_model
from stepscope.schema import ModelFact, ModelInputsFact, OptimizerFact

ContractGroup = Literal["model", "batch", "precision", "hardware", "software"]
GROUPS: tuple[ContractGroup, ...] = get_args(ContractGroup)
Standing = Literal["same", "different", "unknown"]
DIGEST_LENGTH = 16
NONE = "none"
"""What a run says of a thing that is not there, where it would say so if it were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractItem:
    """One thing; None where a run does not say it."""

    name: str
    base: str | None
    other: str | None
    standing: Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTerms:
    """One group of the contract."""

    group: ContractGroup
    base_digest: str | None
    """Of all its items; None where a run says nothing of it."""
    other_digest: str | None
    standing: Standing
    items: list[ContractItem]
    """Those that are not the same."""
    same_count: int


Terms = Mapping[str, str]
"""What a run says of one group, by name."""


def contract(base: Run, other: Run) -> list[GroupTerms]:
    """The contract of two runs, group by group."""
    before, after = collect_terms(base), collect_terms(other)
    return [_group(group, before[group], after[group]) for group in GROUPS]


def collect_terms(run: Run) -> dict[ContractGroup, Terms]:
    """What a run says of each group."""
    rank = run.ranks[0] if run.ranks else None
    optimizers = rank.facts(OptimizerFact) if rank else []
    model = largest_model(rank) if rank else None
    inputs = inputs_of(rank, model) if rank else []
    return {
        "model": _model(model, optimizers),
        "batch": _batch(rank, inputs),
        "precision": _precision(model, inputs, optimizers),
        "hardware": _hardware(run),
        "software": _software(run, rank),
    }


def digest_of(terms: Terms) -> str | None:
    """A digest that is equal where all is equal; None of nothing.

    >>> digest_of({"a": "1", "b": "2"}) == digest_of({"b": "2", "a": "1"})
    True
    """
    if not terms:
        return None
    text = msgspec.json.encode(dict(sorted(terms.items())))
    return hashlib.sha256(text).hexdigest()[:DIGEST_LENGTH]


def _group(group: ContractGroup, base: Terms, other: Terms) -> GroupTerms:
    names = list(dict.fromkeys([*base, *other]))
    items = [
        ContractItem(
            name=name,
            base=base.get(name),
            other=other.get(name),
            standing="different" if name in base and name in other else "unknown",
        )
        for name in names
        if base.get(name) != other.get(name)
    ]
    standing: Standing = "same" if names and not items else "unknown"
    if any(item.standing == "different" for item in items):
        standing = "different"
    return GroupTerms(
        group=group,
        base_digest=digest_of(base),
        other_digest=digest_of(other),
        standing=standing,
        items=items,
        same_count=len(names) - len(items),
    )


def _model(model: ModelFact | None, optimizers: Sequence[OptimizerFact]) -> Terms:
    terms = {}
    if model is not None:
        terms["parameters"] = f"{model.parameter_count:,}"
        terms["parameter shapes"] = f"{model.tensor_count} tensors, digest {model.shapes_digest}"
    if optimizers:
        trained = sum(optimizer.parameter_count for optimizer in optimizers)
        terms["parameters that are trained"] = f"{trained:,}"
    return terms


def _batch(rank: Rank | None, inputs: Sequence[ModelInputsFact]) -> Terms:
    if rank is None:
        return {}
    terms = {}
    if rank.loader is not None and rank.loader.batch_size is not None:
        terms["DataLoader batch size"] = str(rank.loader.batch_size)
    fetches = rank.steps.fetches[rank.steps.measured()]
    if len(fetches) and fetches.any():
        terms["batches per step"] = f"{np.median(fetches):g}"
    shapes = _by_input(inputs)
    return terms | {f"input {name}": _shape(seen) for name, seen in shapes.items()}


def _by_input(facts: Sequence[ModelInputsFact]) -> dict[str, list[Sequence[int]]]:
    found: dict[str, list[Sequence[int]]] = {}
    for fact in facts:
        for tensor in fact.inputs:
            found.setdefault(tensor.name, []).append(tensor.shape)
    return found


def _shape(shapes: Sequence[Sequence[int]]) -> str:
    """One shape of several: "*" where they differ.

    >>> _shape([[8, 17], [8, 23]])
    '8 x *'
    """
    dimensions = [set(each) for each in zip_longest(*shapes)]
    texts = [str(each.pop()) if len(each) == 1 else "*" for each in dimensions]
    return " x ".join(texts) or "scalar"


def _precision(
    model: ModelFact | None,
    inputs: Sequence[ModelInputsFact],
    optimizers: Sequence[OptimizerFact],
) -> Terms:
    terms = {}
    if model is not None:
        terms["parameters"] = ", ".join(model.dtypes) or NONE
        terms["autocast"] = model.autocast or NONE
    for fact in inputs[:1]:
        terms |= {f"input {tensor.name}": tensor.dtype for tensor in fact.inputs}
    if optimizers:
        trained = sorted({dtype for optimizer in optimizers for dtype in optimizer.dtypes})
        terms["parameters that are trained"] = ", ".join(trained)
    return terms


def _hardware(run: Run) -> Terms:
    nodes = list(run.nodes.values())
    terms: dict[str, str] = {}
    if nodes:
        gpus = [str(gpu.get("name", "GPU")) for node in nodes for gpu in node.gpus]
        terms = {
            "GPUs": _counted(gpus),
            "CPUs": _counted([node.cpu_model for node in nodes]),
            "cores available": ", ".join(f"{node.cores_available:g}" for node in nodes),
        }
    worlds = {p.world_size for p in run.processes if p.world_size is not None}
    worlds |= {trace.world_size for trace in run.traces if trace.world_size is not None}
    ranks = max(worlds, default=len(run.ranks))
    if ranks:
        terms["ranks"] = str(ranks)
    if not nodes and run.traces:
        trace = run.traces[0]
        rows = run.reader.table(
            "devices", ("name",), condition=f"trace = {trace.trace}", traces=[trace.trace]
        )
        terms["devices of the recording"] = _counted(rows["name"].tolist())
    return terms


def _software(run: Run, rank: Rank | None) -> Terms:
    if rank is None or not rank.process.versions:
        return {}
    versions = {"cuda": NONE, "hip": NONE} | rank.process.versions
    versions.pop("stepscope", None)
    drivers = [node.driver_version or NONE for node in run.nodes.values()]
    return versions | ({"GPU driver": _counted(drivers)} if drivers else {})


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{names.count(n)} x {n}" for n in dict.fromkeys(names)) or NONE
