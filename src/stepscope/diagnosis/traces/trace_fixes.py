"""Fixes for causes that traces show, with the step that is left without the cause."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope import analysis
from stepscope.diagnosis.causes.cause import CONTRIBUTING_RATIO, CauseFinding
from stepscope.diagnosis.fixes import fact_fixes
from stepscope.diagnosis.fixes.advice import CAUSE_FIXES
from stepscope.diagnosis.fixes.framework_fixes import RECORDER_FIXES
from stepscope.diagnosis.traces.trace_causes import is_overhead_in_optimizer
from stepscope.diagnosis.traces.trace_inputs import TraceInputs
from stepscope.diagnosis.traces.trace_python import waits_in_python
from stepscope.diagnosis.verdict import UNKNOWN, ContributingCause, Fix, Prediction, Suspect
from stepscope.quantities import percent
from stepscope.run import accelerator_of, is_compiled

_FIXES: dict[str, list[fact_fixes.FixText]] = {
    "too_few_workers": [
        (
            "Prepare batches in worker processes",
            "DataLoader(num_workers=4, persistent_workers=True), with as many workers as cores are "
            "free",
        )
    ],
    "host_sync": [
        (
            "Read values from tensors rarely",
            "keep metrics as tensors and call .item() every N steps; each call waits for "
            "everything launched before it",
        ),
        (
            "Remove explicit waits",
            "torch.cuda.synchronize(), .cpu(), nonzero() and boolean masks wait for the device",
        ),
    ],
    "compute": [(fact_fixes.FASTER_DEVICES, fact_fixes.BUSY_HARDWARE)],
    "optimizer": [
        (
            fact_fixes.OPTIMIZER_KERNELS,
            "the optimizers of torch.optim update many parameters in one call with them",
        )
    ],
    "python_overhead": [
        (
            "Move work out of the loop",
            "do the script's own Python once for several steps, or beside the training",
        )
    ],
}
_CONDITIONS = {
    "too_few_workers": "no step waited for its batch",
    "slow_dataset": "no step waited for its batch",
    UNKNOWN: "no step waited for its batch",
    "host_to_device_copies": "copies ran while the device computes",
    "straggler": "all ranks were equally fast",
    "uneven_ranks": "all ranks were equally fast",
    "gradient_exchange": "communication ran while the device computes",
    "collectives": "communication ran while the device computes",
    "host_sync": "the device never ran out of work after a wait of the host",
    "recompilation": "nothing was compiled",
    "memory_allocation": "no device memory was allocated or released",
    "long_calls": "no runtime call took so long",
    "device_to_host_copies": "copies to the host ran while the device computes",
}
"""Assumption of the prediction for each cause."""
_HOST_CONDITIONS = {
    "host_sync": "the loop read no value from a tensor",
    **dict.fromkeys(
        ("gradient_exchange", "collectives"), "communication ran while operators compute"
    ),
}
"""Those that differ where the host computes itself."""
_SIMULATED = {
    **dict.fromkeys(("too_few_workers", "slow_dataset", UNKNOWN), "no-input"),
    "host_to_device_copies": "async-copies",
    **dict.fromkeys(("straggler", "uneven_ranks"), "no-straggler"),
    **dict.fromkeys(("gradient_exchange", "collectives"), "overlap"),
    "host_sync": "no-sync",
}
"""Fix on the causal graph that takes each cause away; others are estimated from their share."""
_HOST_READ_FIXES: list[fact_fixes.FixText] = [
    (
        "Read values from tensors rarely",
        "compute on whole tensors instead of on their values, and call .item() every N steps",
    )
]
_WAIT_FIXES: list[fact_fixes.FixText] = [
    (
        "Do not wait in the training thread",
        "let another thread or process prepare what the step waits for, one step ahead",
    )
]
_SHARDING_FIXES: list[fact_fixes.FixText] = [
    (
        "Gather parameters less often, or earlier",
        "fully_shard(…, reshard_after_forward=False) keeps them until the backward pass where "
        "memory allows; set_modules_to_forward_prefetch and set_modules_to_backward_prefetch get "
        "the next layers during the computation; shard larger modules, or within a node only",
    )
]
_COPY_STREAM_FIXES: list[fact_fixes.FixText] = [
    (
        "Overlap the copies with the computation",
        "with torch.cuda.stream(copy_stream): batch.to(device, non_blocking=True), one batch or "
        "layer ahead; kernels on the same stream wait for a copy even from pinned memory",
    )
]


def list_trace_fixes(
    finding: CauseFinding,
    suspect: Suspect,
    contributing: Sequence[ContributingCause],
    inputs: TraceInputs,
    step_ns: float,
) -> list[Fix]:
    """List the fixes for the cause of the verdict, then the first for each contributing cause."""
    reason = finding.evidence[0].text if finding.evidence else ""
    share = _predict_saving(finding.cause, suspect, inputs)
    fixes = _make_fixes(finding.cause, reason, share, step_ns, inputs)
    for cause in contributing:
        share = _predict_saving(cause.cause, cause.suspect, inputs)
        fixes += _make_fixes(cause.cause, cause.text, share, step_ns, inputs)[:1]
    return fixes


def _make_fixes(
    cause: str, reason: str, share: float | None, step_ns: float, inputs: TraceInputs
) -> list[Fix]:
    prediction = None
    if share is not None and inputs.traces[0].marked:
        conditions = _CONDITIONS | (_HOST_CONDITIONS if inputs.on_host else {})
        condition = conditions.get(cause, "there were no gaps between operators")
        prediction = Prediction.from_step(step_ns * (1 - share), step_ns, condition, is_bound=True)
    accelerator = accelerator_of(inputs.traces[0].trace)
    adapt = accelerator.adapt if inputs.recorder.is_torch else str
    return [
        Fix(title=adapt(title), instructions=adapt(instructions), why=reason, prediction=prediction)
        for title, instructions in _list_texts(cause, inputs)
    ]


def _list_texts(cause: str, inputs: TraceInputs) -> list[fact_fixes.FixText]:
    if not inputs.recorder.is_torch:
        if cause == "python_overhead" and waits_in_python(inputs.choose("python")):
            return _WAIT_FIXES
        return RECORDER_FIXES.get(inputs.recorder.name, {}).get(cause, [])
    if cause in {"tiny_operators", "dispatch_overhead"}:
        return [
            *(_FIXES["optimizer"] if is_overhead_in_optimizer(inputs) else ()),
            *_list_compiler_fixes(inputs),
            (fact_fixes.LARGER_BATCH, "a larger batch costs little while operators are this small"),
        ]
    if cause == "host_sync" and inputs.on_host:
        return _HOST_READ_FIXES
    if cause == "collectives" and inputs.issuer == "FSDP":
        return _SHARDING_FIXES
    if cause == "host_to_device_copies" and inputs.copies_without_waits:
        return _COPY_STREAM_FIXES
    return _FIXES.get(cause) or CAUSE_FIXES.get(cause, [])


def _list_compiler_fixes(inputs: TraceInputs) -> list[fact_fixes.FixText]:
    """Advise torch.compile; where the model is compiled, only CUDA graphs."""
    if not any(is_compiled(one.trace) for one in inputs.traces):
        return [fact_fixes.make_compiler_fix(on_host=inputs.on_host)]
    has_graphs = not inputs.on_host and accelerator_of(inputs.traces[0].trace).has_cuda
    return [fact_fixes.GRAPHS_OF_COMPILED] if has_graphs else []


def note_joint_saving(
    cause: str, suspect: Suspect, contributing: Sequence[ContributingCause], inputs: TraceInputs
) -> list[str]:
    """Note what the fixes for the cause and for the contributing causes save together, where they
    save more than the first alone.

    Args:
        cause, suspect: of the verdict.
        contributing: contributing causes.
        inputs: the traces.
    """
    graph = inputs.causal
    names = {
        one: _SIMULATED[one]
        for one, blamed in [(cause, suspect), *((c.cause, c.suspect) for c in contributing)]
        if one in _SIMULATED and (one != UNKNOWN or blamed == "data_pipeline")
    }
    if graph is None or cause not in names or len(set(names.values())) < 2:
        return []
    alone = graph.simulate((analysis.CAUSAL_FIXES[names[cause]], None))
    together = graph.simulate(
        *((analysis.CAUSAL_FIXES[name], None) for name in dict.fromkeys(names.values()))
    )
    if together.saving_ratio - alone.saving_ratio < CONTRIBUTING_RATIO:
        return []
    causes = " and ".join(one.replace("_", " ") for one in names)
    return [
        f"Without {causes} together, a step would take at most {percent(together.saving_ratio)} "
        f"less; without {cause.replace('_', ' ')} alone {percent(alone.saving_ratio)}."
    ]


def _predict_saving(cause: str, suspect: Suspect, inputs: TraceInputs) -> float | None:
    """Predict the share of the step that a fix can save at most: by a replay of the causal graph
    where it has a fix for the cause, else from the share of the cause; None if it is not known."""
    name, graph = _SIMULATED.get(cause), inputs.causal
    if name is None or graph is None or (cause == UNKNOWN and suspect != "data_pipeline"):
        return _measure_removable(cause, suspect, inputs)
    fix = analysis.CAUSAL_FIXES[name]
    if not fix.affects(graph.fixed_edges).any():  # such as reads of values without a device
        return _measure_removable(cause, suspect, inputs)
    return max(0.0, graph.simulate((fix, None)).saving_ratio)


def _measure_removable(cause: str, suspect: Suspect, inputs: TraceInputs) -> float | None:
    """Measure the share of the step that a fix can save at most; None where that is not known."""
    shares = inputs.shares
    waiting = shares.rank_wait.get(suspect, 0.0)
    if cause in {"straggler", "uneven_ranks"}:
        return min(1.0, inputs.waits.add_excess(waiting))
    if suspect == "communication":
        return shares.suspects["communication"]
    # Where ranks wait for the slowest of them, the fix removes that as well.
    removed = {
        "too_few_workers": shares.parts["data_loader"],
        "slow_dataset": shares.parts["data_loader"],
        "host_to_device_copies": shares.parts["copy_to_device"],
        **inputs.overhead_parts,
    }
    if suspect == "data_pipeline":
        removed[UNKNOWN] = shares.parts["data_loader"]
    return min(1.0, removed[cause] + waiting) if cause in removed else None
