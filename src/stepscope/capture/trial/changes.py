"""Table of the changes that can be made in a job without editing its script.

A change is made inside the job, right after `import torch`. Only `make_change` imports torch: the
command line reads the table too.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.quantities import count_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from stepscope.capture.trial.measurement import Measurement

    Results = Literal["same", "random_numbers", "rounding", "different"]
    """Effect on the results: none, other draws of random numbers, other rounding, or a different
    computation."""
else:
    Results = str


@dataclass(frozen=True)
class InjectableChange:
    """A change that can be made without editing the script."""

    name: str
    title: str
    """The change in words, `{}` for the value and its noun."""
    results: Results
    line: str
    """Line of the script that makes the change, `{}` for the value."""
    scope: str
    """Place in which the change takes effect, for the message that it did not."""
    nouns: tuple[str, str] | None = None
    """Singular and plural of the noun after the value; None for none."""
    values: tuple[str, ...] = ()
    """Accepted values; empty for whole numbers."""
    min_value: int = 0
    """Smallest accepted number."""

    def check(self, text: str) -> str | None:
        """Return the value in its usual form; None if it is not accepted."""
        if self.values:
            return next((value for value in self.values if value.lower() == text.lower()), None)
        return str(int(text)) if text.isdecimal() and int(text) >= self.min_value else None

    @property
    def accepted(self) -> str:
        """The accepted values in words."""
        return ", ".join(self.values) if self.values else f"a number from {self.min_value}"

    def describe(self, value: str) -> str:
        """Describe the change with a value."""
        if self.nouns is not None:
            value = count_of(int(value), *self.nouns)
        return self.title.format(value)

    def write_line(self, value: str) -> str:
        """Return the line of the script."""
        return self.line.format(value)


_SWITCH = ("True", "False")
_LOADERS = "no DataLoader with worker processes was created"

CHANGES: dict[str, InjectableChange] = {
    change.name: change
    for change in (
        InjectableChange(
            name="num_workers",
            title="{}",
            nouns=("DataLoader worker", "DataLoader workers"),
            results="random_numbers",
            line="DataLoader(..., num_workers={})",
            scope="no torch DataLoader was created",
        ),
        InjectableChange(
            name="prefetch_factor",
            title="prefetch_factor={}",
            min_value=1,
            results="same",
            line="DataLoader(..., prefetch_factor={})",
            scope=_LOADERS,
        ),
        InjectableChange(
            name="persistent_workers",
            title="persistent_workers={}",
            values=_SWITCH,
            results="random_numbers",
            line="DataLoader(..., persistent_workers={})",
            scope=_LOADERS,
        ),
        InjectableChange(
            name="pin_memory",
            title="pin_memory={}",
            values=_SWITCH,
            results="same",
            line="DataLoader(..., pin_memory={})",
            scope="no torch DataLoader was created",
        ),
        InjectableChange(
            name="intra_op_threads",
            title="{}",
            nouns=("intra-op thread", "intra-op threads"),
            min_value=1,
            results="rounding",
            line="torch.set_num_threads({})",
            scope="torch kept its number of threads",
        ),
        InjectableChange(
            name="anomaly_detection",
            title="anomaly detection off",
            values=("off",),
            results="same",
            line="remove torch.autograd.set_detect_anomaly and detect_anomaly",
            scope="the job did not turn anomaly detection on",
        ),
        InjectableChange(
            name="debug_variables",
            title="debug variables of the environment unset",
            values=("off",),
            results="same",
            line="unset CUDA_LAUNCH_BLOCKING, TORCH_DISTRIBUTED_DEBUG and the like",
            scope="no debug variable is set",
        ),
        InjectableChange(
            name="batch_size",
            title="batches of {}",
            nouns=("sample", "samples"),
            min_value=1,
            results="different",
            line="DataLoader(..., batch_size={})",
            scope="no DataLoader makes batches of the size of the training batches",
        ),
        InjectableChange(
            name="thread_prefetch",
            title="{} ahead by a thread",
            nouns=("batch", "batches"),
            min_value=1,
            results="random_numbers",
            line="iterate the DataLoader in a thread that puts batches into queue.Queue({})",
            scope="no torch DataLoader was iterated",
        ),
        InjectableChange(
            name="cached_samples",
            title="samples cached in {}",
            values=("memory",),
            results="different",
            line="keep the results of __getitem__ by index in {}; augment them afterwards",
            scope="the training data are not those of a map-style dataset in this process or in "
            "forked workers",
        ),
        InjectableChange(
            name="matmul_precision",
            title="float32 matrix products with {} precision",
            values=("highest", "high", "medium"),
            results="different",
            line='torch.set_float32_matmul_precision("{}")',
            scope="torch kept its precision",
        ),
        InjectableChange(
            name="cudnn_benchmark",
            title="cudnn.benchmark={}",
            values=_SWITCH,
            results="rounding",
            line="torch.backends.cudnn.benchmark = {}",
            scope="cuDNN is not in use",
        ),
        InjectableChange(
            name="channels_last",
            title="model and inputs with channels last",
            values=("True",),
            results="random_numbers",  # dropout draws in the order of memory
            line="model.to(memory_format=torch.channels_last), and the same for its inputs",
            scope="no model with 4-D parameters was called",
        ),
        InjectableChange(
            name="compile",
            title="model compiled (mode {})",
            values=("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
            results="rounding",
            line='model = torch.compile(model, mode="{}")',
            scope="no model was called for training in the first step",
        ),
        InjectableChange(
            name="optimizer",
            title="{} kernels of the optimizer",
            values=("fused", "foreach"),
            results="rounding",
            line="{}=True where the optimizer is created",
            scope="no optimizer of torch.optim with this option was created",
        ),
    )
}
"""Changes by name."""


_ARGUMENTS = {
    "num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "batch_size",
}  # fmt: skip
"""Changes of an argument of the DataLoader."""


def make_change(name: str, value: str, measurement: Measurement) -> None:
    """Make a change in this process, which has imported torch."""
    from stepscope.capture.trial import loaders

    if name in _ARGUMENTS:
        return loaders.set_argument(name, value, measurement)
    make: dict[str, Callable[[], None]] = {
        "intra_op_threads": lambda: loaders.set_threads(int(value), measurement),
        "anomaly_detection": lambda: loaders.turn_off_anomaly_detection(measurement),
        "debug_variables": lambda: loaders.unset_debug_variables(measurement),
        "matmul_precision": lambda: loaders.set_matmul_precision(value, measurement),
        "cudnn_benchmark": lambda: loaders.set_cudnn_benchmark(measurement, is_on=value == "True"),
        "channels_last": lambda: loaders.use_channels_last(measurement),
        "compile": lambda: loaders.compile_models(value, measurement),
        "optimizer": lambda: loaders.set_optimizer_kernels(value, measurement),
        "thread_prefetch": lambda: loaders.prefetch_in_thread(int(value), measurement),
        "cached_samples": lambda: loaders.cache_samples(measurement),
    }
    return make[name]()
