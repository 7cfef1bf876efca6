"""Recommendations of the TensorBoard plugin of PyTorch's profiler, and pageable copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from stepscope import analysis, quantities, schema
from stepscope.quantities import memory, percent
from stepscope.rules.base import IncrementalRule, NotApplicable, Trigger
from stepscope.rules.inputs import RuleInputs, RuleTrace, TracedGpu, TracedSteps
from stepscope.rules.parameters import Percentage, Positive, share_beside
from stepscope.rules.samples import NO_DEVICE_WORK_IN_TRACES, sort_traces
from stepscope.rules.templates import TraceResults

MIN_CAUSE_SHARE = 0.1
"""Share of step time from which a part is the cause of low GPU utilization."""
_DATA_PARALLEL = "DataParallel.forward"
_DISTRIBUTED = "DistributedDataParallel.forward"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRecommendationsParameters:
    """Thresholds of the recommendations."""

    data_loader: Percentage = 5.0
    """Fetches of batches that nothing hides take more of step time (%) than this."""
    communication: Percentage = 10.0
    """Communication that no computation hides takes more of step time (%) than this."""
    utilization: Percentage = 50.0
    """A GPU runs kernels for less of the time (%) than this."""
    memory: Percentage = 90.0
    """The framework allocates more of a GPU's memory (%) than this."""
    nccl_capability: Positive = 3.5
    """Compute capability from which a GPU supports NCCL."""
    tensor_core_capability: Positive = 7.0
    """Compute capability from which a GPU has tensor cores."""


class TraceAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """Figures behind the recommendations for one trace; None where the trace has no such data."""

    rank: str = ""
    recommendations: list[str] = []
    """Sentences, in the order of the list."""
    data_loader_share_ratio: float | None = None
    """Share of step time, as the view of steps divides it."""
    communication_share_ratio: float | None = None
    """Share of step time, as the view of steps divides it."""
    utilization_ratio: dict[str, float] = {}
    """Share of the time of the steps in which a kernel runs, by GPU."""
    tensor_core_eligible_ratio: float | None = None
    """Share of kernel time of operators that could use tensor cores, where no kernel does."""
    peak_memory_ratio: dict[str, float] = {}
    """Allocated share of the memory at the peak, by GPU."""


class TraceRecommendationsDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Recommendations by trace."""

    recordings: dict[str, TraceAdvice] = {}


class _State(msgspec.Struct):
    traces: TraceResults[TraceAdvice] = msgspec.field(default_factory=TraceResults)
    trigger: Trigger = msgspec.field(default_factory=Trigger)


class TraceRecommendations(IncrementalRule[TraceRecommendationsParameters, _State]):
    """Gives the recommendations of PyTorch's TensorBoard plugin, with causes that it misses.

    ## What it checks
    In each trace of the framework's profiler:

    1. Fetches of batches take more than `data_loader` percent of step time.
    2. `DataParallel` runs on more than one GPU.
    3. `DistributedDataParallel` runs without NCCL, on a GPU with the compute capability
       `nccl_capability` or higher.
    4. Communication takes more than `communication` percent of step time.
    5. A GPU runs kernels for less than `utilization` percent of the time of the steps.
    6. No kernel uses tensor cores, although the GPU has them (`tensor_core_capability`), and some
       kernel time is in operators that could use them.
    7. The framework allocates more than `memory` percent of a GPU's memory.

    Shares of step time are those of `stepscope show RUN steps`, where kernels and copies hide
    fetches and communication. A trace with recommendations is a violation; datapoints are traces.

    ## Why it matters
    These are the usual first steps after a look at a trace.

    ## What to do
    Follow the sentences. `stepscope diagnose RUN` ranks causes by their share of the step, with
    the predicted saving.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule; conditions and defaults are those of the TensorBoard plugin
    (torch_tb_profiler). Its advice of a larger batch is replaced where waiting for data, for other
    ranks or for the host is the reason for the low utilization. Kernels on tensor cores are known
    by more names, AMD's GPUs have no compute capability, and NCCL is also seen in kernels.
    """

    topic = "traces"
    parameters_type = TraceRecommendationsParameters
    recommendation = "Follow the recommendations; `stepscope diagnose RUN` ranks the causes."
    evidence = ("steps", "gpu-metrics", "memory")
    plots = ("step",)
    rests_on_devices = True
    missing_in_traces = "the traces contain no time"
    run_state = _State

    def update(self, state: _State, inputs: RuleInputs) -> _State:
        for trace in sort_traces(inputs):
            if trace.steps is not None:
                advice = self._advise(trace, trace.steps)
                fires = bool(advice.recommendations)
                state.traces.add(trace, advice, fires=fires, inputs=inputs, trigger=state.trigger)
        return state

    def decide(self, state: _State) -> schema.Finding | None:
        traces = state.traces
        if not traces.details:
            raise NotApplicable("no trace of the framework's profiler")
        return self.finding(
            triggered=state.trigger,
            violations=len(traces.triggered),
            datapoints=len(traces.details),
            details=TraceRecommendationsDetails(recordings=traces.details),
            sentences=[
                f"Trace {name}: {sentence}"
                for name in traces.triggered
                for sentence in traces.details[name].recommendations
            ],
            ranks=traces.triggered.values(),
        )

    def _advise(self, trace: RuleTrace, steps: TracedSteps) -> TraceAdvice:
        figures = TraceAdvice(
            rank=trace.rank,
            data_loader_share_ratio=steps.category_share("data_loader") if trace.batches else None,
            communication_share_ratio=steps.category_share("communication"),
            utilization_ratio={
                _name(gpu): gpu.utilization_ratio
                for gpu in trace.gpus
                if gpu.utilization_ratio is not None
            },
            tensor_core_eligible_ratio=self._measure_unused_tensor_cores(trace),
            peak_memory_ratio={
                _name(gpu): float(peaks.max())
                for gpu in trace.gpus
                if (peaks := gpu.ratio_of_memory(gpu.peak_bytes)) is not None
            },
        )
        sentences = [
            *self._advise_on_data(trace, figures),
            *self._advise_on_distribution(trace),
            *self._advise_on_communication(figures),
            *self._advise_on_utilization(steps, figures),
            *self._advise_on_precision(trace, figures),
            *self._advise_on_memory(trace, figures),
        ]
        return msgspec.structs.replace(figures, recommendations=sentences)

    def _advise_on_data(self, trace: RuleTrace, figures: TraceAdvice) -> Iterator[str]:
        share, limit = figures.data_loader_share_ratio, self.parameters.data_loader
        if share is not None and trace.batches and 100 * share > limit:
            advice = (
                "increase num_workers or make the workers faster"
                if trace.batches.has_workers
                else "load batches in worker processes (num_workers)"
            )
            if not trace.recorder.is_torch:
                advice = "make them in parallel, and ahead (num_parallel_calls and prefetch)"
            if trace.is_watched:  # of this job, more is known than whether it has workers
                advice = "`stepscope diagnose RUN` predicts whether workers help"
            yield (f"fetching batches takes {share_beside(share, 'step time', limit)}: {advice}.")

    def _advise_on_distribution(self, trace: RuleTrace) -> Iterator[str]:
        names = trace.range_names
        if _DATA_PARALLEL in names and len(trace.gpus) > 1:
            yield (
                f"DataParallel runs on {len(trace.gpus)} GPUs: use DistributedDataParallel, with a "
                "process for each GPU."
            )
        capabilities = [gpu.compute_capability or 0.0 for gpu in trace.gpus]
        supports_nccl = any(value >= self.parameters.nccl_capability for value in capabilities)
        uses_nccl = any(
            analysis.is_narrow_communication(name) for name in (*names, *trace.device_ns)
        )
        if _DISTRIBUTED in names and supports_nccl and not uses_nccl:
            backend = (
                "another backend" if any(map(analysis.is_host_communication, names)) else "no NCCL"
            )
            yield f"DistributedDataParallel runs with {backend}: choose the backend nccl."

    def _advise_on_communication(self, figures: TraceAdvice) -> Iterator[str]:
        share, limit = figures.communication_share_ratio, self.parameters.communication
        if share is not None and 100 * share > limit:
            yield (
                f"communication takes {share_beside(share, 'step time', limit)}, waiting for "
                "slower ranks included, which `stepscope diagnose RUN` tells apart: where it is "
                "the exchange, compress gradients, accumulate them over several batches, or "
                "increase the batch size."
            )

    def _advise_on_utilization(self, steps: TracedSteps, figures: TraceAdvice) -> Iterator[str]:
        limit = self.parameters.utilization
        for name, ratio in figures.utilization_ratio.items():
            if 100 * ratio < limit:
                yield (
                    f"{name} runs kernels for {share_beside(ratio, 'the time', limit)}"
                    + _explain_idle(steps)
                )

    def _measure_unused_tensor_cores(self, trace: RuleTrace) -> float | None:
        has_cores = any(
            gpu.compute_capability is not None
            and gpu.compute_capability >= self.parameters.tensor_core_capability
            for gpu in trace.gpus
        )
        uses_cores = any(gpu.tensor_core_ratio for gpu in trace.gpus)
        return trace.eligible_ratio if has_cores and not uses_cores else None

    def _advise_on_precision(self, trace: RuleTrace, figures: TraceAdvice) -> Iterator[str]:
        if figures.tensor_core_eligible_ratio:
            precision = "mixed precision" + (" (torch.autocast)" if trace.recorder.is_torch else "")
            yield (
                f"{percent(figures.tensor_core_eligible_ratio)} of kernel time is in operators "
                f"that could use tensor cores, and no kernel does: use automatic {precision}."
            )

    def _advise_on_memory(self, trace: RuleTrace, figures: TraceAdvice) -> Iterator[str]:
        limit = self.parameters.memory
        for gpu in trace.gpus:
            ratio = figures.peak_memory_ratio.get(_name(gpu), 0.0)
            if gpu.peak_bytes is not None and 100 * ratio > limit:
                yield (
                    f"{_name(gpu)} allocates up to {memory(int(gpu.peak_bytes.max()))}, "
                    f"{share_beside(ratio, 'its memory', limit)}: use activation checkpointing or "
                    "automatic mixed precision."
                )


def _name(gpu: TracedGpu) -> str:
    return f"GPU {gpu.number}"


def _explain_idle(steps: TracedSteps) -> str:
    """Give the advice on a GPU with little work, by what the step waits for most."""
    no_work = ("communication", "waiting", "blocked")
    parts = (*analysis.DATA_PARTS, *no_work, *analysis.OVERHEAD_PARTS)
    waits = {part: steps.share([part]) for part in parts}
    largest = max(waits, key=lambda part: waits[part])
    share = waits[largest]
    if not steps.has_host:
        return "; the trace has no operators to tell why."
    if share < MIN_CAUSE_SHARE:
        return ": increase the batch size."
    if largest == "waiting":
        return (
            f"; the host runs no operator for {percent(share)} of step time: a device that waits "
            "for requests needs more of them."
        )
    if largest == "blocked":
        return f"; for {percent(share)} of step time it waits for what is not in the trace."
    cause = f"; {analysis.PART_NAMES[largest]} takes {percent(share)} of step time"
    if largest in analysis.OVERHEAD_PARTS:
        return f"{cause}: make the host faster first (FrameworkOverhead), then try a larger batch."
    return f"{cause}, and a larger batch does not change that: shorten it first."


HOST_COPIES = ("HtoD", "DtoH")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageableCopiesParameters:
    """Threshold of unpinned copies."""

    threshold: Percentage = 2.0
    """The rule fires if pageable copies take more of a trace's device time (%) than this."""


