"""Inputs of the search for a cause in traces: what several causes are told apart by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stepscope import analysis, run, schema
from stepscope.analysis import MAX_CALL_NS
from stepscope.diagnosis.causes.cause import CauseFinding
from stepscope.diagnosis.traces import trace_details, trace_python
from stepscope.diagnosis.traces.trace_shares import TraceShares, TraceWaits, make_evidence
from stepscope.quantities import percent

SHORT_RATIO = 0.5
"""Operators are tiny where this share of them is too short to hide their launch."""
FULL_PRECISION_RATIO = 0.3
"""Share of kernel time in float32 matrix products from which tensor cores would help."""
MULTIPROCESSOR_RATIO = 0.4
"""Kernels that have a block for fewer multiprocessors leave most of the device idle."""
OPTIMIZER_COMPUTE_RATIO = 0.4
"""Share of the computation in optimizer steps from which the optimizer is the cause."""
MAX_GRAPH_EVENTS = 2_000_000
"""Events of traces of which a verdict builds a causal graph; that takes 0.3 KiB each."""


@dataclass(frozen=True, kw_only=True)
class TraceInputs:
    """Inputs of the search for a cause."""

    traces: Sequence[run.DividedTrace]
    shares: TraceShares
    waits: TraceWaits

    def choose(self, *parts: str) -> run.DividedTrace:
        """Choose the trace with most time in some parts."""
        return max(self.traces, key=lambda one: sum(one.part_ns[part].sum() for part in parts))

    def mean_ns(self, *parts: str) -> float:
        """Compute the mean time per step of some parts."""
        return sum(int(one.part_ns[part].sum()) for one in self.traces for part in parts) / max(
            1, self.step_count
        )

    @cached_property
    def launches(self) -> trace_details.Launches:
        """Launches of the trace with most overhead."""
        return trace_details.measure_launches(self.choose("dispatch", "python"))

    @cached_property
    def matrix_kernels(self) -> trace_details.MatrixKernels:
        """Matrix kernels of the trace with most computation."""
        return trace_details.measure_matrix_kernels(self.choose("compute"))

    @cached_property
    def causal(self) -> run.RunGraph | None:
        """Causal graph of the traces; None where they are not one for each of ranks that were
        recorded together, are too large, or where its replay is not accurate enough."""
        ranks = {one.trace.rank for one in self.traces}
        event_count = sum(one.trace.event_count for one in self.traces)
        is_one_each = len(ranks) == len(self.traces) == self.waits.rank_count
        if not is_one_each or event_count > MAX_GRAPH_EVENTS:
            return None
        try:
            graph = run.build_run_graph(self.traces)
        except analysis.CycleError:
            return None
        return graph if abs(graph.error_ratio) <= run.MAX_REPLAY_ERROR_RATIO else None

    @property
    def recorder(self) -> schema.Recorder:
        """Framework whose profiler wrote the traces."""
        return self.traces[0].trace.recorder

    @property
    def on_host(self) -> bool:
        """True without work of a device: the host computes itself."""
        return self.traces[0].on_host

    @property
    def step_count(self) -> int:
        """Number of steps of all traces."""
        return sum(len(one.steps.names) for one in self.traces)

    @cached_property
    def reads(self) -> trace_details.Reads:
        """Reads of values in all traces without a device; none with one, where reads are waits."""
        reads = [trace_details.measure_reads(one) for one in self.traces if one.on_host]
        return trace_details.Reads(
            count=sum(one.count for one in reads), time_ns=sum(one.time_ns for one in reads)
        )

    @property
    def read_ratio(self) -> float:
        """Share of the step in which a host without a device reads values."""
        return self.reads.time_ns / (self.step_count * mean_step_ns(self.traces))

    @cached_property
    def script_python(self) -> trace_python.ScriptPython:
        """Python of the script itself, in the trace with most time between operators."""
        return trace_python.measure_script_python(self.choose("python"))

    @cached_property
    def issuer(self) -> str | None:
        """Part of PyTorch that issues collectives, DDP or FSDP; None if neither is used."""
        return trace_details.find_issuer(self.choose("communication"))

    @cached_property
    def wait_function(self) -> str | None:
        """Python function in which the host waits while it has no work; None if unknown."""
        divided = self.choose("waiting")
        return run.name_wait_function(divided.trace, divided.activity.waiting)

    @cached_property
    def copies_without_waits(self) -> bool:
        """True if copies to the device read pinned memory, and the host waits for none of them."""
        divided = self.choose("copy_to_device")
        return (
            trace_details.measure_pageable_ratio(divided) == 0
            and not divided.activity.copy_waits.total_ns
        )

    @cached_property
    def model_cause(self) -> CauseFinding | None:
        """Cause of a computation longer than the device needs; None if nothing shows one."""
        return _find_model_cause(self)

    @cached_property
    def overhead_parts(self) -> dict[str, float]:
        """Shares of the step by cause of overhead."""
        parts = self.shares.parts
        python = parts["python"] * self.script_python.python_ratio
        calls = max(0.0, parts["dispatch"] + parts["python"] - python - self.read_ratio)
        return {
            "host_sync": parts["synchronization"] + parts["copy_to_host"] + self.read_ratio,
            "recompilation": parts["compilation"],
            "memory_allocation": parts["allocation"],
            "long_calls": parts["long_call"],
            "device_to_host_copies": parts["copy_out"],
            "python_overhead": python,
            name_call_cause(self, calls): calls,
        }


def name_call_cause(inputs: TraceInputs, share: float) -> str:
    """Name the cause of the share of the step in which the host calls operators, one after
    another."""
    launches = inputs.launches
    is_quick = share * mean_step_ns(inputs.traces) <= MAX_CALL_NS * launches.count_per_step
    is_short = launches.short_ratio >= SHORT_RATIO
    return "tiny_operators" if is_quick and is_short else "dispatch_overhead"


def _find_model_cause(inputs: TraceInputs) -> CauseFinding | None:
    divided = inputs.choose("compute")
    optimizer = trace_details.measure_optimizer_work_ratio(divided)
    share = inputs.shares.parts["compute"]
    if optimizer * share >= OPTIMIZER_COMPUTE_RATIO:
        text = f"Optimizer steps have {percent(optimizer)} of the computation."
        return CauseFinding(
            cause="optimizer", evidence=[make_evidence(text, optimizer, "ratio", "annotations")]
        )
    if divided.on_host:
        return None
    precision = inputs.matrix_kernels
    if precision.full_precision_ratio >= FULL_PRECISION_RATIO and trace_details.has_tensor_cores(
        divided
    ):
        text = (
            f"{percent(precision.full_precision_ratio)} of kernel time multiplies float32 matrices "
            "without tensor cores, as kernel names show."
        )
        return CauseFinding(
            cause="full_precision",
            evidence=[make_evidence(text, precision.full_precision_ratio, "ratio", "kernels")],
        )
    ratio = trace_details.measure_multiprocessor_ratio(divided)
    if ratio is not None and ratio < MULTIPROCESSOR_RATIO:
        text = (
            f"While a kernel runs, it has blocks for {percent(ratio)} of the multiprocessors on "
            "average."
        )
        return CauseFinding(
            cause="low_occupancy", evidence=[make_evidence(text, ratio, "ratio", "gpu-metrics")]
        )
    return None


def mean_step_ns(traces: Sequence[run.DividedTrace]) -> float:
    """Compute the mean duration of the steps of several traces."""
    return float(np.concatenate([one.steps.wall_ns for one in traces]).mean())
