"""Labels, predictions and inputs that the script hands over with `stepscope.record`.

`arrays` counts classes and tokens of NumPy arrays and of sequences. Tensors of PyTorch are read in
`frameworks.pytorch.tensors.batches`. Of a batch only counts and means are recorded, on request:
collections `labels`, `predictions` and `inputs` of `--tensors`.
"""

from __future__ import annotations

import os
import sys
import threading

from stepscope.capture import session
from stepscope.capture.batches import arrays
from stepscope.capture.batches.arrays import ClassCounter, NoClassesError, count_tokens
from stepscope.capture.guard import Probe
from stepscope.capture.matrices import Matrix as Matrix, write_matrices
from stepscope.job_environment import read_ranks
from stepscope.spool import TENSORS_VARIABLE, Kind, TensorPlan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

COLLECTIONS = frozenset({"labels", "predictions", "inputs"})
_TORCH_BATCHES = "stepscope.capture.frameworks.pytorch.tensors.batches"
_PROGRESS = "stepscope.capture.frameworks.progress"
_RANKS = "stepscope.capture.frameworks.pytorch.settings"

_probe = Probe("labels, predictions and inputs of the script")
_time_probe = Probe("time of the recording of tensors")
_SPAN_NAME = "stepscope: record tensors"


class BatchRecorder:
    """Recorder of the batches that the script of one process hands over.

    Args:
        plan: what to record.
    """

    def __init__(self, plan: TensorPlan) -> None:
        self._plan = plan
        self._collections = COLLECTIONS.intersection(plan.collections)
        self._call_counts: dict[tuple[str, str], int] = {}
        self._counters: dict[str, ClassCounter] = {}
        self._notes: set[str] = set()
        self._failed: set[tuple[str, str]] = set()
        """What is no longer recorded, such as `labels`, with the name."""
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()

    def add(
        self, labels: Any, predictions: Any, inputs: Any, name: str | None, mode: str | None
    ) -> None:
        """Record a batch, if the plan says so; a batch of another thread meanwhile is not."""
        mode = mode or _find_mode()
        name = name or mode.lower()
        number = self._call_counts.get((name, mode), 0)
        self._call_counts[name, mode] = number + 1
        if not self._records(number, mode) or not self._lock.acquire(blocking=False):
            return
        span = _time_probe.start(Kind.ANNOTATION, _SPAN_NAME)
        try:
            step = _find_step(number)
            if inputs is not None and "inputs" in self._collections:
                self._try("inputs", name, self._add_inputs, inputs, step=step, mode=mode)
            if labels is not None and self._collections & {"labels", "predictions"}:
                if "predictions" not in self._collections:
                    predictions = None
                batch = labels, predictions
                self._try("labels", name, self._add_classes, *batch, step=step, mode=mode)
        finally:
            self._lock.release()
            _time_probe.end(span)

    def _records(self, number: int, mode: str) -> bool:
        """Return True if the plan asks for a call, counted by name and mode, on this rank."""
        plan = self._plan
        is_chosen = (
            plan.records_step(number)
            if mode == "TRAIN"
            else plan.records_evaluation(number, number)
        )
        return is_chosen and (plan.ranks is None or plan.records_rank(_find_rank()))

    def add_model_input(self, name: str, tensor: Any, *, step: int, mode: str) -> None:
        """Record what a model takes; that of another thread meanwhile is not."""
        if not self._lock.acquire(blocking=False):
            return
        span = _time_probe.start(Kind.ANNOTATION, _SPAN_NAME)
        try:
            self._try("inputs", name, self._add_inputs, tensor, step=step, mode=mode)
        finally:
            self._lock.release()
            _time_probe.end(span)

    def _add_inputs(self, name: str, inputs: Any, *, step: int, mode: str) -> None:
        """Record the inputs of a call: tokens or images."""
        if _is_torch(inputs):
            _torch_batches().add_inputs(name, inputs, step=step, mode=mode)
            return
        tokens = arrays.read_tokens(inputs)
        matrices = (
            count_tokens(name, tokens)
            if tokens is not None
            else arrays.measure_channels(name, inputs)
        )
        write_matrices(matrices, step=step, mode=mode)

    def _add_classes(
        self, name: str, labels: Any, predictions: Any, *, step: int, mode: str
    ) -> None:
        if _is_torch(labels) or _is_torch(predictions):
            _torch_batches().add_classes(
                self.count_classes, name, labels, predictions, step=step, mode=mode
            )
        else:
            numbers = arrays.read_classes(labels, predictions)
            self.count_classes(name, *numbers, step=step, mode=mode)

    def _try(
        self, argument: str, name: str, add: Callable[..., None], *values: Any, step: int, mode: str
    ) -> None:
        """Record values, or note why that is impossible. Of a name for which a framework fails,
        nothing is recorded from then on: it may be out of memory."""
        if (argument, name) in self._failed:
            return
        try:
            add(name, *values, step=step, mode=mode)
        except (TypeError, ValueError) as error:
            self._note(f"stepscope.record: {argument} of {name} were not recorded, because {error}")
        except (RuntimeError, LookupError, ArithmeticError) as error:
            self._failed.add((argument, name))
            first_line = str(error).partition("\n")[0]
            self._note(
                f"stepscope.record: {argument} of {name} are no longer recorded, because "
                f"{first_line}"
            )

    def count_classes(
        self,
        name: str,
        labels: list[float],
        predicted: list[float] | None,
        class_count: int,
        *,
        step: int,
        mode: str,
        t_ns: int | None = None,
    ) -> None:
        """Record the classes of a call, which are on the host."""
        counter = self._counters.setdefault(name, ClassCounter())
        has_labels = "labels" in self._collections
        try:
            matrices = counter.count(
                name, labels, predicted, has_labels=has_labels, class_count=class_count
            )
        except NoClassesError as error:
            self._note(
                f"stepscope.record: the predictions of {name} were not recorded, because {error}; "
                "pass numbers of classes, or a score for each class"
            )
            matrices = counter.count(name, labels, None, has_labels=has_labels)
        write_matrices(matrices, step=step, mode=mode, t_ns=t_ns)

    def _note(self, text: str) -> None:
        current = session.current()
        if text not in self._notes and current is not None and len(self._notes) < 10:
            self._notes.add(text)
            current.note(text)


