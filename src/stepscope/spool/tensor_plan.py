"""Plan of the recording of tensors, the limit of their elements, and the search for NaN.

`stepscope run` passes it to the processes of the job in an environment variable.

Request for the search for the origin of non-finite numbers. `stepscope run` passes it to the
processes of the job in an environment variable.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

TENSORS_VARIABLE = "STEPSCOPE_TENSORS"
"""Environment variable that holds the plan."""
DEFAULT_TENSOR_INTERVAL = 100
DEFAULT_RAW_LIMIT_BYTES = 100_000_000
"""Bytes of the elements of tensors that a job may record."""
COLLECTIONS = (
    "weights", "biases", "gradients", "losses", "activations", "inputs", "outputs", "optimizer",
    "feature_importance", "trees", "labels", "predictions",
)  # fmt: skip
"""Built-in collections; those of the second line are of XGBoost, and the last two also of batches
that the script hands over."""


class TensorPlan:
    """Selection of the tensors and steps that are recorded.

    Args:
        collections: members of `COLLECTIONS`.
        patterns: regular expressions; tensors whose name matches one are recorded as well.
        interval: number of steps from one recorded step to the next; None for the default of the
            framework.
        evaluation_interval: number of calls of a model for evaluation from one recorded call to
            the next; None for that of steps.
        first_step: number of steps before the first recorded one.
        end_step: number of steps from which on no step is recorded; None for no end.
        steps: these steps are recorded as well.
        histograms: record a histogram of each tensor.
        ranks: ranks that record; None for all.
        joins_shards: record the statistics of whole tensors where each rank holds a part.
        raw_patterns: regular expressions; tensors whose name matches one are recorded as well, with
            their elements.
        raw_limit_bytes: limit of the elements of a job.

    Raises:
        ValueError: a value is impossible.
    """

    __slots__ = (
        "collections",
        "end_step",
        "evaluation_interval",
        "first_step",
        "histograms",
        "interval",
        "joins_shards",
        "patterns",
        "ranks",
        "raw_limit_bytes",
        "raw_patterns",
        "steps",
    )

    def __init__(
        self,
        *,
        collections: Iterable[str] = (),
        patterns: Iterable[str] = (),
        interval: int | None = None,
        evaluation_interval: int | None = None,
        first_step: int = 0,
        end_step: int | None = None,
        steps: Iterable[int] = (),
        histograms: bool = False,
        ranks: Iterable[int] | None = None,
        joins_shards: bool = False,
        raw_patterns: Iterable[str] = (),
        raw_limit_bytes: int = DEFAULT_RAW_LIMIT_BYTES,
    ) -> None:
        self.collections = tuple(collections)
        self.patterns = tuple(patterns)
        self.interval = interval
        self.evaluation_interval = evaluation_interval
        self.first_step = first_step
        self.end_step = end_step
        self.steps = frozenset(steps)
        self.histograms = histograms
        self.ranks = None if ranks is None else frozenset(ranks)
        self.joins_shards = joins_shards
        self.raw_patterns = tuple(raw_patterns)
        self.raw_limit_bytes = raw_limit_bytes
        for name in self.collections:
            if name not in COLLECTIONS:
                raise ValueError(f"{name!r} is none of {', '.join(COLLECTIONS)}")
        import re  # only in processes that have a plan

        for pattern in self.all_patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        intervals = [n for n in (interval, evaluation_interval) if n is not None]
        for number in (*intervals, first_step, *self.steps, *(self.ranks or ()), raw_limit_bytes):
            if not hasattr(number, "__index__"):
                raise ValueError(f"{number!r} is not a whole number")
        if min(intervals, default=1) < 1 or first_step < 0:
            raise ValueError("the interval must be at least 1, and the first step at least 0")

    @property
    def all_patterns(self) -> tuple[str, ...]:
        """Regular expressions of names that are recorded, with or without their elements."""
        return (*self.patterns, *self.raw_patterns)

    def records_step(self, step: int, default_interval: int = DEFAULT_TENSOR_INTERVAL) -> bool:
        """Return True if the tensors of a step are recorded.

        Args:
            step: number of steps before it.
            default_interval: interval of a plan without one.
        """
        if step in self.steps:
            return True
        return self._has(step) and step % (self.interval or default_interval) == 0

    def records_evaluation(self, step: int, call: int) -> bool:
        """Return True if a call of a model for evaluation is recorded.

        Those are counted by themselves, as in SageMaker Debugger: they come between steps, mostly
        between others than those of which training is recorded.

        Args:
            step: number of steps before it.
            call: number of such calls of the model before it.
        """
        if step in self.steps:
            return True
        interval = self.evaluation_interval or self.interval or DEFAULT_TENSOR_INTERVAL
        return self._has(step) and call % interval == 0

    def _has(self, step: int) -> bool:
        """Return True for a step in the range."""
        return self.first_step <= step and (self.end_step is None or step < self.end_step)

    def records_rank(self, rank: int | None) -> bool:
        """Return True if a rank records; a job without ranks is rank 0."""
        return self.ranks is None or (rank or 0) in self.ranks

    @property
    def fields(self) -> dict[str, Any]:
        """The plan as plain lists and numbers."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields["steps"] = sorted(self.steps)
        fields["ranks"] = None if self.ranks is None else sorted(self.ranks)
        return fields

    def encode(self) -> str:
        """Encode the plan as JSON."""
        import json

        return json.dumps(self.fields)

    @classmethod
    def decode(cls, text: str) -> TensorPlan:
        """Decode a plan.

        Raises:
            ValueError: the text is not a plan.
        """
        import json

        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(str(error)) from error


FILE_NAME = "element-bytes"


class ElementBudget:
    """Bytes that the processes of one node may record.

    Args:
        root: directory of the spool.
        limit_bytes: their limit.
    """

    def __init__(self, root: str, limit_bytes: int) -> None:
        self._path = f"{root}/{FILE_NAME}"
        self._limit_bytes = limit_bytes

    def reserve(self, size: int) -> bool:
        """Reserve bytes; False if they would exceed the limit.

        The lock is held for two system calls, and released if the process is killed meanwhile.

        Raises:
            OSError: the spool cannot be written.
        """
        import fcntl

        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            used_bytes = int(os.pread(descriptor, 32, 0) or 0)
            if used_bytes + size > self._limit_bytes:
                return False
            os.pwrite(descriptor, b"%020d" % (used_bytes + size), 0)
            return True
        finally:
            os.close(descriptor)


NAN_SEARCH_VARIABLE = "STEPSCOPE_NAN_SEARCH"
"""Environment variable that holds the start of the search."""
FROM_START = "start"
"""Search in all steps."""
AFTER_LOSS = "loss"
"""Search in the steps after a loss that is not finite."""
