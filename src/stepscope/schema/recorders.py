"""Frameworks whose profilers write traces: the meaning of their ranges, and how to record more.

The import determines the recorder of a trace once, from names in the file, and stores its name as
`recorder` in the metadata of the trace; a trace without one is of PyTorch's profiler. To add a
framework, add its entry to `RECORDERS`, with a link to a public source of the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from stepscope.schema.facts import DEBUGGER

Subject = Literal[
    "devices", "launches", "operators", "steps", "shapes", "stacks", "memory", "modules", "counters"
]
"""Data that a trace may lack."""

STEP_PREFIX = "ProfilerStep#"
"""Start of the name of a step, before its number, in traces as they are stored."""
EVALUATION_STEPS = ("test", "predict", "eval")
"""Names of numbered steps of XLA's profiler that are no training."""
TF_DATA_FETCH = "IteratorGetNextOp::DoCompute"
"""Range in which TensorFlow waits for a batch of tf.data."""
_NOWHERE = r"(?!)"


class Recorder(msgspec.Struct, frozen=True, kw_only=True):
    """Profiler of a framework."""

    name: str
    is_torch: bool = False
    """True if ranges are named as in PyTorch, and advice for PyTorch applies."""
    processes: str = _NOWHERE
    """Pattern of the start of the label of a process, as the profiler writes it."""
    signs: str = ""
    """Pattern of the start of names that only this framework writes; empty for any name."""
    version_key: str = ""
    """Key of the metadata that states the version of the framework."""
    header_key: str = ""
    """Key of the metadata that only this framework writes."""
    categories: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Kind of the events of its own categories, by category in lower case; see `event_kinds`."""
    name_end: str = ""
    """Pattern of the end of names that is none of the name, such as the duration."""
    step_name: str = ""
    """Start of the names of its steps, if it is not that of PyTorch."""
    fetch_category: str = ""
    """Category, in lower case, whose events are fetches of a batch, whatever their name."""
    fetch_name: str = ""
    """Start of the names of its fetches, where the framework names them."""
    numbers_devices: bool = False
    """True if the number of the process of device work is that of the device."""
    step_calls: str = _NOWHERE
    """Pattern of the whole name of ranges that may be steps where nothing marks them: calls of
    functions, each with one computation. Its group `name` is that of the function."""
    parts: str = _NOWHERE
    """Pattern of the start of names of ranges of the framework, which are parts of steps."""
    marks_training: bool = False
    """True if its marks of steps are those of training, or are named otherwise."""
    fuller_file: str = ""
    """File in which the profiler stores more of a recording than in JSON."""
    fetches: str
    """Origin of the batches that its fetches wait for, as the rest of a phrase."""
    recording: Mapping[Subject, str] = msgspec.field(default_factory=dict)
    """How it stores what a trace may lack."""
    otherwise: str = ""
    """The same for all other subjects."""
    recommendations: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Recommendations of rules, by rule, instead of those for PyTorch."""

    def recommend(self, rule: str, recommendation: str) -> str:
        """Return the recommendation of a rule in the terms of the framework."""
        return self.recommendations.get(rule, recommendation)

    def advise(self, subject: Subject) -> str:
        """Return how the profiler stores what a trace lacks."""
        return self.recording.get(subject, self.otherwise)

    def is_part(self, name: str) -> bool:
        """Return True for a range of the framework itself."""
        return re.match(self.parts, name) is not None

    def is_work(self, name: str) -> bool:
        """Return True for a range in which the framework works for the script."""
        return (
            self.is_part(name)
            or self.name_step_call(name) is not None
            or (self.signs != "" and re.match(self.signs, name) is not None)
        )

    def name_step_call(self, name: str) -> str | None:
        """Return the function that a range calls, if the call may be a step."""
        match = re.fullmatch(self.step_calls, name)
        return match["name"] if match is not None else None


