"""A training script under torch.profiler alone; it ends when its trace is written.

    python profiled_script.py DIRECTORY SCRIPT [ARGUMENT ...]

Writes one Chrome trace per rank into DIRECTORY. A step ends with each step of the optimizer that
steps first, so that a script with several optimizers has one step per iteration. Scripts stay
unchanged: the profiler is driven by a hook of torch, as by `profiler.step()` at the end of a loop.
"""

import os
import runpy
import sys
from pathlib import Path

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, schedule

SKIPPED_STEPS = 12
"""Until then caches, prefetch queues and the allocator reach their usual state."""
RECORDED_STEPS = 10


class StepRecorder:
    """Profiler of the first steps after the warm-up.

    Args:
        directory: directory of the traces.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / f"rank{os.environ.get('RANK', '0')}.json"
        self._optimizer: Optimizer | None = None
        self._profiler = profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=SKIPPED_STEPS - 1, warmup=1, active=RECORDED_STEPS, repeat=1),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(self._path)),
        )

    def start(self) -> None:
        """Start to count steps."""
        register_optimizer_step_post_hook(self._end_step)
        self._profiler.start()

    def _end_step(self, optimizer: Optimizer, *_: object) -> None:
        if self._optimizer is None:
            self._optimizer = optimizer
        if optimizer is not self._optimizer:
            return
        self._profiler.step()
        if self._path.exists():
            raise SystemExit  # the script's files, servers and workers are closed on the way out


def main() -> None:
    """Run the script of the command line."""
    directory, script, *arguments = sys.argv[1:]
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    StepRecorder(Path(directory)).start()
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
