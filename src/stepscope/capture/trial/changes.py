"""Table of the changes that can be made in a job without editing its script.

A change is made inside the job, right after `import torch`. The functions here import torch only
when they are called: the command line reads the table too.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectableChange:
    """A change that can be made without editing the script."""

    name: str
    title: str
    """The change in words, `{}` for the value and its noun."""
    nouns: tuple[str, str] | None = None
    """Singular and plural of the noun after the value; None for none."""
    values: tuple[str, ...] = ()
    """Accepted values; empty for whole numbers."""
    min_value: int = 0
    """Smallest accepted number."""
    results: Results
    line: str
    """Line of the script that makes the change, `{}` for the value."""
    scope: str
    """Place in which the change takes effect, for the message that it did not."""
    make: Callable[[str, Measurement], None]
    """Make the change in this process; torch is imported."""

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


def _set_loader_argument(name: str) -> Callable[[str, Measurement], None]:
    def make(value: str, measurement: Measurement) -> None:
        from stepscope.capture.trial.loaders import set_argument

        set_argument(name, value, measurement)

    return make


def _set_threads(value: str, measurement: Measurement) -> None:
    from stepscope.capture.trial.settings import set_threads

    set_threads(int(value), measurement)


def _turn_off_anomaly_detection(value: str, measurement: Measurement) -> None:
    from stepscope.capture.trial.settings import turn_off_anomaly_detection

    turn_off_anomaly_detection(measurement)


def _unset_debug_variables(value: str, measurement: Measurement) -> None:
    from stepscope.capture.trial.settings import unset_debug_variables

    unset_debug_variables(measurement)


def _set_matmul_precision(value: str, measurement: Measurement) -> None:
    from stepscope.capture.trial.settings import set_matmul_precision

    set_matmul_precision(value, measurement)


def _set_cudnn_benchmark(value: str, measurement: Measurement) -> None:
    from stepscope.capture.trial.settings import set_cudnn_benchmark

    set_cudnn_benchmark(measurement, is_on=value == "True")


def _use_channels_last(value: str, measurement: Measurement) -> None:
    from stepscope.capture.trial.models import use_channels_last

    use_channels_last(measurement)


def _compile_models(value: str, measurement: Measurement) -> None:
    from stepscope.capture.trial.models import compile_models

    compile_models(value, measurement)


def _set_optimizer_kernels(value: str, measurement: Measurement) -> None:
    from stepscope.capture.trial.models import set_optimizer_kernels

    set_optimizer_kernels(value, measurement)


def _prefetch_in_thread(value: str, measurement: Measurement) -> None:
    from stepscope.capture.trial.samples import prefetch_in_thread

    prefetch_in_thread(int(value), measurement)


def _cache_samples(value: str, measurement: Measurement) -> None:
    from stepscope.capture.trial.samples import cache_samples

    cache_samples(measurement)


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
            make=_set_loader_argument("num_workers"),
        ),
        InjectableChange(
            name="prefetch_factor",
            title="prefetch_factor={}",
            min_value=1,
            results="same",
            line="DataLoader(..., prefetch_factor={})",
            scope=_LOADERS,
            make=_set_loader_argument("prefetch_factor"),
        ),
        InjectableChange(
            name="persistent_workers",
            title="persistent_workers={}",
            values=_SWITCH,
            results="random_numbers",
            line="DataLoader(..., persistent_workers={})",
            scope=_LOADERS,
            make=_set_loader_argument("persistent_workers"),
        ),
        InjectableChange(
            name="pin_memory",
            title="pin_memory={}",
            values=_SWITCH,
            results="same",
            line="DataLoader(..., pin_memory={})",
            scope="no torch DataLoader was created",
            make=_set_loader_argument("pin_memory"),
        ),
        InjectableChange(
            name="intra_op_threads",
            title="{}",
            nouns=("intra-op thread", "intra-op threads"),
            min_value=1,
            results="rounding",
            line="torch.set_num_threads({})",
            scope="torch kept its number of threads",
            make=_set_threads,
        ),
        InjectableChange(
            name="anomaly_detection",
            title="anomaly detection off",
            values=("off",),
            results="same",
            line="remove torch.autograd.set_detect_anomaly and detect_anomaly",
            scope="the job did not turn anomaly detection on",
            make=_turn_off_anomaly_detection,
        ),
        InjectableChange(
            name="debug_variables",
            title="debug variables of the environment unset",
            values=("off",),
            results="same",
            line="unset CUDA_LAUNCH_BLOCKING, TORCH_DISTRIBUTED_DEBUG and the like",
            scope="no debug variable is set",
            make=_unset_debug_variables,
        ),
        InjectableChange(
            name="batch_size",
            title="batches of {}",
            nouns=("sample", "samples"),
            min_value=1,
            results="different",
            line="DataLoader(..., batch_size={})",
            scope="no DataLoader makes batches of the size of the training batches",
            make=_set_loader_argument("batch_size"),
        ),
        InjectableChange(
            name="thread_prefetch",
            title="{} ahead by a thread",
            nouns=("batch", "batches"),
            min_value=1,
            results="random_numbers",
            line="iterate the DataLoader in a thread that puts batches into queue.Queue({})",
            scope="no torch DataLoader was iterated",
            make=_prefetch_in_thread,
        ),
        InjectableChange(
            name="cached_samples",
            title="samples cached in {}",
            values=("memory",),
            results="different",
            line="keep the results of __getitem__ by index in {}; augment them afterwards",
            scope="the training data are not those of a map-style dataset in this process or in "
            "forked workers",
            make=_cache_samples,
        ),
        InjectableChange(
            name="matmul_precision",
            title="float32 matrix products with {} precision",
            values=("highest", "high", "medium"),
            results="different",
            line='torch.set_float32_matmul_precision("{}")',
            scope="torch kept its precision",
            make=_set_matmul_precision,
        ),
        InjectableChange(
            name="cudnn_benchmark",
            title="cudnn.benchmark={}",
            values=_SWITCH,
            results="rounding",
            line="torch.backends.cudnn.benchmark = {}",
            scope="cuDNN is not in use",
            make=_set_cudnn_benchmark,
        ),
        InjectableChange(
            name="channels_last",
            title="model and inputs with channels last",
            values=("True",),
            results="random_numbers",  # dropout draws in the order of memory
            line="model.to(memory_format=torch.channels_last), and the same for its inputs",
            scope="no model with 4-D parameters was called",
            make=_use_channels_last,
        ),
        InjectableChange(
            name="compile",
            title="model compiled (mode {})",
            values=("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
            results="rounding",
            line='model = torch.compile(model, mode="{}")',
            scope="no model was called for training in the first step",
            make=_compile_models,
        ),
        InjectableChange(
            name="optimizer",
            title="{} kernels of the optimizer",
            values=("fused", "foreach"),
            results="rounding",
            line="{}=True where the optimizer is created",
            scope="no optimizer of torch.optim with this option was created",
            make=_set_optimizer_kernels,
        ),
    )
}
"""Changes by name."""