PYTORCH = Recorder(
    name="PyTorch",
    is_torch=True,
    fetches="of a torch DataLoader",
    recording={
        "devices": "torch.profiler stores them with CUDA activities (ProfilerActivity.CUDA), on a "
        "machine with a GPU",
        "launches": "torch.profiler stores them with CPU and CUDA activities together",
        "operators": "torch.profiler stores them with CPU activities (ProfilerActivity.CPU)",
        "steps": "torch.profiler stores them where the script calls the profiler's step()",
        "shapes": "torch.profiler stores them with record_shapes=True",
        "stacks": "torch.profiler stores them with with_stack=True",
        "memory": "torch.profiler stores them with profile_memory=True",
        "modules": "torch.profiler stores them with with_stack=True and with_modules=True",
        "counters": "torch.profiler stores them with "
        "experimental_config=torch._C._profiler._ExperimentalConfig(profiler_metrics=[…], "
        "profiler_measure_per_kernel=True), CUDA before 12.6",
    },
)
_RECOMMENDATIONS = {
    "DataloaderBottleneck": "Make batches in parallel, and ahead: num_parallel_calls and prefetch "
    "of tf.data."
}
# https://github.com/openxla/xla/blob/main/xla/tsl/profiler/utils/xplane_schema.cc
_XPLANE = "file *.xplane.pb"
_XLA_PROCESSES = r"/host:|/device:(CPU|GPU|TPU):|Task Environment"
NSIGHT_SYSTEMS = Recorder(
    name="Nsight Systems",
    is_torch=True,
    fetches="of a torch DataLoader",
    recording={
        "devices": "nsys profile stores them with --trace=cuda",
        "launches": "nsys profile stores them with --trace=cuda",
        "operators": "nsys profile stores them with --trace=cuda,nvtx where the script runs in "
        "torch.autograd.profiler.emit_nvtx()",
        "steps": "nsys profile stores them with --trace=cuda,nvtx where the script marks them with "
        "torch.cuda.nvtx.range, whose name the option --step-range of the import takes",
        "shapes": "nsys profile stores them with --trace=cuda,nvtx where the script runs in "
        "torch.autograd.profiler.emit_nvtx(record_shapes=True)",
    },
    otherwise="Nsight Systems stores none",
)
RECORDERS = (
    PYTORCH,
    NSIGHT_SYSTEMS,
    Recorder(
        name=DEBUGGER,
        is_torch=True,
        fetches="of a torch DataLoader",
        otherwise="SageMaker Debugger wrote none",
    ),
    # https://docs.jax.dev/en/latest/profiling.html; tf.data may feed JAX, so that its names appear
    # in traces of JAX, and not the other way round.
    Recorder(
        name="JAX",
        processes=_XLA_PROCESSES,
        signs=r"P(jit|map)Function\(|\$pjit\.py:"
        r"|\{.*\"(hlo_module\":\"(jit|pmap)_|tf_op\":\"p?jit\()",
        version_key="jax_version",
        parts=r"PjRt|CommonPjRt|Pjrt|PythonRefManager|ThunkExecutor|TfrtCpu|ThreadpoolListener",
        marks_training=True,
        fuller_file=_XPLANE,
        fetches="of tf.data",
        recording={
            "devices": "jax.profiler stores it on a machine with a GPU or TPU",
            "steps": "jax.profiler stores them where the script calls the step in "
            "jax.profiler.StepTraceAnnotation('train', step_num=i)",
            "stacks": "jax.profiler stores them with ProfileOptions.python_tracer_level = 1",
            "operators": "jax.profiler stores them with ProfileOptions.host_tracer_level = 2",
            "launches": "jax.profiler stores them with ProfileOptions.host_tracer_level = 2",
            "memory": "jax.profiler.save_device_memory_profile writes it, to a file of its own",
        },
        otherwise="jax.profiler stores none",
        recommendations={
            **_RECOMMENDATIONS,
            "FrameworkOverhead": "Call one function under jax.jit per step, and do not read values "
            "back from the device in every step.",
        },
    ),
    # https://www.tensorflow.org/guide/profiler
    Recorder(
        name="TensorFlow",
        processes=_XLA_PROCESSES + r"|/job:",
        signs=r"TFE_Py_|Eager(Kernel|Local)?Execute|ExecutorState::|FunctionRun$|SessionRun$"
        r"|IteratorGetNext|KernelAndDeviceFunc::|tf_Compute\b",
        step_calls=r"EagerLocalExecute: __(inference|forward)_(?P<name>.+)_\d+",
        parts=r"Eager|TFE_|KernelAndDevice|FunctionRun|SessionRun|Executor(State|Done)|Iterator::"
        r"|MakeIterator|Prefetch|IteratorGetNext|convert_to_tensor|tf\.constant|ValidateInput"
        r"|Threadpool|tf\.function-graph|InstantiatedCapturedFunction",
        marks_training=True,
        fuller_file=_XPLANE,
        fetches="of tf.data",
        recording={
            "devices": "tf.profiler stores it on a machine with a GPU or TPU",
            "steps": "tf.profiler stores them where the script fetches a batch and trains on it in "
            "tf.profiler.experimental.Trace('train', step_num=i, _r=1)",
            "stacks": "tf.profiler stores them with "
            "tf.profiler.experimental.ProfilerOptions(python_tracer_level=1)",
            "operators": "tf.profiler stores them with "
            "tf.profiler.experimental.ProfilerOptions(host_tracer_level=2)",
            "launches": "tf.profiler stores them with "
            "tf.profiler.experimental.ProfilerOptions(host_tracer_level=2)",
        },
        otherwise="tf.profiler stores none",
        recommendations={
            **_RECOMMENDATIONS,
            "FrameworkOverhead": "Call one tf.function per step, with jit_compile=True, and do not "
            "read values back from the device in every step.",
        },
    ),
    # https://github.com/PaddlePaddle/Paddle/blob/develop/paddle/fluid/platform/profiler/chrometracing_logger.cc
    Recorder(
        name="Paddle",
        header_key="span_indx",
        categories={
            "cudaruntime": "runtime_call",
            "operatorinner": "operator",
            **dict.fromkeys(
                (
                    "profilestep",
                    "dataloader",
                    "userdefined",
                    "forward",
                    "backward",
                    "optimization",
                    "communication",
                    "pythonop",
                    "pythonuserdefined",
                ),
                "annotation",
            ),
        },
        name_end=r"\[\d+\.\d+ ms\]",
        step_name="ProfileStep#",
        fetch_category="dataloader",
        fetch_name="_DataLoaderIter",
        numbers_devices=True,
        marks_training=True,
        fetches="of a paddle.io.DataLoader",
        recording={
            "devices": "paddle.profiler stores them with ProfilerTarget.GPU, on a machine with a "
            "GPU",
            "launches": "paddle.profiler stores them with ProfilerTarget.CPU and "
            "ProfilerTarget.GPU together",
            "operators": "paddle.profiler stores them with ProfilerTarget.CPU",
            "steps": "paddle.profiler stores them where the script calls the profiler's step()",
            "memory": "paddle.profiler stores them with profile_memory=True",
        },
        otherwise="paddle.profiler stores none",
        recommendations={
            "DataloaderBottleneck": "Make batches in parallel, and ahead: num_workers of "
            "paddle.io.DataLoader.",
            "FrameworkOverhead": "Compile the step with paddle.jit.to_static if it is not, and do "
            "not read values back from the device in every step.",
        },
    ),
    Recorder(
        name="XLA",
        processes=_XLA_PROCESSES,
        marks_training=True,
        fuller_file=_XPLANE,
        fetches="of tf.data",
        recording={
            "operators": f"the {_XPLANE} of the recording holds more of the host than its JSON"
        },
        otherwise="the profiler of XLA stored none",
        recommendations={
            **_RECOMMENDATIONS,
            "FrameworkOverhead": "Compile the whole step, and do not read values back from the "
            "device in every step.",
        },
    ),
)
"""All recorders; the first one whose names are in the file counts. The last of those with the same
processes has no names of its own."""


