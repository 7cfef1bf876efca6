"""HostMemoryGrowth on drawn samples: what fires, what is withdrawn, and its sentences."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.rules import Evaluation
from stepscope.rules.profiler.host_memory import HostMemoryGrowth
from stepscope.schema import Finding, Progress, RuleStatus
from tests.support.fake_rule_inputs import FakeRuleInputs

GIB, MIB = 1 << 30, 1 << 20
SECONDS = 1200
TIMES = np.arange(2 * SECONDS) / 2
"""Times of the samples in seconds."""


def drawn(use: np.ndarray, *, limit: float = 16 * GIB) -> FakeRuleInputs:
    """Return a rank with a step per second, in a container with a limit."""
    inputs = FakeRuleInputs().rank(0, forward=np.full(SECONDS, 1.0))
    inputs.sample("job_memory_bytes", use)
    inputs.sample("process_anonymous_bytes", use, device="100")
    inputs.sample("cgroup_memory_used_bytes", use)
    inputs.sample("cgroup_memory_limit_bytes", np.full(len(use), limit))
    return inputs


def evaluate(inputs: FakeRuleInputs, progress: Progress = "ended", **parameters: object) -> Finding:
    evaluation = Evaluation([HostMemoryGrowth(**parameters)])
    evaluation.feed(inputs)
    (finding,) = evaluation.findings(progress)
    assert finding.error is None
    return finding


def test_a_leak_names_its_rank_its_rate_and_when_the_limit_is_full() -> None:
    leak = drawn(2 * GIB + 4 * MIB * TIMES)
    finding = evaluate(leak, "running")
    assert finding.fired
    assert finding.ranks == ["rank 0"]
    assert finding.nodes == ["n0"]
    assert finding.datapoints == SECONDS / 60
    details = finding.details["nodes"]["n0"]
    assert details["growth_bytes_per_step"] == pytest.approx(4 * MIB, rel=1e-3)
    # 14 GiB are left at the start.
    assert details["full_at_step"] == pytest.approx(14 * GIB / (4 * MIB), rel=0.01)
    assert details["full_in_ns"] == pytest.approx((14 * 256 - SECONDS) * 1e9, rel=0.01)
    growth, forecast = finding.sentences
    assert growth == (
        "Node n0: host memory of the job grows by 4 MiB per step (4 MiB to 4 MiB), 14.1 GiB per "
        "hour (100% in rank 0)."
    )
    assert forecast.startswith("Node n0: 16 GiB (the container's limit) are full at step 3,58")
    grew, would_have = evaluate(leak).sentences  # of a job that has ended
    assert grew == growth.replace("grows", "grew")
    assert would_have.startswith("Node n0: 16 GiB (the container's limit) would have been full at")


def test_growth_that_fills_the_limit_too_late_does_not_fire() -> None:
    leak = drawn(2 * GIB + 4 * MIB * TIMES)  # full in 0.66 hours
    assert evaluate(leak, within_hours=1).fired
    slow = drawn(2 * GIB + 0.1 * MIB * TIMES)  # full in 39 hours
    assert evaluate(slow).fired
    assert not evaluate(slow, within_hours=38).fired


@pytest.mark.parametrize("cuts", [[], [3], [10, 5]])
def test_a_finding_is_withdrawn_when_the_memory_is_given_back(cuts: list[int]) -> None:
    use = 2 * GIB + 4 * MIB * np.where(TIMES < 700, TIMES, 0)
    evaluation, states = Evaluation([HostMemoryGrowth()]), []
    for inputs in drawn(use).ranges(cuts or [20]):
        evaluation.feed(inputs)
        states.append(evaluation.findings("running")[0].fired)
    (finding,) = evaluation.findings()
    assert finding.status is RuleStatus.NO_ISSUES_FOUND
    assert finding.sentences == [
        "Node n0: host memory of the job did not grow steadily; peak 4.73 GiB of 16 GiB (the "
        "container's limit)."
    ]
    assert states[-1] is False
    if cuts == [10, 5]:
        assert states[0] is True  # ten minutes of a leak


def test_longer_inputs_are_told_apart() -> None:
    durations = np.linspace(0.5, 2.5, 800)  # sums to 1,200 seconds
    ends = np.cumsum(durations)
    use = GIB + 0.5 * GIB * np.interp(TIMES, ends, durations)
    inputs = FakeRuleInputs().rank(0, forward=durations)
    inputs.sample("job_memory_bytes", use)
    finding = evaluate(inputs)
    assert not finding.fired
    assert finding.sentences == [
        "Node n0: host memory of the job rose with the duration of steps, as with longer inputs; "
        "peak 2.25 GiB."
    ]


def test_a_run_without_samples_of_the_job_is_not_judged() -> None:
    finding = evaluate(FakeRuleInputs().rank(0, forward=np.full(100, 1.0)))
    assert finding.status is RuleStatus.NOT_APPLICABLE
    assert finding.missing is not None
    assert finding.missing.startswith("no samples of the job's memory")
