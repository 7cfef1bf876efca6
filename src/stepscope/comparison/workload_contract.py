"""Workload contract: properties that have to be equal for two runs to do the same work.

A change of the step time is evidence about the code only where model, batch, precision, hardware
and software are the same. Each of these groups lists the recorded properties and has a digest: two
runs with equal digests may be compared.

    model       number and shapes of the parameters of the largest model, and of those trained
    batch       batch size of the DataLoader, batches per step, shapes of the inputs
    precision   element types of parameters and inputs, autocast
    hardware    GPUs and CPUs, cores available to the job, nodes, ranks
    software    Python, PyTorch, CUDA or HIP, the GPU's driver

The module with the most parameters counts: the way in which a script calls its parts, and the
classes that wrap them, may be the subject of a change. The shapes of its inputs are those of the
first forward passes; a dimension that varied among them is "*", because it depends on the order of
the data. A run without a monitored job has the layers of its first trace instead. The version of
stepscope is not part of the contract. A property that only one run recorded is unknown, which is
neither equal nor different.

Work of a trace for the contract: shapes of the layers that its operators carry out. A trace of a
profiler names neither the model nor its DataLoader. Where it was recorded with shapes, the inputs
of layer operators show both: one input is the layer's weight, and the leading dimension of the
other is the number of samples.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Annotated, Literal, get_args

import msgspec
import numpy as np

from stepscope import quantities, schema
from stepscope.quantities import count_of
from stepscope.run import Rank, Run, Trace, inputs_of, largest_model

ContractGroup = Literal["model", "batch", "precision", "hardware", "software"]
GROUPS: tuple[ContractGroup, ...] = get_args(ContractGroup)
Standing = Literal["same", "different", "unknown"]
DIGEST_LENGTH = 16
NONE = "none"
"""Value of a property that is recorded as absent."""


class ContractDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A property that is not the same; null where a run did not record it."""

    name: Annotated[str, schema.field_label("term")]
    base_value: Annotated[str | None, schema.field_label("from")] = msgspec.field(name="base")
    other_value: Annotated[str | None, schema.field_label("to")] = msgspec.field(name="other")
    standing: Standing
    """`different`, or `unknown` where only one run recorded it."""


class ContractTerms(msgspec.Struct, frozen=True, kw_only=True):
    """One group of the contract between two runs."""

    group: ContractGroup
    standing: Standing
    base_digest: str | None
    """Digest of all properties; null where a run recorded none."""
    other_digest: str | None
    same_count: Annotated[int, schema.field_label("same terms")]
    differences: list[ContractDifference]


Terms = dict[str, str]
"""Recorded properties of one group, by name."""


def compare_contracts(base_run: Run, other_run: Run) -> list[ContractTerms]:
    """Compare the contracts of two runs, group by group."""
    return compare_terms(collect_terms(base_run), collect_terms(other_run))


def compare_terms(
    base_terms: Mapping[ContractGroup, Terms], other_terms: Mapping[ContractGroup, Terms]
) -> list[ContractTerms]:
    """Compare the recorded properties of two runs, group by group."""
    return [_compare_group(group, base_terms[group], other_terms[group]) for group in GROUPS]


def collect_terms(run: Run) -> dict[ContractGroup, Terms]:
    """Collect the recorded properties of each group."""
    rank = run.ranks[0] if run.ranks else None
    optimizers = rank.facts(schema.OptimizerFact) if rank else []
    model = largest_model(rank) if rank else None
    inputs = inputs_of(rank, model) if rank else []
    work = describe_trace_work(run.traces[0]) if rank is None and run.traces else None
    return {
        "model": _describe_model(model, optimizers) | _describe_layers(work),
        "batch": _describe_batch(rank, inputs)
        | (
            {}
            if work is None
            else {"samples in the inputs of layers": quantities.count(work.batch)}
        ),
        "precision": _describe_precision(model, inputs, optimizers),
        "hardware": _describe_hardware(run),
        "software": _describe_software(run, rank),
    }


def compute_digest(terms: Terms) -> str | None:
    """Compute a digest that is equal for equal properties; None without properties.

    >>> compute_digest({"a": "1", "b": "2"}) == compute_digest({"b": "2", "a": "1"})
    True
    """
    if not terms:
        return None
    return _hash(dict(sorted(terms.items())))


def _hash(values: object) -> str:
    return hashlib.sha256(msgspec.json.encode(values)).hexdigest()[:DIGEST_LENGTH]


def _compare_group(group: ContractGroup, base_terms: Terms, other_terms: Terms) -> ContractTerms:
    names = list(dict.fromkeys([*base_terms, *other_terms]))
    differences = [
        ContractDifference(
            name=name,
            base_value=base_terms.get(name),
            other_value=other_terms.get(name),
            standing="different" if name in base_terms and name in other_terms else "unknown",
        )
        for name in names
        if base_terms.get(name) != other_terms.get(name)
    ]
    standing: Standing = "same" if names and not differences else "unknown"
    if any(difference.standing == "different" for difference in differences):
        standing = "different"
    return ContractTerms(
        group=group,
        standing=standing,
        base_digest=compute_digest(base_terms),
        other_digest=compute_digest(other_terms),
        same_count=len(names) - len(differences),
        differences=differences,
    )


