"""Attributes of frameworks beyond the public interface of the oldest supported release.

Private attributes, and public ones of later releases, change without notice. One that is missing
costs the part of the recording that needs it, and the run says which; the adapters go on without
it. Adapters look such attributes up in the tables below.
"""

from __future__ import annotations

import sys
from typing import Any, ClassVar, NamedTuple

from stepscope.capture import session
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stepscope.capture.patching import WrapperFactory

_probe = Probe("what the release of a framework lacks")


class Internal(NamedTuple):
    """One attribute of a framework."""

    paths: tuple[str, ...]
    """Its names, those of the newest releases first; the first one that exists counts."""
    use: str
    """What it is used for."""
    loss: str
    """What is not recorded without it, as the beginning of a sentence; empty where it is replaced
    in another way, or where only newer releases do what it observes."""


class Internals:
    """Attributes of the imported release of a framework.

    Args:
        framework: its name in sentences.
        package: the package whose `__version__` the sentences quote.
        table: its attributes, by the name under which adapters look them up.
    """

    instances: ClassVar[list[Internals]] = []

    def __init__(self, framework: str, package: str, table: dict[str, Internal]) -> None:
        Internals.instances.append(self)
        self.table = table
        self._framework = framework
        self.package = package
        self._losses: dict[str, list[str]] = {}
        """Names of what this release lacks, by what is not recorded because of that."""
        self._told: set[tuple[int, str]] = set()
        """What the run says, by session."""

    def find(self, name: str) -> Any:
        """Return an attribute; None if this release lacks it, which the run says."""
        internal = self.table[name]
        value = next((value for path in internal.paths if (value := read(path)) is not None), None)
        if value is None:
            self._lose(internal.loss, internal)
        return value

    def find_all(self, *names: str, loss: str = "") -> tuple[Any, ...] | None:
        """Return several attributes that are of use only together; None if one is missing.

        Args:
            names: names in the table.
            loss: as `Internal.loss`, of all together.
        """
        values = tuple(map(self.find, names))
        missing = [self.table[name] for name, value in zip(names, values) if value is None]
        for internal in missing:
            self._lose(loss, internal)
        return None if missing else values

    def _lose(self, loss: str, internal: Internal) -> None:
        if loss:
            if not self._losses:
                progress.on_some_boundaries(_probe.protect(self.tell))
            paths = self._losses.setdefault(loss, [])
            paths += {internal.paths[0]}.difference(paths)

    def owner(self, name: str) -> tuple[Any, str] | None:
        """Return what holds an attribute, and its name there, to replace it; None without it."""
        if self.find(name) is None:
            return None
        path = next(path for path in self.table[name].paths if read(path) is not None)
        parent, _, attribute = path.rpartition(".")
        return read(parent), attribute

    def patch(self, name: str, make_wrapper: WrapperFactory) -> None:
        """Replace a function or method by `make_wrapper(original)`, if this release has it."""
        owner = self.owner(name)
        if owner is not None:
            patch(*owner, make_wrapper)

    def tell(self) -> None:
        """Note what is missing, once in each session."""
        for loss, sentence in self._sentences().items():
            if (session.generation, loss) not in self._told:
                self._told.add((session.generation, loss))
                _probe.note(sentence)

    def list_losses(self) -> list[str]:
        """Look up every attribute, and return what is not recorded, in a sentence each."""
        for name in self.table:
            self.find(name)
        return [*self._sentences().values()]

    def _sentences(self) -> dict[str, str]:
        root = self.package.partition(".")[0]
        version = getattr(sys.modules.get(root), "__version__", "of unknown version")
        return {
            loss: f"{loss}: {self._framework} {version} has no {' or '.join(paths)}."
            for loss, paths in self._losses.items()
        }


