"""Labels as a trace shows them: what it cannot show, and what looks the same in it. Pure.

A trace of the training process has its operators, the ranges of its loader, optimizer and
collectives, and times between them; here those of ten steps, without Python functions.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from benchmarks.diagnosis.catalogue import Label, Scenario

NOT_IN_TRACES: dict[str, str] = {
    **dict.fromkeys(
        ("cpu_contention", "cpu_limit"),
        "the profiler records neither other processes nor limits of the CPU",
    ),
    **dict.fromkeys(
        ("evaluation", "checkpoint", "worker_startup"),
        "happens every N steps or once per epoch, which ten steps need not contain",
    ),
    **dict.fromkeys(
        ("garbage_collection", "memory_leak"),
        "the profiler has no event of the interpreter's memory, and ten steps have no trend",
    ),
    "debug_switch": "stacks are captured inside of operators, whose time has no parts",
    "inline_data_preparation": "Python outside of a DataLoader has no event that tells its purpose",
}
"""Reason by planted cause why a trace cannot show it; scenarios with it are not scored."""
_MADE_BY_DATASET = (
    "slow_reads",
    "slow_decode",
    "slow_augmentation",
    "slow_tokenisation",
    "slow_dataset",
    "slow_collate",
)
SAME_IN_TRACES: dict[str, str] = {
    **dict.fromkeys(_MADE_BY_DATASET, "too_few_workers"),
    "small_batch": "tiny_operators",
}
"""Cause that a trace shows, by planted cause.

A batch that the training process makes itself is one range without details, and the trace tells
whether workers make it. Operators are short because the batch is small, or because the model is:
a trace has no batch size.
"""


def find_omission(label: Label) -> str | None:
    """Find the reason why the largest planted cause is not in a trace; None if it is."""
    if label.drawn == "run":
        return "a drawn run is not a job"
    return NOT_IN_TRACES.get(label.causes[0])


def label_for_traces(label: Label) -> Label:
    """Derive the label of the traces of a scenario.

    Smaller causes that are not in a trace are omitted, and so are stages, which are of watched jobs
    unless the traces are drawn.
    """
    same = [
        f"{suspect}/{SAME_IN_TRACES[cause]}"
        for suspect, cause in sorted(label.right)
        if cause in SAME_IN_TRACES
    ]
    visible = [
        (cause, fix)
        for cause, fix in zip(label.causes, label.fixes, strict=False)
        if cause not in NOT_IN_TRACES
    ]
    return msgspec.structs.replace(
        label,
        accept=[*label.accept, *same],
        stage=label.stage if label.drawn else None,
        cause=[cause for cause, _ in visible] or label.cause,
        fix=[fix for _, fix in visible] or label.fix,
    )


def split_scenarios(
    scenarios: Iterable[Scenario],
) -> tuple[list[Scenario], list[tuple[Scenario, str]]]:
    """Split scenarios into those whose traces are scored, with labels for traces, and the others
    with the reason."""
    scored, omitted = [], []
    for scenario in scenarios:
        reason = find_omission(scenario.label)
        if reason is None:
            label = label_for_traces(scenario.label)
            scored.append(msgspec.structs.replace(scenario, label=label))
        else:
            omitted.append((scenario, reason))
    return scored, omitted
