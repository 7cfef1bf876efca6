"""Records of a job that are missing, what its steps are, and settings that may slow it down.

Settings by which operators may be slower than they need to be. They are no debug switches: each has
its purpose. A run with a setting does not tell what the job would take without it, so a note states
it, with the trial that would tell.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from stepscope import analysis, quantities, schema
from stepscope.diagnosis.causes.job_facts import JobFacts
from stepscope.diagnosis.shares.shares import Shares
from stepscope.diagnosis.verdict import Verdict
from stepscope.quantities import count, count_of, duration, number, percent
from stepscope.run import EXCLUDING, Doubt, Run, has_ended, process_names, read_memory_censuses

_FULL_SPOOL = "the spool was full; raise --spool-limit"
_CAUSES = {
    "": _FULL_SPOOL,
    "ENOSPC": (
        "the file system of the spool was full, or had no inodes left; free space there or pass "
        "another directory to --spool"
    ),
    "EDQUOT": (
        "the disk quota of the spool was exhausted; free space there or pass another directory to "
        "--spool"
    ),
    "EFBIG": (
        "the limit on file sizes (ulimit -f) is below the 128 KiB of a file of span logs; raise it"
    ),
    "EMFILE": "too many files were open in one process; raise the limit (ulimit -n)",
    "ENFILE": "too many files were open on the machine; raise the limit (fs.file-max)",
    "ENOENT": "the spool was deleted",
    "unknown": "it could not write to the spool, or was killed when it had just begun to record",
}
"""Reasons by cause; '' for runs that have no cause."""
_MIN_NOTED_PAUSE_NS = 1_000_000_000


def count_dropped(run: Run) -> int:
    """Count the records that the processes of a run could not keep."""
    return sum(process.dropped_count for process in run.processes)


def explain_drops(run: Run) -> str | None:
    """Say how many records were dropped, and why most of them were; None without any."""
    dropped: Counter[str] = Counter()
    for process in run.processes:
        dropped.update(_count_by_cause(process))
    if not dropped:
        return None
    cause, _ = dropped.most_common(1)[0]
    total = dropped.total() + run.reader.row_count("spans")
    return (
        f"{count(dropped.total())} of {count(total)} records were dropped because "
        f"{_explain_cause(run, cause)}"
    )


def explain_loss(run: Run) -> str | None:
    """Say why records that the job made are missing, or may be; None where no loss was noted."""
    drops = explain_drops(run)
    if drops is not None:
        return drops
    for process in run.processes:
        if process.refusal is not None:
            cause = _explain_cause(run, process.refusal)
            return f"{process_names(run)[process.process]} could not be recorded because {cause}"
    for status in run.reader.statuses().values():
        for refusal in status.refusals:
            cause = _explain_cause(run, refusal)
            return f"a process of the job could not be recorded because {cause}"
    losses = [loss for status in run.reader.statuses().values() for loss in status.losses]
    return losses[0] if losses else None


def explain_unrecorded(run: Run) -> str | None:
    """Say why a process that loaded a framework was not recorded; None without one."""
    statuses = run.reader.statuses().values()
    return next((reason for status in statuses for reason in status.unrecorded), None)


def list_losses(run: Run) -> list[str]:
    """List all reasons for which records are missing, one sentence each."""
    losses = [loss for status in run.reader.statuses().values() for loss in status.losses]
    for status in run.reader.statuses().values():
        losses += [f"{reason[0].upper()}{reason[1:]}." for reason in status.unrecorded]
    for process in run.processes:
        losses += [
            f"{_name(run, process)}: {count(dropped)} records dropped because "
            f"{_explain_cause(run, cause)}."
            for cause, dropped in _count_by_cause(process).items()
        ]
        if process.refusal is not None:
            losses.append(
                f"{_name(run, process)} was not recorded because "
                f"{_explain_cause(run, process.refusal)}."
            )
    for status in run.reader.statuses().values():
        losses += [
            f"Processes were not recorded because {_explain_cause(run, refusal)}."
            for refusal in status.refusals
        ]
    return losses


def _name(run: Run, process: schema.ProcessInfo) -> str:
    name = process_names(run)[process.process]
    return name[:1].upper() + name[1:]


def _count_by_cause(process: schema.ProcessInfo) -> dict[str, int]:
    if process.dropped_by_cause:
        return process.dropped_by_cause
    return {"": process.dropped_count} if process.dropped_count else {}


def _explain_cause(run: Run, cause: str) -> str:
    if cause == "spool_limit":
        return _explain_limit(run)
    if cause in _CAUSES:
        return _CAUSES[cause]
    return f"the spool could not be written: {os.strerror(getattr(errno, cause, errno.EIO))}"


def _explain_limit(run: Run) -> str:
    limit = run.reader.info.options.get("spool_limit_bytes")
    pause_ns = max((status.max_pause_ns for status in run.reader.statuses().values()), default=0)
    if limit is None:
        return _FULL_SPOOL
    if pause_ns < _MIN_NOTED_PAUSE_NS:
        return f"the spool reached its limit of {quantities.memory(limit)}; raise --spool-limit"
    return (
        f"the monitor did not run for {duration(pause_ns)}, in which the spool reached its limit "
        f"of {quantities.memory(limit)}"
    )


MIN_NOTED_RECORDING = 0.02
"""Recording of tensors between the rounds, as a share of them and the recording together."""


def explain_recording(run: Run) -> list[str]:
    """Explain that work of stepscope in the job took time which is in no step."""
    recording_ns = sum(rank.steps.recording.total_ns for rank in run.ranks)
    wall_ns = sum(int(rank.steps.wall_ns.sum()) for rank in run.ranks)
    share = recording_ns / max(1, recording_ns + wall_ns)
    if share < MIN_NOTED_RECORDING:
        return []
    has_tensors = run.reader.row_count("tensor_statistics") > 0
    recorded = {
        "tensors": has_tensors,
        "the detailed windows": bool(run.traces),
        "the censuses of memory": bool(read_memory_censuses(run)),
    }
    names = " and ".join(name for name, is_recorded in recorded.items() if is_recorded)
    advice = ""
    if has_tensors:
        advice = " Try a larger --tensors-every."
    elif run.traces:
        advice = " With --window off none are recorded; a longer job has a smaller share of it."
    return [
        f"The recording of {names or 'figures'} took {duration(recording_ns)}, {percent(share)} of "
        f"the time of steps and recording; it is in no step.{advice}"
    ]


def explain_guessed_rounds(run: Run, facts: JobFacts) -> list[str]:
    """Tell that the steps of the first rank are guessed: rounds of several optimizers, or updates
    between which an environment is simulated. Empty where the script marks them."""
    steps = run.ranks[0].steps
    if steps.source != "optimizer":
        return []
    updates = run.ranks[0].spans.of("optimizer")
    updates = updates.on_thread(steps.thread)
    updates = updates.take(~updates.unfinished)
    if (updates.value != updates.value[0]).any():
        values, last = np.unique(updates.value[::-1], return_index=True)
        names = {
            value: updates.name_of(len(updates) - 1 - row)
            for value, row in zip(values.tolist(), last.tolist(), strict=True)
        }
        per_step = quantities.number(len(updates) / max(1, len(steps)))
        titles = ", ".join(sorted(names.values())[:MAX_LISTED_OPTIMIZERS])
        return [
            f"The steps are guessed: updates of {len(names)} optimizers ({titles}) in turn are one "
            f"round, {per_step} updates each. stepscope.step() marks them."
        ]
    if facts.environment_line is not None:
        return [
            "The steps are guessed: each update of the optimizer ends one, and "
            f"{facts.environment_line.location} simulates an environment in some of them. "
            "stepscope.step() marks the rounds."
        ]
    return []


def explain_inference(run: Run) -> list[str]:
    """Tell that nothing trains, and what a step is. Empty for a job that trains."""
    rank = run.ranks[0]
    if not rank.steps.is_inference:
        return []
    is_over = has_ended(run.reader.statuses().values())
    passes = rank.spans.of(*analysis.PREDICTION_KINDS)
    uses_torch = passes.is_kind("forward").any()
    passes = passes.on_thread(rank.steps.thread)
    classes, counts = np.unique(passes.name, return_counts=True)
    model = passes.names[classes[np.argmax(counts)]] or "the model"
    reason = (
        "no optimizer stepped and no backward pass ran"
        if uses_torch
        else "no compiled function that was called returns state, arrays of the shapes and types "
        "of its arguments"
    )
    sentences = [
        f"Nothing was trained{'' if is_over else ' so far'}: {reason}.",
        f"A step is a batch of the loader, for which {model} is called."
        if rank.steps.fetches.any()
        else f"A step is a call of {model}: a function that calls it many times, such as "
        "generate(), takes as many steps.",
    ]
    if not uses_torch:
        sentences.append("stepscope.steps(loader) marks the steps of a training.")
    elif not passes.has_flag(analysis.FLAG_NO_OPTIMIZER)[-1]:
        sentences.append("An optimizer may exist, so that a training would have come later.")
    if uses_torch and not passes.has_flag(analysis.FLAG_NO_GRAD)[-1]:
        sentences.append("The calls record gradients; under torch.inference_mode() they do not.")
    return [" ".join(sentences)]


MAX_LISTED_OPTIMIZERS = 4
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


MAX_EXCLUDED = 0.1
"""Share of the events of traces without which there is no verdict."""


def find_damage(run: Run, doubts: Sequence[Doubt]) -> str:
    """Return the doubt for which no verdict can rest on the traces of a run; empty for none."""
    if all(trace.is_set_back for trace in run.traces):
        return next(doubt.sentence for doubt in doubts if doubt.check == "clock_setback")
    mixed = next((doubt for doubt in doubts if doubt.check == "several_processes"), None)
    if mixed is not None:
        return mixed.sentence
    excluded = [doubt for doubt in doubts if doubt.check in EXCLUDING]
    is_much = sum(doubt.share or 0 for doubt in excluded) > MAX_EXCLUDED
    return excluded[0].sentence if is_much else ""


def explain_inferred_steps(run: Run) -> list[str]:
    """Tell which compiled function ends the steps, if the script does not mark them."""
    rank = run.ranks[0]
    if rank.steps.source != "dispatch":
        return []
    calls = analysis.find_training_calls(rank.spans.on_thread(rank.steps.thread))
    return [
        f"The steps are inferred: each call of {calls.name_of(0)} ends one, because it returns the "
        "largest state. stepscope.steps(loader) marks them."
    ]


def abstain_from_training(verdict: Verdict) -> Verdict:
    """Name the Python of a loop that is only marked, without a verdict on it: it may be the
    training itself."""
    if verdict.cause != "python_overhead":
        return verdict
    return msgspec.structs.replace(
        verdict,
        suspect="insufficient_evidence",
        cause="insufficient_evidence",
        share_ratio=0.0,
        confidence_ratio=0.0,
        fixes=[fix for fix in verdict.fixes if fix.prediction is not None],
        headline="No verdict: only marks of the steps were recorded, so the training itself is not "
        f"told from other work; {verdict.evidence[1].text}",
    )
