"""Accelerators: how the traces of each maker's profiler show the work of its devices.

An entry contains everything that is specific to a maker: the categories of calls on the host, names
of processes and threads that tell the meaning of events without a category, names of calls that put
work on a device, arrows that tie a launch to its work, and the words of advice. To add a maker, add
its entry to `ACCELERATORS`, with a link to a public source of the layout.

Work of the category `kernel`, `gpu_memcpy` or `gpu_memset` is that of any maker: all backends of
Kineto write these (https://github.com/pytorch/kineto/blob/main/libkineto/include/ActivityType.h).
An event of another category is work only if its launch tells so, or a `Lane`. What else resembles
work of a device is named in the quality record, and nothing is concluded about the device.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import msgspec

WORK_LAUNCHES = (
    *("LaunchKernel", "LaunchCooperativeKernel", "Memcpy", "Memset"),
    *("EnqueueKernelLaunch", "USMFill"),
)
"""Parts of the names of calls that put one piece of work on a device: CUDA and HIP; Intel's Unified
Runtime (https://oneapi-src.github.io/unified-runtime/core/api.html)."""
COPY_LAUNCH, SET_LAUNCH = "Memcpy", "Memset"
"""Those of `WORK_LAUNCHES` that put a copy or a set there; all others launch kernels."""
CAPTURE_BEGIN, CAPTURE_END = "StreamBeginCapture", "StreamEndCapture"
"""Between them, on the same thread, launches are captured into a graph and put no work on a
device."""
GRAPH_LAUNCH = "GraphLaunch"
"""Part of the names of calls that put the work of a whole graph on a device."""
WAIT_CALLS = ("synchronize", "urEventWait", "urQueueFinish")
"""Parts of the names of calls in which the host waits for a device, in any case."""

DEVICE_BACKENDS = "nccl|rccl|xccl|hccl|mccl|cncl|eccl|bkcl|flagcx"
"""Backends of torch.distributed that send from devices only. The oneCCL of CPUs, `ccl`, is none."""
PRIVATE_BACKEND = "PrivateUse1 backend"
"""Devices of any maker without an entry, which PyTorch calls so."""
LaneRole = Literal["work", "collectives", "parts", "calls", "operators", "ranges", "summary"]
"""Meaning of the events of a lane: work of a device; its collectives, and parts of these; calls,
operators and ranges of the host; figures that the profiler derived from the others."""


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """Tracks whose events have one meaning, told by the names of process and thread."""

    process: str
    """Pattern of the whole name of the process."""
    role: LaneRole
    thread: str = ".*"
    """Pattern of the whole name of the thread."""
    nests: bool = False
    """True for work that may run during other work of the lane."""
    threads_are_devices: bool = False

    def includes(self, process: str, thread: str) -> bool:
        """Return True for a track of these names."""
        pattern = rf"(?:{self.process})\0(?:{self.thread})"
        return re.fullmatch(pattern, f"{process}\0{thread}", re.DOTALL) is not None


class Accelerator(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of one maker in traces."""

    name: str
    runtime_categories: tuple[str, ...] = ()
    """Categories of calls of the runtime, in lower case."""
    driver_categories: tuple[str, ...] = ()
    label: str = r"(?!)"
    """Pattern of the first part of a category or of the label of a process, as in `hpu_op`."""
    calls: str = r"(?!)"
    """Pattern of the start of the names of calls on the host."""
    operators: str = ""
    """Pattern of the start of names of operators that only run there, of `re` and DuckDB."""
    backends: str = r"(?!)"
    """Pattern of the start of names of its devices, and of backends that send from them."""
    categories: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Kind of the events of its own categories, by category in lower case; see `event_kinds`."""
    arguments: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Argument of Kineto by that of the events of these categories."""
    streams: str = r"(?!)"
    """Pattern of the whole name of threads of these categories: groups `device` and `stream`."""
    lanes: tuple[Lane, ...] = ()
    """The first one that includes a track tells its meaning."""
    mark: str = ""
    """Pattern of the whole name of a process without which the lanes have no meaning, because
    others may have their names."""
    copies: str = r"(?!)"
    """Pattern of the start of the names of copies in lanes of work."""
    sets: str = r"(?!)"
    waits: str = r"(?!)"
    """Pattern of the whole name of tasks in lanes of work that only order others."""
    launch_arrows: str = ""
    """Category of the arrows from a call in lanes of calls to its work."""
    operator_arrows: str = ""
    """Category of the arrows from the start of an operator to its work."""
    activity: str = "ProfilerActivity.PrivateUse1"
    """Activity of torch.profiler that records the devices."""
    module: str = "torch.accelerator"
    """Module of PyTorch for the devices."""
    allocator_variable: str = "PYTORCH_ALLOC_CONF"
    """Environment variable of the allocator of PyTorch."""
    has_cuda: bool = False
    """True where PyTorch calls the devices CUDA."""
    recording: str = ""
    """How the work of the devices is recorded, where torch.profiler takes no activity for it."""

    def adapt(self, advice: str) -> str:
        """Return advice for CUDA in the words of this maker."""
        if self.has_cuda:
            return advice
        if self.recording:
            advice = re.sub(
                "torch.profiler stores them with CUDA activities.*", self.recording, advice
            )
        for words, adapted in (
            ("; with fixed shapes also CUDA graphs (mode='reduce-overhead')", ""),
            ("torch.cuda.", f"{self.module}."),
            ("PYTORCH_CUDA_ALLOC_CONF", self.allocator_variable),
            ("with CUDA activities (ProfilerActivity.CUDA)", f"with {self.activity}"),
            ("CPU and CUDA activities", "CPU activities and those of the device"),
            ("with a GPU", f"with the devices ({self.name})"),
        ):
            advice = advice.replace(words, adapted)
        return advice


ACCELERATORS = (
    # https://github.com/pytorch/kineto/blob/main/libkineto/include/ActivityType.h
    Accelerator(
        name="CUDA",
        runtime_categories=("cuda_runtime", "runtime"),
        driver_categories=("cuda_driver",),
        calls="cu[A-Z]|cuda",
        operators="aten::_?cudnn_",
        backends="nccl|nvidia|tesla",
        # `EventList.export_chrome_trace` names no categories; devices are threads, and the work of
        # an operator contains that of the operators in it
        # (https://github.com/pytorch/pytorch/blob/v1.8.0/torch/autograd/profiler.py).
        lanes=(
            Lane(process="CPU functions", role="operators"),
            Lane(process="CUDA functions", role="work", nests=True, threads_are_devices=True),
        ),
        copies="Memcpy",
        sets="Memset",
        operator_arrows="cpu_to_cuda",
        has_cuda=True,
    ),
    Accelerator(
        name="HIP",
        runtime_categories=("hip_runtime",),
        calls="hip[A-Z]|hsa_|roc",
        operators="aten::miopen_",
        backends="rccl|amd",
        # rocprofv3, after `traceconv json`
        # (https://github.com/ROCm/rocprofiler-sdk/blob/amd-mainline/source/lib/output/generatePerfetto.cpp)
        categories={
            "kernel_dispatch": "kernel",
            "memory_copy": "memcpy",
            "marker_api": "annotation",
            **dict.fromkeys(
                ("hip_api", "hip_runtime_api", "hip_compiler_api", "hsa_api"), "runtime_call"
            ),
        },
        arguments={"debug.corr_id": "correlation"},
        streams=r"(COMPUTE|COPY)\b.*?AGENT \[(?P<device>\d+)\]( \w+ \[(?P<stream>\d+)\])?.*"
        r"|STREAM \[(?P<queue>\d+)\].*",
        # rocprof, whose processes have these names after their position
        # (https://github.com/ROCm/rocprofiler/blob/amd-master/bin/tblextr.py)
        lanes=(
            Lane(process=r"(\d+ )?(GPU\d+|COPY)", role="work"),
            Lane(process=r"(\d+ )?CPU H(IP|SA) API", role="calls"),
            Lane(process=r"(\d+ )?Markers and Ranges", role="ranges"),
        ),
        mark=r"(\d+ )?(CPU H(IP|SA) API|COPY)",
        copies="Copy|Memcpy|hip_?[Mm]emcpy|hcMemcpy|hsa_\\w*copy",
        sets="FillBuffer|Memset",
        launch_arrows="DataFlow",
        has_cuda=True,
    ),
    # https://github.com/pytorch/kineto/tree/main/libkineto/src/plugin/xpupti
    Accelerator(
        name="Intel XPU",
        runtime_categories=("xpu_runtime",),
        driver_categories=("xpu_driver",),
        label="xpu",
        calls="ur[A-Z]|ze[A-Z]",
        operators="xpu::",
        backends="xccl|intel",
        activity="ProfilerActivity.XPU",
        module="torch.xpu",
    ),
    # https://github.com/pytorch/kineto/blob/main/libkineto/include/ActivityType.h: `hpu_op` is
    # declared as a call of the host; traces of Gaudi have it on devices, too, so its launch decides
    # (https://docs.habana.ai/en/latest/Profiling/Profiling_with_PyTorch.html).
    Accelerator(
        name="Habana HPU",
        label="hpu",
        operators="hpu::",
        activity="ProfilerActivity.HPU",
        module="torch.hpu",
    ),
    # https://gitee.com/ascend/mstt/blob/master/profiler/msprof_analyze/compare_tools/compare_backend/profiling_parser/npu_profiling_parser.py
    # https://www.hiascend.com/document/detail/en/mindstudio/700/TITools/Profiling/atlasprofiling_16_0066.html
    # Names of tasks: https://gitcode.com/Ascend/msprof/blob/master/analysis/csrc/domain/services/modeling/step_trace
    Accelerator(
        name="Ascend NPU",
        label="npu|ascend",
        calls="AscendCL@|Runtime@|Node@|acl",
        operators="npu::|torch_npu::|aten::_?npu_",
        lanes=(
            Lane(process="Ascend Hardware", role="work"),
            Lane(process="HCCL|Communication", thread=".*Communication", role="collectives"),
            Lane(process="HCCL|Communication", role="parts"),
            Lane(process="Overlap Analysis", role="summary"),
            Lane(process="CANN", role="calls"),
        ),
        mark="Ascend Hardware",
        copies="MEMCPY|SDMA|PCIE_DMA|Memcpy",
        sets="MEMSET",
        waits=r"(EVENT|NOTIFY|CAPTURE|MEM|STREAM)[ _](RECORD|WAIT|RESET)(_VALUE)?(_SQE)?"
        r"|(PLACE_HOLDER|WRITE_VALUE|CONDITION|END)(_SQE)?|PROFILING_(EN|DIS)ABLE\w*|MODEL_\w+"
        r"|(Event|Notify)[ _](Record|Wait)",
        launch_arrows="HostToDevice",
        operator_arrows="async_npu",
        activity="torch_npu.profiler.ProfilerActivity.NPU",
        module="torch.npu",
        allocator_variable="PYTORCH_NPU_ALLOC_CONF",
        recording="torch_npu.profiler.profile stores them with "
        "torch_npu.profiler.ProfilerActivity.NPU",
    ),
    # https://github.com/pytorch/kineto/blob/main/libkineto/include/ActivityType.h: the arguments of
    # `mtia_ccp_events` are not public.
    Accelerator(
        name="Meta MTIA",
        runtime_categories=("mtia_runtime",),
        label="mtia",
        calls="mtia",
        operators="mtia::",
        activity="ProfilerActivity.MTIA",
        module="torch.mtia",
    ),
    Accelerator(name="Glow", runtime_categories=("glow_runtime",), label="glow"),
    # PyTorch writes no events of Metal; its signposts are read by Instruments
    # (https://docs.pytorch.org/docs/stable/generated/torch.mps.profiler.profile.html).
    Accelerator(
        name="Apple MPS",
        label="mps",
        operators=r"mps::|aten::\w*mps(_|$)",
        module="torch.mps",
        recording="torch.profiler does not record it, and torch.mps.profiler.profile() marks it "
        "for Instruments",
    ),
    # https://github.com/pytorch/pytorch/blob/main/torch/csrc/profiler/kineto_shim.cpp
    Accelerator(
        name=PRIVATE_BACKEND,
        runtime_categories=("privateuse1_runtime",),
        driver_categories=("privateuse1_driver",),
        label="privateuse1",
    ),
    # Its profiles are NTFF files and a viewer's database, no events of this format
    # (https://awsdocs-neuron.readthedocs-hosted.com/en/latest/tools/neuron-explorer/how-to-profile-workload.html).
    Accelerator(
        name="AWS Neuron", label="neuron|nrt", calls="nrt_", operators="(torch_)?neuronx?::"
    ),
    # https://github.com/openxla/xla/blob/main/xla/tsl/profiler/utils/xplane_schema.cc
    Accelerator(
        name="XLA",
        label="tpu|xla",
        operators="(torch_)?xla::",
        lanes=(
            Lane(process=r"/device:(GPU|TPU):\d+.*", thread="Stream #.*", role="work"),
            Lane(process=r"/device:(GPU|TPU):\d+.*", thread="XLA Ops", role="work", nests=True),
            Lane(process=r"/device:(GPU|TPU):\d+( .*)?", role="summary"),
        ),
        copies="Memcpy|MemcpyH2D|MemcpyD2H|MemcpyD2D",
        sets="Memset",
        activity="jax.profiler",
        module="jax",
        recording="torch.profiler does not record it, and torch_xla.debug.profiler does",
    ),
    *(
        Accelerator(name=name, operators=f"(torch_)?{namespace}::")
        for name, namespace in (
            ("Cambricon MLU", "mlu"), ("Moore Threads MUSA", "musa"), ("Enflame GCU", "gcu"),
            ("Graphcore IPU", "(ipu|poptorch)"),
        )
    ),
)  # fmt: skip
"""All makers; CUDA's spellings come first, which an export writes."""
_UNKNOWN = Accelerator(
    name="", recording="torch.profiler stores them with the activity of the devices, if it has one"
)
"""Devices of a maker that nothing tells."""
# https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/native_functions.yaml
_ANY_DEVICE = (
    r"aten::\w*_overrideable"
    r"|aten::_scaled_dot_product_(efficient|cudnn|flash)_attention(_backward)?$"
)
"""Operators that no CPU runs, and devices of several makers do."""
DEVICE_NAMES = (
    rf"(?i)^(({DEVICE_BACKENDS}):|{_ANY_DEVICE}|"
    rf"{'|'.join(entry.operators for entry in ACCELERATORS if entry.operators)})"
)
"""Pattern of ranges and operators that only run where the tensors are on a device."""
NO_WORK = frozenset(
    {
        "cuda_sync", "cuda_event", "cuda_profiler_range", "xpu_sync", "xpu_scope_profiler",
        "mtia_insight", "mtia_counters", "overhead", "trace", "enqueue",
        "dequeue", "external_correlation",
    }
)  # fmt: skip
"""Categories, in lower case, of events that are no work of a device."""
_DEVICES = "gpu|npu|hpu|xpu|tpu|ipu|mps|mlu|gcu|dcu|mtia|musa|neuron|device|accelerator|privateuse1"
_WORK_CATEGORY = re.compile(rf"\w*kernels?|({_DEVICES})_\w+")
_DEVICE_LABEL = re.compile(rf"({_DEVICES})[ :]*\d*|(/job:\S*)?/device:(?!cpu).*", re.IGNORECASE)
_HOST_CATEGORY = re.compile(r"\w*(runtime|driver|sync|event|counters|annotation)")


def resembles_work(category: str, process: str, label: str) -> bool:
    """Return True for an event that is perhaps work of a device, by its category and process.

    >>> resembles_work("hpu_op", "", ""), resembles_work("", "python", "NPU 3")
    (True, True)
    >>> resembles_work("cuda_sync", "", "GPU 0"), resembles_work("v8", "GPU Process", "")
    (False, False)
    """
    name = category.lower()
    if name in NO_WORK or _HOST_CATEGORY.fullmatch(name):
        return False
    return bool(
        _WORK_CATEGORY.fullmatch(name)
        or _DEVICE_LABEL.fullmatch(label)
        or _DEVICE_LABEL.fullmatch(process)
    )


def find_lane(
    process: str, thread: str, processes: Collection[str]
) -> tuple[Accelerator, Lane] | None:
    """Return the lane of a track, and its maker; None for a track of no known meaning.

    Args:
        process: name of the process.
        thread: name of the thread.
        processes: names of all processes of the trace.
    """
    for accelerator in ACCELERATORS:
        mark = re.compile(accelerator.mark)
        if accelerator.mark and not any(map(mark.fullmatch, processes)):
            continue
        for lane in accelerator.lanes:
            if lane.includes(process, thread):
                return accelerator, lane
    return None


def accelerator_of_category(category: str) -> Accelerator | None:
    """Return the maker whose profiler writes a category of its own.

    >>> accelerator_of_category("kernel_dispatch").name
    'HIP'
    """
    name = category.lower()
    return next((entry for entry in ACCELERATORS if name in entry.categories), None)


def accelerator_labelled(text: str) -> Accelerator | None:
    """Return the maker that a category, or the label of a process, names.

    >>> accelerator_labelled("npu_kernel").name
    'Ascend NPU'
    """
    for accelerator in ACCELERATORS:
        if re.match(rf"({accelerator.label})(?![a-z])", text, re.IGNORECASE):
            return accelerator
    return None


def accelerator_named(name: str) -> Accelerator:
    """Return the maker of a name; a maker without an entry is told by its name only."""
    entries = (accelerator for accelerator in ACCELERATORS if accelerator.name == name)
    return next(entries, Accelerator(name=name))


def accelerator_called(names: Iterable[str]) -> Accelerator | None:
    """Return the maker whose calls are among some names; None if there are none.

    >>> accelerator_called(["urEnqueueKernelLaunch"]).name
    'Intel XPU'
    """
    texts = list(names)
    for accelerator in ACCELERATORS:
        pattern = re.compile(accelerator.calls)
        if any(map(pattern.match, texts)):
            return accelerator
    return None


def accelerator_signed(sign: str) -> Accelerator:
    """Return the maker that a sign of devices tells: an operator, a backend, or their name.

    >>> accelerator_signed("npu::npu_format_cast").name, accelerator_signed("backend xccl").name
    ('Ascend NPU', 'Intel XPU')
    """
    for accelerator in ACCELERATORS:
        pattern = rf"(backend )?({accelerator.backends})|{accelerator.operators or '(?!)'}"
        if re.match(pattern, sign, re.IGNORECASE):
            return accelerator
    return _UNKNOWN


def runtime_categories() -> tuple[str, ...]:
    """Return the categories of calls of runtimes."""
    return tuple(text for entry in ACCELERATORS for text in entry.runtime_categories)


def driver_categories() -> tuple[str, ...]:
    """Return the categories of calls of drivers."""
    return tuple(text for entry in ACCELERATORS for text in entry.driver_categories)
