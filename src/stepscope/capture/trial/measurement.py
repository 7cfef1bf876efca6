"""Plan and measurement of a trial: the time of some steps, and the first losses.

Nothing is written before the last measured step, and losses are read from the device only then.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch.patching import patch
from stepscope.capture.guard import Probe
from stepscope.capture.import_hooks import after_import
from stepscope.capture.trial import TrialPlan
from stepscope.job_environment import read_ranks

MAX_LOSSES = 50
KILL_TIMEOUT_S = 60.0
"""Time after the report in which the job is killed; else the process ends itself."""
_losses_probe = Probe("losses")
_now = time.monotonic_ns


class Measurement:
    """Time and losses of the steps of this process."""

    def __init__(self, plan: TrialPlan) -> None:
        self.plan = plan
        self._pid = os.getpid()
        self._times_ns: list[int] = []
        """End of the warm-up and of each measured step."""
        self._losses: list[torch.Tensor] = []
        self._applied: dict[str, dict[str, Any]] = {}

    def start(self) -> None:
        """Seed the generators, and watch steps and backward passes from now on."""
        self._seed()
        if not self.plan.warmup_step_count:
            raise ValueError("a trial needs at least one step of warm-up")
        progress.on_boundary(self._end_step)
        patch(torch.autograd.graph, "_engine_run_backward", self._watch_loss)
        engine: Any = torch.autograd
        engine._engine_run_backward = engine.graph._engine_run_backward
        atexit.register(self._end_early)

    def note_change(self, name: str, before: object, after: object) -> None:
        """Note that a change took effect, where that made a difference if it did anywhere."""
        noted = self._applied.get(name)
        if noted is None or noted["before"] == noted["after"]:
            self._applied[name] = {"before": str(before), "after": str(after)}

    def during_warmup(self, action: Callable[[], None]) -> None:
        """Call an action between the steps of the warm-up."""

        def act() -> None:
            if progress.step_count < self.plan.warmup_step_count:
                action()

        progress.on_boundary(act)

    def fail(self, sentence: str) -> None:
        """Report that the trial is not possible, and end the job."""
        self._write({"error": sentence}, self.plan.report)
        self._wait_to_be_killed()

    def _seed(self) -> None:
        seed = self.plan.seed + (read_ranks().rank or 0)
        random.seed(seed)
        torch.manual_seed(seed)
        after_import("numpy", lambda: sys.modules["numpy"].random.seed(seed))

    def _end_step(self) -> None:
        count = progress.step_count
        if count < self.plan.warmup_step_count:
            return
        last = self.plan.warmup_step_count + self.plan.step_count
        if count in {self.plan.warmup_step_count, last}:
            cuda: Any = torch.cuda
            if cuda.is_initialized():
                cuda.synchronize()
        self._times_ns.append(_now())
        if count >= last and _is_first_rank():
            self._write(self._describe(), self.plan.report)
            self._wait_to_be_killed()

    def _end_early(self) -> None:
        """Report the steps of a job that ends by itself, or with an exception."""
        if os.getpid() == self._pid and progress.step_count and _is_first_rank():
            self._write(self._describe(), self.plan.early_report)

    def _describe(self) -> dict[str, Any]:
        times_ns = self._times_ns
        return {
            "step_count": max(0, len(times_ns) - 1),
            "total_ns": times_ns[-1] - times_ns[0] if times_ns else 0,
            "losses": [_to_number(loss) for loss in self._losses],
            "applied": self._applied,
            "torch": str(torch.__version__),
            "python": sys.version.split()[0],
        }

    @staticmethod
    def _write(report: dict[str, Any], path: str) -> None:
        """Write a report, unless another process has written its own."""
        draft = f"{path}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(report, file)
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        os.unlink(draft)

    @staticmethod
    def _wait_to_be_killed() -> None:
        time.sleep(KILL_TIMEOUT_S)
        os._exit(1)

    def _watch_loss(self, original: Callable[..., Any]) -> Callable[..., Any]:
        is_compiling = torch.compiler.is_compiling

        def run_backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if len(self._losses) < MAX_LOSSES and not is_compiling():
                keep_loss(tensors, **kwargs)
            return original(tensors, *args, **kwargs)

        def keep(tensors: Any, *, accumulate_grad: bool = False, **_: Any) -> None:
            if accumulate_grad and len(tensors) == 1 and tensors[0].numel() == 1:
                self._losses.append(tensors[0].detach().clone())

        keep_loss = _losses_probe.protect(keep)
        return run_backward


def _to_number(loss: torch.Tensor) -> float | None:
    """Read a loss; None where it is infinite or not a number, which JSON does not know."""
    value = float(loss)
    return value if math.isfinite(value) else None


def _is_first_rank() -> bool:
    """Return True in rank 0, and in a job without ranks."""
    distributed: Any = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return bool(distributed.get_rank() == 0)
    return read_ranks().rank in {None, 0}
