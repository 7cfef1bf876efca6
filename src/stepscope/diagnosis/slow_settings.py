"""Settings by which operators may be slower than they need to be.

They are no debug switches: each has its purpose. A run with a setting does not tell what the job
would take without it, so a note states it, with the trial that would tell.
"""

from __future__ import annotations

from stepscope.diagnosis.job_facts import JobFacts
from stepscope.diagnosis.shares import Shares
from stepscope.quantities import count_of, number
from stepscope.run import Run

MIN_COMPUTE_RATIO = 0.5
"""Settings of operators are noted where operators take at least this share of the step."""


IDLE_CORE_RATIO = 0.8
"""A core that is idle for at least this share of the time counts as idle."""


def list_slow_settings(run: Run, shares: Shares, facts: JobFacts) -> list[str]:
    """Describe the settings that may slow down the operators of the first rank."""
    settings = facts.settings
    if settings is None or shares.suspects["model"] < MIN_COMPUTE_RATIO:
        return []
    notes = []
    idle_cores = _count_idle_cores(run)
    if facts.is_cpu_job and settings.intra_op_threads == 1 and idle_cores >= 1:
        notes.append(
            "Operators run in one thread (torch.set_num_threads or OMP_NUM_THREADS), and "
            f"{count_of(idle_cores, 'core')} of {number(run.cores_available)} stayed idle; "
            f"`stepscope try RUN --change intra_op_threads={idle_cores + 1}` measures "
            "more threads."
        )
    if settings.deterministic_algorithms:
        notes.append(
            "Deterministic algorithms are on (torch.use_deterministic_algorithms): some operators "
            "are slower with them."
        )
    types = facts.model.module_types if facts.model is not None else None
    has_convolutions = any("Conv" in name for name in types or ())
    is_on_device = bool(facts.devices) and not facts.is_cpu_job
    if has_convolutions and is_on_device and not settings.cudnn_benchmark:
        notes.append(
            "cuDNN does not search for the fastest convolutions (torch.backends.cudnn.benchmark is "
            "off); `stepscope try RUN --change cudnn_benchmark=True` measures that."
        )
    return notes


def _count_idle_cores(run: Run) -> int:
    contention = run.contention
    if contention is None or run.cores_available is None:
        return 0
    return int(
        run.cores_available - contention.job_cores - contention.outside_cores + 1 - IDLE_CORE_RATIO
    )