def read(path: str) -> Any:
    """Return an attribute of a module that is loaded, by its dotted name; None without one."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        value = sys.modules.get(".".join(parts[:count]))
        if value is not None:
            break
    else:
        return None
    for part in parts[count:]:
        try:
            value = getattr(value, part)
        except Exception:  # noqa: BLE001 - a module may compute its attributes
            return None
    return value


_BATCHES = "Waits for batches are not recorded"
_SNAPSHOTS = "Memory snapshots are not written"
_FETCHES = "Fetches of batches, samples and transforms are not recorded"

PYTORCH = Internals(
    "PyTorch",
    "torch",
    {
        "is_compiling": Internal(
            ("torch.compiler.is_compiling",),
            "leaves functions alone while torch.compile traces them",
            "",  # the compiler traces the originals of patched functions
        ),
        "compile_session": Internal(
            ("torch.compiler._compile_session_context",),
            "tells that is_compiling is true for all of a compilation",
            "",  # dispatch modes tell instead
        ),
        "skip_code": Internal(
            (
                "torch._C._dynamo.eval_frame.set_code_exec_strategy",
                "torch._C._dynamo.eval_frame.skip_code",
            ),
            "keeps torch.compile from compiling functions of stepscope",
            "",  # as above
        ),
        "no_functions": Internal(
            ("torch._C.DisableTorchFunction",),
            "reads tensors without the script's overrides of functions",
            "Models, and updates without an optimizer, are not described",
        ),
        "function_modes": Internal(
            ("torch._C._len_torch_function_stack",),
            "finds modes that would intercept the reading of a tensor",
            "Samples are not counted",
        ),
        "tracing_state": Internal(
            ("torch._C._get_tracing_state",),
            "leaves tensors alone while torch.jit traces",
            "Samples are not counted, and models are not described",
        ),
        "numel": Internal(
            ("torch._C.TensorBase.numel", "torch._C._TensorBase.numel"),
            "counts the elements of a batch",
            "Samples are not counted",
        ),
        "loss": Internal(
            ("torch.nn.modules.loss._Loss",),
            "tells losses from models",
            "Losses that are modules are recorded as forward passes",
        ),
        "run_backward": Internal(
            ("torch.autograd.graph._engine_run_backward",),
            "records backward passes",
            "",  # the engine is replaced instead
        ),
        "engine": Internal(
            ("torch.autograd.Variable._execution_engine",),
            "records backward passes where the function that calls the engine is missing",
            "Backward passes are not recorded",
        ),
        "step_pre_hook": Internal(
            ("torch.optim.optimizer.register_optimizer_step_pre_hook",),
            "records optimizer steps",
            "",  # the method `step` of each class is replaced instead
        ),
        "step_post_hook": Internal(
            ("torch.optim.optimizer.register_optimizer_step_post_hook",),
            "records optimizer steps",
            "",
        ),
        "grad_scaler": Internal(
            ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler"),
            "records steps that a GradScaler skips, its scale, and losses without it",
            "Steps that a GradScaler skips, and its scale, are not recorded",
        ),
        "loader_next": Internal(
            ("torch.utils.data.dataloader._BaseDataLoaderIter.__next__",),
            "records waits for batches",
            _BATCHES,
        ),
        "cuda_lazy_call": Internal(
            ("torch.cuda._lazy_call",),
            "starts the history of device memory once the job uses the device",
            _SNAPSHOTS,
        ),
        "record_memory_history": Internal(
            ("torch.cuda.memory._record_memory_history",),
            "keeps the history of device memory",
            _SNAPSHOTS,
        ),
        "memory_snapshot": Internal(
            ("torch.cuda.memory._snapshot",), "reads the history of device memory", _SNAPSHOTS
        ),
        "map_fetch": Internal(
            ("torch.utils.data._utils.fetch._MapDatasetFetcher.fetch",),
            "records fetches of batches",
            _FETCHES,
        ),
        "iterable_fetch": Internal(
            ("torch.utils.data._utils.fetch._IterableDatasetFetcher.fetch",),
            "records fetches of batches",
            _FETCHES,
        ),
        "pin_memory": Internal(
            ("torch.utils.data._utils.pin_memory.pin_memory",),
            "records copies into pinned memory",
            "Copies into pinned memory are not recorded",
        ),
        "profiler_enabled": Internal(
            ("torch._C._autograd._profiler_enabled",), "leaves the job's own profiler alone", ""
        ),
        "prepare_trace": Internal(
            ("torch.autograd.profiler.profile._prepare_trace",),
            "closes a window when the job starts a profiler",
            "",
        ),
        "enable_record_function": Internal(
            ("torch._C._autograd._enable_record_function",), "stops a window in a forked child", ""
        ),
        "kineto_step": Internal(
            ("torch._C._autograd._kineto_step",),
            "counts steps for windows that libkineto records",
            "",  # the framework's profiler records them instead
        ),
        "graph_task": Internal(
            ("torch._C._current_graph_task_id",),
            "tells activations of the forward pass from those that checkpointing computes again",
            "Activations, batches and the scale of a GradScaler are not recorded",
        ),
        "transform_level": Internal(
            ("torch._C._functorch.maybe_current_level",), "leaves torch.func alone", ""
        ),
        "dispatch_modes": Internal(
            ("torch._C._len_torch_dispatch_stack",), "leaves dispatch modes of the script alone", ""
        ),
        "dispatch_mode": Internal(
            ("torch.utils._python_dispatch.TorchDispatchMode",), "sees every operator", ""
        ),
        "current_dispatch_mode": Internal(
            ("torch.utils._python_dispatch._get_current_dispatch_mode",),
            "leaves dispatch modes of the script alone",
            "",
        ),
        "autograd_node": Internal(
            ("torch._C._current_autograd_node",), "names the node of a backward pass", ""
        ),
        "sequence_number": Internal(
            ("torch.autograd._get_sequence_nr",), "links forward and backward passes", ""
        ),
        "isend": Internal(
            ("torch.distributed.distributed_c10d.isend",),
            "records sends between two ranks",
            "",  # without torch.distributed there are none
        ),
        "irecv": Internal(
            ("torch.distributed.distributed_c10d.irecv",), "records receives from a rank", ""
        ),
        "save_distributed": Internal(
            ("torch.distributed.checkpoint.save", "torch.distributed.checkpoint.save_state_dict"),
            "records saves of distributed checkpoints",
            "",  # every release has one of the two
        ),
        "load_distributed": Internal(
            ("torch.distributed.checkpoint.load", "torch.distributed.checkpoint.load_state_dict"),
            "records loads of distributed checkpoints",
            "",  # as of the saves
        ),
    },
)
