"""Facts that a process records about its job, one struct per kind.

Capture writes facts into the journal of a process as JSON objects with a `fact` key; it uses the
standard library only and does not import this module. The monitor copies them into the manifest
(`ProcessInfo.facts`). Readers get them as structs:

    for optimizer in process.facts_of(OptimizerFact):
        print(optimizer.name, optimizer.parameter_count)

Structs ignore unknown fields, so that runs of later versions stay readable. Fields that older
versions did not record have defaults; a default of UNSET marks a field that is left out when the
struct is encoded again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from stepscope.schema.memory_facts import MemoryCensusFact
from stepscope.schema.model_facts import (
    BoostedModelFact,
    Fact,
    ModelFact,
    ModelInputsFact,
    NanOriginFact,
    NanSearchFact,
    PaddingFact,
)

MAX_OBJECTS = 64
"""Limit on the facts about objects of one kind in a process, in capture as well."""
DEBUGGER = "SageMaker Debugger"
"""Value of `ImportedFact.form`, and of `recorder` in the metadata of traces, for its files."""


FactT = TypeVar("FactT", bound=Fact)


class DataLoaderFact(Fact, frozen=True, kw_only=True, tag="dataloader"):
    """Settings of a DataLoader, recorded at its first iteration by the process that iterates it."""

    name: str
    """Class of the dataset and number of the loader, such as `Images#0`; also the name of the
    loader's `data_wait` spans."""
    dataset: str = ""
    """Module and class of the dataset."""
    batch_size: int | float | str | None = None
    """Samples per batch, as the loader or its sampler has it; None without automatic batching."""
    num_workers: int
    """Worker processes; 0 if the training thread loads data itself."""
    prefetch_factor: int | None = None
    """Batches prefetched per worker; None without workers."""
    pin_memory: bool | None = None
    """True if batches are copied into pinned memory."""
    persistent_workers: bool | None = None
    """True if workers stay alive between epochs."""
    drop_last: bool | UnsetType = UNSET
    """True if an incomplete last batch is dropped."""
    iterable: bool | UnsetType = UNSET
    """True for an IterableDataset."""
    start_method: str | UnsetType | None = UNSET
    """Start method of worker processes (`fork`, `spawn`, `forkserver`); None without workers."""
    collate: str | UnsetType = UNSET
    """Name of the collate function."""


class DataLoaderWorkerFact(Fact, frozen=True, kw_only=True, tag="dataloader_worker"):
    """Role of a DataLoader worker, recorded by the worker process."""

    worker: int | None
    """Number of the worker within its loader; None if unknown."""
    num_workers: int | UnsetType = UNSET
    """Worker processes of the loader."""
    dataset: str | UnsetType = UNSET
    """Class of the dataset."""


class FlightRecorderFact(Fact, frozen=True, kw_only=True, tag="flight_recorder"):
    """Recorder of collectives of the framework, as the process found it."""

    is_available: bool
    """False if this version of PyTorch has none, or if it is switched off."""
    ring_size: int
    """Collectives that it keeps; 0 if it is switched off."""


class ThinnedFact(Fact, frozen=True, kw_only=True, tag="thinned"):
    """Change of the share of batches that are recorded in detail: these details cost time too."""

    name: str
    """Class of the dataset."""
    detailed_every: int
    """One batch in this number is recorded in detail from now on; before, every batch."""


class DataLoaderSettingsFact(Fact, frozen=True, kw_only=True, tag="dataloader_seen"):
    """Settings of a DataLoader in files of SageMaker Debugger, which do not name the loader."""

    num_workers: Any = UNSET
    """Worker processes, as the file has it."""
    pin_memory: Any = UNSET
    """Use of pinned memory, as the file has it."""

    @property
    def worker_count(self) -> int | None:
        """Worker processes; None if the file states no number."""
        return int(self.num_workers) if str(self.num_workers).isdecimal() else None

    @property
    def is_pinned(self) -> bool | None:
        """True if batches are copied into pinned memory; None if the file does not say so."""
        return {"true": True, "false": False}.get(str(self.pin_memory).lower())


LoaderSettings = DataLoaderFact | DataLoaderSettingsFact
"""Settings of a DataLoader, of either origin."""


class OptimizerFact(Fact, frozen=True, kw_only=True, tag="optimizer"):
    """Optimizer, recorded at its first step."""

    name: str
    """Class of the optimizer."""
    parameter_count: int
    """Elements of all parameters it updates."""
    tensor_count: int
    """Number of parameter tensors."""
    devices: list[str] | UnsetType = UNSET
    """Types of device of the parameters, such as `cuda`."""
    dtypes: list[str] = msgspec.field(default_factory=list)
    """Element types of the parameters, such as `float32`."""
    foreach: bool | UnsetType | None = UNSET
    """The `foreach` option of the first parameter group; None if it is not set."""
    fused: bool | UnsetType | None = UNSET
    """The `fused` option of the first parameter group; None if it is not set."""
    intra_op_threads: int | UnsetType = UNSET
    """Threads that torch uses within an operator."""


