"""Recording of the tensors of a model on request of the script: `stepscope.watch`."""

from __future__ import annotations

import os
import sys

from stepscope.errors import UsageError
from stepscope.spool import DEFAULT_RAW_LIMIT_BYTES, SPOOL_VARIABLE, TENSORS_VARIABLE, TensorPlan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_PYTORCH_TENSORS = "stepscope.capture.frameworks.pytorch.tensors"


def watch(
    model: Any,
    collections: Iterable[str] = ("weights", "gradients", "losses"),
    *,
    patterns: Iterable[str] = (),
    interval: int | None = None,
    evaluation_interval: int | None = None,
    steps: Iterable[int] = (),
    histograms: bool = False,
    ranks: Iterable[int] | None = None,
    joins_shards: bool = False,
    raw: Iterable[str] = (),
    raw_limit_bytes: int = DEFAULT_RAW_LIMIT_BYTES,
) -> None:
    """Record statistics of the tensors of a model, as `--tensors` does for all models.

        stepscope.watch(model, ["weights", "gradients"], interval=10)

    It applies from the next step on. Outside of a recorded process, and under `stepscope run` with
    options of tensors of its own, it does nothing. Further models of a process are recorded as the
    first one is. Losses are those of all models.

    Args:
        model: a module of PyTorch.
        collections: collections of docs/tensors.md; with `labels`, `predictions` and `inputs`,
            batches that `record` gets are recorded, too.
        patterns: regular expressions; tensors whose whole name matches one are recorded as well.
        interval: steps from one recorded step to the next; 100 by default, or only `steps`.
        evaluation_interval: calls of the model for evaluation from one recorded call to the next;
            as `interval` by default.
        steps: these steps are recorded as well.
        histograms: record a histogram of each tensor.
        ranks: ranks that record; all by default.
        joins_shards: record the statistics of whole tensors where each rank holds a part (FSDP2,
            DTensor); all ranks have to call `watch` alike.
        raw: regular expressions; of tensors whose whole name matches one the elements are recorded
            as well.
        raw_limit_bytes: limit of the elements of a job.

    Raises:
        UsageError: the model is no module of PyTorch, or another argument is impossible.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        raise UsageError(
            f"stepscope.watch records a torch.nn.Module, and this is a {type(model).__name__}."
        )
    numbers = frozenset(steps)
    is_single = bool(numbers) and interval is None
    try:
        plan = TensorPlan(
            collections=[collections] if isinstance(collections, str) else collections,
            patterns=[patterns] if isinstance(patterns, str) else patterns,
            interval=interval,
            evaluation_interval=evaluation_interval,
            steps=numbers,
            end_step=0 if is_single else None,  # no step is before this end
            histograms=histograms,
            ranks=ranks,
            joins_shards=joins_shards,
            raw_patterns=[raw] if isinstance(raw, str) else raw,
            raw_limit_bytes=raw_limit_bytes,
        )
    except ValueError as error:
        raise UsageError(f"stepscope.watch: {error}.") from error
    tensors = sys.modules.get(_PYTORCH_TENSORS)
    is_recorded = bool(os.environ.get(SPOOL_VARIABLE))  # the recording may start later
    if tensors is None or not is_recorded or os.environ.get(TENSORS_VARIABLE):
        return
    from stepscope.capture import batches

    tensors.start_watching(plan, model)
    batches.start(plan)