_recorder: BatchRecorder | None = None
_has_plan: bool | None = None
"""None before the plan of the process was looked for."""


def start(plan: TensorPlan) -> None:
    """Record the batches of this process from now on, if the plan has collections of them."""
    global _recorder, _has_plan
    if _recorder is not None:
        return
    is_recorded = bool(COLLECTIONS.intersection(plan.collections))
    _recorder, _has_plan = BatchRecorder(plan) if is_recorded else None, True


def find_recorder() -> BatchRecorder | None:
    """Return the recorder of this process; None without a plan that has collections of batches."""
    global _has_plan
    if _has_plan is None:
        _has_plan = False
        text = os.environ.get(TENSORS_VARIABLE)
        if text:
            start(TensorPlan.decode(text))
    return _recorder


@_probe.protect
def add(labels: Any, predictions: Any, inputs: Any, name: str | None, mode: str | None) -> None:
    """Record a batch. Never raises."""
    recorder = _recorder if _has_plan is not None else find_recorder()
    if recorder is not None and session.live:
        recorder.add(labels, predictions, inputs, name, mode)


@_probe.protect
def add_model_input(name: str, tensor: Any, step: int, mode: str) -> None:
    """Record the tokens or images that a model takes. Never raises."""
    recorder = find_recorder()
    if recorder is not None:
        recorder.add_model_input(name, tensor, step=step, mode=mode)


def _is_torch(values: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def _torch_batches() -> Any:
    import importlib

    return importlib.import_module(_TORCH_BATCHES)


def _find_mode() -> str:
    torch = sys.modules.get("torch")
    return "EVAL" if torch is not None and not torch.is_grad_enabled() else "TRAIN"


def _find_rank() -> int | None:
    ranks = sys.modules.get(_RANKS)  # of a script that uses torch
    rank: int | None = read_ranks().rank if ranks is None else ranks.find_rank()
    return rank


def _find_step(number: int) -> int:
    progress = sys.modules.get(_PROGRESS)
    return number if progress is None else int(progress.progress.step_count)
