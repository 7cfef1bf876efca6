"""Sections on the training loop, rule by rule."""

from __future__ import annotations

from stepscope.views.profiling_report.blocks import Section
from stepscope.views.profiling_report.bottlenecks import build_cpu_section, build_io_section
from stepscope.views.profiling_report.evaluated import STATISTICS, Evaluated
from stepscope.views.profiling_report.gpus import (
    build_batch_section,
    build_gpu_section,
    build_memory_section,
)
from stepscope.views.profiling_report.loading import build_loading_section
from stepscope.views.profiling_report.steps import build_step_section

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


def build_training_sections(evaluated: Evaluated) -> list[Section]:
    """Build the section on the training loop, after one on initialization if that took longer."""
    initialization = _build_initialization_sections(evaluated)
    loop = Section(
        id="training",
        title="Analyzing the training loop",
        sections=[
            build_step_section(evaluated),
            build_gpu_section(evaluated),
            build_loading_section(evaluated),
            build_batch_section(evaluated),
            build_cpu_section(evaluated),
            build_io_section(evaluated),
            build_memory_section(evaluated),
            _build_other_rules(evaluated, without=INITIALIZATION if initialization else ""),
        ],
    )
    return [*initialization, loop]


def _build_initialization_sections(evaluated: Evaluated) -> list[Section]:
    job = evaluated.job
    if job.initialization_ns is None or job.training_ns is None:
        return []
    if job.initialization_ns <= job.training_ns:
        return []
    blocks = evaluated.check(INITIALIZATION)
    return [Section(id="initialization", title="Analyzing initialization", blocks=blocks)]


def _build_other_rules(evaluated: Evaluated, *, without: str) -> Section:
    """Build a section per rule without charts; rules that fired come first."""
    remaining = [
        finding
        for name, finding in evaluated.findings.items()
        if name not in {*_SHOWN, *STATISTICS, without}
    ]
    remaining.sort(key=lambda finding: not finding.fired)
    return Section(
        id="further",
        title="Further rules",
        sections=[
            Section(id=f"rule-{f.rule}", title=f.rule, blocks=evaluated.check(f.rule))
            for f in remaining
        ],
    )