class TraceCopies(msgspec.Struct, frozen=True, kw_only=True):
    """Pageable copies in one trace."""

    rank: str = ""
    pageable_share_ratio: float = 0.0
    """Share of the time from the first device work to the last."""
    pageable_count: int = 0
    pageable_bytes: int | None = None
    """None if the trace does not record sizes."""


class PageableCopiesDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Pageable copies by trace."""

    recordings: dict[str, TraceCopies] = {}


class _CopiesState(msgspec.Struct):
    traces: TraceResults[TraceCopies] = msgspec.field(default_factory=TraceResults)
    trigger: Trigger = msgspec.field(default_factory=Trigger)


class PageableCopies(IncrementalRule[PageableCopiesParameters, _CopiesState]):
    """Checks whether copies between host and device use pageable memory.

    ## What it checks
    In each trace of the framework's profiler, the duration of copies between pageable host memory
    and a device, as a share of the time from the first device work to the last. A share above
    `threshold` is a violation; datapoints are traces with device work.

    ## Why it matters
    The driver first copies pageable memory to a pinned buffer. That is slower, blocks the calling
    thread, and cannot overlap with computation.

    ## What to do
    Use DataLoader(pin_memory=True) and .to(device, non_blocking=True). Allocate staging buffers
    once with pin_memory().

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule; its Dataloader report only looks at the setting of pin_memory.
    """

    topic = "data loading"
    parameters_type = PageableCopiesParameters
    recommendation = "Use DataLoader(pin_memory=True) and .to(device, non_blocking=True)."
    evidence = ("activity",)
    plots = ("step", "h2d")
    rests_on_devices = True
    missing_in_traces = NO_DEVICE_WORK_IN_TRACES
    run_state = _CopiesState

    def update(self, state: _CopiesState, inputs: RuleInputs) -> _CopiesState:
        for trace in sort_traces(inputs):
            copies = _pageable_copies(trace)
            if copies is not None:
                fires = 100 * copies.pageable_share_ratio > self.parameters.threshold
                state.traces.add(trace, copies, fires=fires, inputs=inputs, trigger=state.trigger)
        return state

    def decide(self, state: _CopiesState) -> schema.Finding | None:
        traces = state.traces
        if not traces.details:
            raise NotApplicable(
                "no trace with device work",
                advice="record a window with `stepscope run --start-step N -- CMD` or, while the "
                "job runs, `stepscope capture RUN`",
            )
        return self.finding(
            triggered=state.trigger,
            violations=len(traces.triggered),
            datapoints=len(traces.details),
            details=PageableCopiesDetails(recordings=traces.details),
            sentences=self._sentences(traces),
            ranks=traces.triggered.values(),
        )

    def _sentences(self, traces: TraceResults[TraceCopies]) -> Iterable[str]:
        for name in traces.triggered:
            copies = traces.details[name]
            share = share_beside(
                copies.pageable_share_ratio, "device time", self.parameters.threshold
            )
            copied = quantities.count_of(copies.pageable_count, "pageable copy", "pageable copies")
            verb = "takes" if copies.pageable_count == 1 else "take"
            yield f"Trace {name}: {copied} {verb} {share}."


def _pageable_copies(trace: RuleTrace) -> TraceCopies | None:
    """Return the pageable copies of a trace; None without device work."""
    time = trace.gpu_time
    if time is None or not time.total_ns:
        return None
    pageable = [
        copies
        for copies in trace.copies
        if copies.direction in HOST_COPIES and "pageable" in {copies.source, copies.target}
    ]
    sizes = [copies.moved_bytes for copies in pageable if copies.moved_bytes is not None]
    return TraceCopies(
        rank=trace.rank,
        pageable_share_ratio=sum(copies.total_ns for copies in pageable) / time.total_ns,
        pageable_count=sum(copies.count for copies in pageable),
        pageable_bytes=sum(sizes) if sizes else None,
    )
