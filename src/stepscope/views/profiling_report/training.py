"""Sections on the training loop, rule by rule."""

from __future__ import annotations

from stepscope.views.profiling_report.blocks import Section
from stepscope.views.profiling_report.gpus import (
    build_batch_section,
    build_cpu_section,
    build_gpu_section,
    build_io_section,
    build_memory_section,
)
from stepscope.views.profiling_report.loading import build_loading_section
from stepscope.views.profiling_report.rule_results import STATISTICS, RuleResults
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


def build_training_sections(results: RuleResults) -> list[Section]:
    """Build the section on the training loop, after one on initialization if that took longer."""
    job, before = results.job, []
    if job.training_ns is not None and (job.initialization_ns or 0) > job.training_ns:
        blocks = results.check(INITIALIZATION)
        before = [Section(id="initialization", title="Analyzing initialization", blocks=blocks)]
    loop = Section(
        id="training",
        title="Analyzing the training loop",
        sections=[
            build_step_section(results),
            build_gpu_section(results),
            build_loading_section(results),
            build_batch_section(results),
            build_cpu_section(results),
            build_io_section(results),
            build_memory_section(results),
            _build_other_rules(results, without=INITIALIZATION if before else ""),
        ],
    )
    return [*before, loop]


def _build_other_rules(results: RuleResults, *, without: str) -> Section:
    """Build a section per rule without charts; rules that fired come first."""
    shown = {*_SHOWN, *STATISTICS, without}
    names = [name for name in results.findings if name not in shown]
    names.sort(key=lambda name: not results.findings[name].fired)
    sections = [
        Section(id=f"rule-{name}", title=name, blocks=results.check(name)) for name in names
    ]
    return Section(id="further", title="Further rules", sections=sections)
