"""Changes by which fixes are tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from stepscope.capture.trial import CHANGES
from stepscope.diagnosis import fix_titles
from stepscope.diagnosis.fix_changes import list_changes
from stepscope.diagnosis.job_facts import JobFacts
from stepscope.schema import DataLoaderFact, OptimizerFact, SettingsFact

LOADER = DataLoaderFact(name="Rows#0", batch_size=8, num_workers=2, iterable=False)
INLINE_LOADER = DataLoaderFact(name="Rows#0", batch_size=8, num_workers=0, iterable=True)
SETTINGS = SettingsFact(
    step_count=1,
    anomaly_detection=True,
    deterministic_algorithms=False,
    cudnn_benchmark=False,
    float32_matmul_precision="highest",
    intra_op_threads=2,
    inter_op_threads=1,
    trace_function=None,
    profile_function=None,
    traces_allocations=False,
    variables={"NCCL_DEBUG": "WARN", "PYTHONMALLOC": "debug"},
)


def make_facts(**facts: Any) -> JobFacts:
    defaults: dict[str, Any] = dict.fromkeys(JobFacts.__dataclass_fields__)
    return JobFacts(**(defaults | {"has_fused_attention": False} | facts))


ADAM = OptimizerFact(name="AdamW", parameter_count=9, tensor_count=2, devices=["cpu"])


@pytest.mark.parametrize(
    ("title", "facts", "changes"),
    [
        (fix_titles.COMPILE, {}, {"compile": "default"}),
        (fix_titles.LARGER_BATCH, {"loader": LOADER}, {"batch_size": "16"}),
        (fix_titles.SMALL_BATCH, {}, {}),
        (fix_titles.CACHE, {"loader": LOADER}, {"cached_samples": "memory"}),
        (fix_titles.CACHE, {"loader": INLINE_LOADER}, {}),
        (fix_titles.KEEP_WORKERS, {"loader": LOADER}, {"persistent_workers": "True"}),
        (fix_titles.KEEP_WORKERS, {"loader": INLINE_LOADER}, {}),
        (fix_titles.OVERLAP, {"loader": LOADER}, {"num_workers": "4"}),
        (fix_titles.OVERLAP, {"loader": INLINE_LOADER}, {"num_workers": "2"}),
        (fix_titles.PIN, {"loader": LOADER, "has_gpus": True}, {"pin_memory": "True"}),
        (fix_titles.PIN, {"loader": LOADER, "has_gpus": False}, {}),
        (fix_titles.PIN, {"loader": LOADER, "optimizer": ADAM}, {}),
        (fix_titles.OPTIMIZER_KERNELS, {"optimizer": ADAM}, {"optimizer": "fused"}),
        (fix_titles.DEBUG, {}, {}),
        (
            fix_titles.DEBUG,
            {"settings": SETTINGS},
            {"anomaly_detection": "off", "debug_variables": "off"},
        ),
        ("Move work out of the loop", {"loader": LOADER}, {}),
    ],
)
def test_changes_of_fixes(title: str, facts: Mapping[str, Any], changes: Mapping[str, str]) -> None:
    listed = list_changes(title, make_facts(**facts))
    assert {change.name: change.value for change in listed} == changes
    for change in listed:
        assert CHANGES[change.name].check(change.value) == change.value