def find_recorder(
    labels: Iterable[str], names: Iterable[str], metadata: Mapping[str, Any]
) -> Recorder:
    """Find the recorder of a trace by the content of its file.

    Args:
        labels: labels of its processes.
        names: names of its events, and their arguments as JSON.
        metadata: metadata of the file; `recorder` in it counts, if there is such a one.
    """
    stated = recorder_stated(metadata)
    texts = list(labels)
    possible = [entry for entry in RECORDERS if _has_start(texts, entry.processes)]
    if stated is not None or not possible:
        return stated or PYTORCH
    events = list(names)
    signed = (
        entry
        for entry in possible
        if entry.version_key in metadata or not entry.signs or _has_start(events, entry.signs)
    )
    return next(signed, possible[-1])


def recorder_stated(metadata: Mapping[str, Any]) -> Recorder | None:
    """Return the recorder that the metadata of a file name, or have a key of."""
    return next(
        (
            entry
            for entry in RECORDERS
            if entry.name == metadata.get("recorder")
            or (entry.header_key and entry.header_key in metadata)
        ),
        None,
    )


def recorder_of(metadata: Mapping[str, Any]) -> Recorder:
    """Return the recorder of a trace by its metadata."""
    name = metadata.get("recorder")
    return next((entry for entry in RECORDERS if entry.name == name), PYTORCH)


def _has_start(texts: Iterable[str], pattern: str) -> bool:
    return any(map(re.compile(pattern).match, texts))
