"""Saving per sample with twice the batch.

Some of a step takes the same time for any number of samples: calling the operators, the optimizer,
which updates every parameter once, and the script's own Python between the phases. With a share f
of the step that is fixed, a step with twice the samples takes 1 + (1 - f) of the time, so that

    saving per sample = 1 - (2 - f) / 2 = f / 2

Operators whose time is that of reading their weights are not in f, so it is a lower bound. A batch
is small where the saving is at least `MIN_SAVING`.

Where a model calls its operators in a loop over elements, such as the time steps of a sequence,
calling them is fixed as well, but the loop is the reason. Models without one have about 5 to 20
operators per parameter tensor, forward and backward pass and optimizer together.
"""

from __future__ import annotations

from stepscope import analysis, quantities
from stepscope.diagnosis.causes.cause import CauseFinding, CauseInputs
from stepscope.diagnosis.shares.shares import Shares, compute_host_cause_share
from stepscope.diagnosis.verdict import Evidence, Stage
from stepscope.quantities import count_of, percent
from stepscope.run import Rank, Run, largest_model, samples_at_a_time

MIN_SAVING = 0.2
MAX_CALLS = 8
"""Calls of models per step up to which the time between the phases is that of the step."""
OPTIMIZER_RATIO = 0.5
MAX_OPERATORS_PER_TENSOR = 50
"""Beyond this number of operators per parameter tensor and pass of the model, it has a loop."""


def measure_fixed_parts(run: Run, shares: Shares) -> dict[str, float]:
    """Measure the parts of the step that do not grow with the batch, as shares of it."""
    python_ratio = compute_host_cause_share(run.ranks, "python")
    # A script that calls the model for every sample calls the rest of torch for every sample too.
    is_per_step = _count_calls(run) <= MAX_CALLS
    calls = shares.overhead_parts["framework_calls"] if is_per_step else 0.0
    return {
        "calling operators": shares.overhead_parts["inside_compute"] + calls,
        "optimizer": shares.compute_work["optimizer"],
        "Python between the phases": shares.phases["other"] * python_ratio,
    }


def measure_doubling_saving(run: Run, shares: Shares) -> float:
    """Measure the saving per sample with twice the batch, as a share of the step."""
    return sum(measure_fixed_parts(run, shares).values()) / 2


def has_small_batch(run: Run, shares: Shares) -> bool:
    """Return whether twice the batch would save much per sample. False without a window, and where
    the batch is not known."""
    profile = run.compute_profile
    if profile is None or samples_at_a_time(run.ranks[0]) is None:
        return False
    return is_batch_small_for(run, shares, profile)


def is_batch_small_for(run: Run, shares: Shares, profile: analysis.ComputeProfile) -> bool:
    """Return whether twice the batch would save much per sample, whatever its size. False where the
    model is not known: it may have a loop."""
    rank = run.ranks[0]
    if largest_model(rank) is None or has_loop(rank, profile):
        return False
    return measure_doubling_saving(run, shares) >= MIN_SAVING


def is_batch_sufficient(run: Run, shares: Shares) -> bool:
    """Return whether calling operators is the largest overhead and cannot be reduced: those of the
    model are called once per batch, and twice the batch would save little.

    A compiler merges few operators of a model on a CPU. On a GPU one launch can replace all of a
    step (CUDA graphs), and an optimizer's operators can be merged anywhere.
    """
    rank, profile = run.ranks[0], run.compute_profile
    if profile is None or profile.on_device or is_python_bound(profile):
        return False
    if largest_model(rank) is None or samples_at_a_time(rank) is None or has_loop(rank, profile):
        return False
    is_largest = shares.operator_calls >= shares.largest_overhead
    is_once_per_batch = _count_calls(run) <= MAX_CALLS and not is_dispatch_in_optimizer(shares)
    is_enough = measure_doubling_saving(run, shares) < MIN_SAVING
    return is_largest and is_once_per_batch and is_enough


def is_dispatch_in_optimizer(shares: Shares) -> bool:
    """Return whether most of the dispatch is the optimizer's: its many tensors are the reason, not
    the batch."""
    return shares.compute_overhead["optimizer"] > OPTIMIZER_RATIO * shares.operator_calls


def is_python_bound(profile: analysis.ComputeProfile | None) -> bool:
    """Return whether the script's own Python code delays the operators: the time between them is
    longer than calling them can take. False without a window."""
    return profile is not None and profile.overhead_per_call_ns > analysis.MAX_CALL_NS


def has_loop(rank: Rank, profile: analysis.ComputeProfile) -> bool:
    """Return whether the model calls its operators in a loop over elements."""
    model = largest_model(rank)
    if model is None or not model.tensor_count:
        return False
    limit = MAX_OPERATORS_PER_TENSOR * model.tensor_count * max(1.0, _count_calls(rank.run))
    return profile.operator_count_per_step > limit


def find_small_batch_cause(inputs: CauseInputs) -> CauseFinding:
    """Describe a batch that is small for its model, where no suspect exceeds its threshold."""
    parts = measure_fixed_parts(inputs.run, inputs.shares)
    stages = [
        Stage(name=name, detail="", share_ratio=share)
        for name, share in sorted(parts.items(), key=lambda item: -item[1])
        if share >= 0.01
    ]
    return CauseFinding(
        cause="small_batch",
        stages=stages,
        evidence=describe_batch(inputs),
        evidence_kind="profiled",
    )


def describe_batch(inputs: CauseInputs) -> list[Evidence]:
    """Describe what a larger batch would save, and the number of samples in a call of the model."""
    saving, rank = measure_doubling_saving(inputs.run, inputs.shares), inputs.run.ranks[0]
    batch_size, call_count = samples_at_a_time(rank), _count_calls(inputs.run)
    frequency = (
        f", {quantities.number(round(call_count))} times per step" if call_count >= 1.5 else ""
    )
    evidence = [
        Evidence(
            text=f"{percent(2 * saving)} of the step does not grow with the batch; with twice the "
            f"batch, a sample takes {percent(saving)} less time.",
            value=saving,
            unit="ratio",
            source="steps",
        )
    ]
    if batch_size is not None:
        size = Evidence(
            text=f"The model processes {count_of(batch_size, 'sample')} at a time{frequency}.",
            value=batch_size,
            unit="count",
            source="steps",
        )
        evidence.append(size)
    return evidence


def _count_calls(run: Run) -> float:
    """Count the calls of models per step of the first rank, once for all resamples."""
    return run.derive(_count_calls_per_step)


def _count_calls_per_step(run: Run) -> float:
    rank = run.ranks[0]
    return sum(rank.spans.count_threads("forward").values()) / max(1, len(rank.steps))