class ObjectFact(Fact, frozen=True, kw_only=True, tag="object"):
    """Optimizer or loader of batches, recorded when it is first used: a process may train several
    times. Of each kind, the first `MAX_OBJECTS` of a process are recorded."""

    object: Literal["optimizer", "loader"]
    """Its kind."""
    number: int
    """Number among those of its kind, from 1."""
    name: str = ""
    """Class of the optimizer, or name of the `data_wait` spans of the loader."""
    identity: int | None = None
    """Value of the `optimizer` spans of the optimizer, until another one has the same."""
    t_ns: int
    """Time of its first use, epoch nanoseconds."""


class DdpFact(Fact, frozen=True, kw_only=True, tag="ddp"):
    """Statistics of DistributedDataParallel, recorded several times during a run.

    DDP measures some of the iterations only; durations are its running averages per pass.
    """

    step_count: int = 0
    """Steps of the process so far; 0 in runs that did not record it."""
    pass_count: int = 0
    """Training passes through the module in these steps; 0 in runs that did not record it."""
    exchange_count: int | None = None
    """Passes that exchanged gradients; None in runs that did not record it."""
    backward_compute_ns: int
    """Duration of backward compute."""
    backward_comm_ns: int
    """Duration of gradient exchange."""
    backward_overlap_ns: int
    """Overlap of backward compute and gradient exchange."""
    forward_compute_ns: int = 0
    """Duration of forward compute."""
    bucket_bytes: str = ""
    """Sizes of the gradient buckets in bytes, separated by commas."""
    backend: str = ""
    """Communication backend, such as `nccl`."""
    world_size: int = 0
    """Number of ranks; 0 if unknown."""


class StackCapture(msgspec.Struct, frozen=True, kw_only=True):
    """Time to capture and format a Python stack, which anomaly detection does in every operation of
    a forward pass."""

    depth: int
    """Frames of the stack that was timed, at the end of a step."""
    capture_ns: int
    """Time to capture that stack."""
    frame_ns: int
    """Time for each further frame."""


class SettingsFact(Fact, frozen=True, kw_only=True, tag="settings"):
    """Settings of torch and the interpreter that change how fast a job runs.

    Recorded after the first step, and again if they differ after 10 or 100 steps; while a debug
    switch is on, after each of the first 20 steps and every 20 steps.
    """

    step_count: int
    """Steps of the process so far."""
    anomaly_detection: bool
    """True if autograd checks every backward operation: `torch.autograd.set_detect_anomaly`."""
    deterministic_algorithms: bool
    """True if torch uses deterministic algorithms only."""
    cudnn_benchmark: bool
    """True if cuDNN measures algorithms and takes the fastest."""
    float32_matmul_precision: str | None
    """Precision of float32 matrix products: `highest`, `high` or `medium`; None if it is set for
    single backends."""
    intra_op_threads: int
    """Threads that torch uses within an operator."""
    inter_op_threads: int
    """Threads that torch uses for independent operators."""
    trace_function: str | None
    """Function of `sys.settrace`, such as that of a debugger; None if there is none."""
    profile_function: str | None
    """Function of `sys.setprofile`; None if there is none."""
    traces_allocations: bool
    """True if `tracemalloc` records every allocation of Python."""
    variables: dict[str, str]
    """Debug and thread switches that are set in the environment, out of a fixed list."""
    profiles_operators: bool | None = None
    """True if a profiler of the job records every operator; None in runs that did not record it."""
    stack_capture: StackCapture | None = None
    """None without anomaly detection, and in runs that did not record it."""


class WindowFact(Fact, frozen=True, kw_only=True, tag="window"):
    """Detailed window that the process recorded."""

    number: int
    """Number of the window within the process."""
    reason: str
    """`automatic`, `scheduled`, `requested` or `slower`."""
    recorder: str = ""
    """Profiler that wrote the trace: `libkineto` or `profiler`."""
    depth: Literal["light", "full"]
    """Level of detail."""
    options: list[str]
    """Recorded details: `shapes`, `stacks`, `memory`, `flops`, `modules`."""
    first_step: int
    """Steps of the process before the window, and so the number of its first step."""
    step_count: int
    """Steps in the window."""
    request: str | None = None
    """Name of the window request, or of a window scheduled by time; null for other windows."""
    planned_first_step: int | None = None
    """Planned first step; null if it was planned for a time."""
    planned_step_count: int | None = None
    """Planned number of steps; null if it was planned for a duration."""
    deviation: str | None = None
    """Reason why the steps differ from the planned ones, as a clause; null if they do not."""


class WindowMissedFact(Fact, frozen=True, kw_only=True, tag="window_missed"):
    """Window that could not be opened."""

    number: int | None = None
    """Number of the window within the process; null for a scheduled one without a number."""
    first_step: int | None = None
    """Planned first step; null if it was planned for a time."""
    reason: str = ""
    """As for `window`; empty in runs of earlier versions."""
    request: str | None = None
    """As for `window`."""
    why: str
    """Reason, as a clause."""


