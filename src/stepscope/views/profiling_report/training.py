"""The training loop, rule by rule."""

from __future__ import annotations

from stepscope.views.profiling_report.blocks import Section
from stepscope.views.profiling_report.bottlenecks import cpu_section, io_section
from stepscope.views.profiling_report.evaluated import STATISTICS, Evaluated
from stepscope.views.profiling_report.gpus import batch_section, gpu_section, memory_section
from stepscope.views.profiling_report.loading import loading_section
from stepscope.views.profiling_report.steps import step_section

INITIALIZATION = "MaxInitializationTime"
_SHOWN = {
    "StepOutlier",
    "LowGPUUtilization",
    "LoadBalancing",
    "Dataloader",
    "BatchSize",
    "CPUBottleneck",
    "IOBottleneck",
    "GPUMemoryIncrease",
}
"""Rules with a section of their own."""


def training_sections(evaluated: Evaluated) -> list[Section]:
    """Initialization first where it took longer than training; then the training loop."""
    begins = _slow_start(evaluated)
    loop = Section(
        id="training",
        title="Analyzing the training loop",
        blocks=[],
        sections=[
            step_section(evaluated),
            gpu_section(evaluated),
            loading_section(evaluated),
            batch_section(evaluated),
            cpu_section(evaluated),
            io_section(evaluated),
            memory_section(evaluated),
            _others(evaluated, without=INITIALIZATION if begins else ""),
        ],
    )
    return [*begins, loop]


def _slow_start(evaluated: Evaluated) -> list[Section]:
    job = evaluated.job
    if job.initialization_ns is None or job.training_ns is None:
        return []
    if job.initialization_ns <= job.training_ns:
        return []
    blocks = evaluated.check(INITIALIZATION)
    return [Section(id="initialization", title="Analyzing initialization", blocks=blocks)]


def _others(evaluated: Evaluated, *, without: str) -> Section:
    """Describe the findings of rules without a chart; rules that fired come first."""
    remaining = [
        finding
        for name, finding in evaluated.findings.items()
        if name not in {*_SHOWN, *STATISTICS, without}
    ]
    remaining.sort(key=lambda finding: not finding.fired)
    return Section(
        id="further",
        title="Further rules",
        blocks=[],
        sections=[
            Section(id=f"rule-{f.rule}", title=f.rule, blocks=evaluated.check(f.rule))
            for f in remaining
        ],
    )