def _describe_model(
    model: schema.ModelFact | None, optimizers: Sequence[schema.OptimizerFact]
) -> Terms:
    terms = {}
    if model is not None:
        terms["parameters"] = quantities.count(model.parameter_count)
        terms["parameter shapes"] = f"{model.tensor_count} tensors, digest {model.shapes_digest}"
    if optimizers:
        trained = sum(optimizer.parameter_count for optimizer in optimizers)
        terms["parameters that are trained"] = quantities.count(trained)
    return terms


def _describe_layers(work: TraceWork | None) -> Terms:
    if work is None:
        return {}
    weights = [" ".join(weight) for weight in sorted(work.weights)]
    digest = _hash(weights)
    return {"layers of the trace": f"{count_of(len(weights), 'shape')} of weights, digest {digest}"}


def _describe_batch(rank: Rank | None, inputs: Sequence[schema.ModelInputsFact]) -> Terms:
    if rank is None:
        return {}
    terms = {}
    if rank.loader is not None and rank.loader.batch_size is not None:
        terms["DataLoader batch size"] = str(rank.loader.batch_size)
    fetches = rank.steps.fetches[rank.steps.measured()]
    if len(fetches) and fetches.any():
        terms["batches per step"] = quantities.number(np.median(fetches))
    shapes_by_input = _group_shapes(inputs)
    return terms | {f"input {name}": _merge(shapes) for name, shapes in shapes_by_input.items()}


def _group_shapes(facts: Sequence[schema.ModelInputsFact]) -> dict[str, list[Sequence[int]]]:
    shapes: dict[str, list[Sequence[int]]] = {}
    for fact in facts:
        for tensor in fact.inputs:
            shapes.setdefault(tensor.name, []).append(tensor.shape)
    return shapes


def _merge(shapes: Sequence[Sequence[int]]) -> str:
    """Merge several shapes into one, with "*" where they differ.

    >>> _merge([[8, 17], [8, 23]])
    '8 x *'
    """
    dimensions = [set(sizes) for sizes in zip_longest(*shapes)]
    texts = [str(sizes.pop()) if len(sizes) == 1 else "*" for sizes in dimensions]
    return " x ".join(texts) or "scalar"


def _describe_precision(
    model: schema.ModelFact | None,
    inputs: Sequence[schema.ModelInputsFact],
    optimizers: Sequence[schema.OptimizerFact],
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


def _describe_hardware(run: Run) -> Terms:
    nodes = list(run.nodes.values())
    terms: dict[str, str] = {}
    if nodes:
        gpus = [str(gpu.get("name", "GPU")) for node in nodes for gpu in node.gpus]
        terms = {
            "GPUs": _count_names(gpus),
            "CPUs": _count_names([node.cpu_model for node in nodes]),
            "cores available": ", ".join(quantities.number(node.cores_available) for node in nodes),
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
        terms["GPUs of the trace"] = _count_names(rows["name"].tolist())
    return terms


def _describe_software(run: Run, rank: Rank | None) -> Terms:
    if rank is None or not rank.process.versions:
        return {}
    versions = {"cuda": NONE, "hip": NONE} | rank.process.versions
    versions.pop("stepscope", None)
    drivers = [node.driver_version or NONE for node in run.nodes.values()]
    return versions | ({"GPU driver": _count_names(drivers)} if drivers else {})


def _count_names(names: Sequence[str]) -> str:
    return ", ".join(f"{names.count(n)} x {n}" for n in dict.fromkeys(names)) or NONE


LAYERS: Mapping[str, tuple[int, int]] = {
    **{f"aten::conv{dimensions}d": (0, 1) for dimensions in (1, 2, 3)},
    "aten::linear": (0, 1),
    "aten::embedding": (1, 0),
}
"""Operators of PyTorch that carry out a layer, with the indices of its input and of its weight:
https://docs.pytorch.org/docs/stable/nn.functional.html."""


class TraceWork(msgspec.Struct, frozen=True):
    """Layers of the forward passes of a trace."""

    weights: frozenset[tuple[str, str]]
    """Operator and shape of every different weight."""
    batch: int
    """Most frequent leading dimension of the inputs of layers."""


def describe_trace_work(trace: Trace) -> TraceWork | None:
    """Describe the layers of a trace; None if it has no layers with shapes."""
    rows = trace.reader.sql(
        "SELECT name, input_dims, count(*) AS calls FROM operators WHERE trace = ? "
        "AND input_dims IS NOT NULL AND list_contains(?, name) GROUP BY ALL",
        [trace.trace, list(LAYERS)],
        traces=[trace.trace],
    )
    weights: set[tuple[str, str]] = set()
    batches: Counter[int] = Counter()
    for name, text, calls in zip(rows["name"], rows["input_dims"], rows["calls"], strict=True):
        shapes = _parse_shapes(text)
        data, weight = LAYERS[name]
        if len(shapes) <= max(data, weight) or not shapes[data] or not shapes[weight]:
            continue
        weights.add((name, str(shapes[weight])))
        batches[shapes[data][0]] += int(calls)
    if not weights:
        return None
    return TraceWork(
        weights=frozenset(weights), batch=max(batches, key=lambda size: (batches[size], size))
    )


def _parse_shapes(text: str) -> list[list[int]]:
    """Parse recorded shapes; lists of tensors are nested deeper, and no layer has one."""
    try:
        return msgspec.json.decode(text, type=list[list[int]])
    except schema.MALFORMED_JSON:
        return []