class WindowUnfinishedFact(Fact, frozen=True, kw_only=True, tag="window_unfinished"):
    """Window whose trace was not complete when the process ended."""

    number: int
    """Number of the window within the process."""
    after_s: float
    """Time for which the process waited, in seconds."""


class StackSamplerFact(Fact, frozen=True, kw_only=True, tag="stack_sampler"):
    """Stack sampler of the process."""

    period_ns: int
    """Sampling period."""
    counts_delays: bool = False
    """True if it records the time in which the sampled thread was runnable without a core."""


class WorkerProcessFact(Fact, frozen=True, kw_only=True, tag="worker_process"):
    """Process that works for a training process: of a pool, or of an input pipeline other than the
    DataLoader of torch."""

    target: str
    """Function that it runs, or the library that started it."""
    trains: bool
    """True once it has trained itself."""


class SourceLineFact(Fact, frozen=True, kw_only=True, tag="source"):
    """Line of user code that a stack sample hit."""

    file: str
    """Path of the file."""
    line: int
    """Line number, from 1."""
    text: str
    """Text of the line without indentation, or of the call, with secrets masked."""
    call: int = 0
    """Number of a call in the line, which stacks state; 0 for the line itself."""


class FunctionFact(Fact, frozen=True, kw_only=True, tag="function"):
    """Function of user code that a stack sample hit."""

    file: str
    """Path of the file."""
    name: str
    """Qualified name of the function."""
    uses: list[str]
    """Names of globals and attributes that it uses."""
    line: int = 0
    """First line of its definition; 0 in runs of earlier versions."""


class PlannedStepsFact(Fact, frozen=True, kw_only=True, tag="planned_steps"):
    """Plan of a trainer, as it stated it when the training began."""

    count: int
    """Steps that it is going to take."""


class VersionsFact(Fact, frozen=True, kw_only=True, tag="versions"):
    """Versions of a framework; the monitor moves them to `ProcessInfo.versions`."""

    versions: dict[str, str]
    """Versions by name, such as `jax`. `cuda` and `hip` are those that torch was built for;
    `keras_backend` is the name of a framework."""


class KerasSettingsFact(Fact, frozen=True, kw_only=True, tag="keras_settings"):
    """Settings of a model of Keras that change how fast it trains, when its training begins."""

    run_eagerly: bool
    """True if the operators of a step are called one by one, not in a compiled function."""


class ReplicasFact(Fact, frozen=True, kw_only=True, tag="replicas"):
    """Replicas of `tf.distribute`. They exchange data inside compiled functions, unrecorded."""

    count: int
    """Number of replicas of all processes, two or more."""


class ShardedTensorsFact(Fact, frozen=True, kw_only=True, tag="sharded_tensors"):
    """Statistics of tensors whose parts are on several ranks (option `--tensors-sharded whole`).

    If the last fact about some ranks says `shards`, the exchange between them has ended, and later
    rows are those of shards; their `element_count` is below the product of the sizes in `shape`.
    """

    statistics: Literal["whole", "shards"]
    """`whole`: the first of the ranks records the statistics of whole tensors."""
    ranks: list[int]
    """Ranks that hold the parts; empty if they are not known."""
    why: str | None = None
    """Reason why they are not those of whole tensors, as a clause; null if they are."""


class RankFact(Fact, frozen=True, kw_only=True, tag="rank"):
    """Rank of the process, if it became known after the start of the recording: the script sets it,
    or passes it to `torch.distributed.init_process_group`."""

    rank: int
    """Rank of the process; `ProcessInfo.rank` has it as well."""
    world_size: int | None = None
    """Number of ranks; null if unknown."""


class ImportedFact(Fact, frozen=True, kw_only=True, tag="imported"):
    """Origin of a process that an importer created."""

    form: str
    """Name of the imported format."""


FACT_TYPES: dict[str, type[Fact]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        DataLoaderFact,
        DataLoaderWorkerFact,
        DataLoaderSettingsFact,
        OptimizerFact,
        ObjectFact,
        ModelFact,
        ModelInputsFact,
        PaddingFact,
        DdpFact,
        SettingsFact,
        WindowFact,
        WindowMissedFact,
        WindowUnfinishedFact,
        StackSamplerFact,
        WorkerProcessFact,
        FlightRecorderFact,
        ThinnedFact,
        SourceLineFact,
        FunctionFact,
        BoostedModelFact,
        PlannedStepsFact,
        VersionsFact,
        KerasSettingsFact,
        NanOriginFact,
        NanSearchFact,
        MemoryCensusFact,
        RankFact,
        ReplicasFact,
        ShardedTensorsFact,
        ImportedFact,
    )
}
"""Structs by the value of `fact`."""


def decode_facts(records: Iterable[Mapping[str, Any]], kind: type[FactT]) -> list[FactT]:
    """Decode the facts of one kind, in the order of their recording.

    Records that lack a required field or have one of a wrong type are skipped.
    """
    tag = kind.__struct_config__.tag
    facts = []
    for record in records:
        if record.get("fact") == tag:
            try:
                facts.append(msgspec.convert(record, kind))
            except msgspec.ValidationError:
                continue
    return facts
