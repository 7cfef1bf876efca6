"""Waits for threads, processes, programs, services, coroutines, locks and input pipelines, and
their fixes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import msgspec

from stepscope import analysis
from stepscope.diagnosis.causes.cause import CauseFinding, CauseInputs
from stepscope.diagnosis.verdict import Evidence, Stage
from stepscope.quantities import count_of, percent
from stepscope.run import find_line_waits

PIPELINE_CAUSE = "slow_input_pipeline"
WAIT_CAUSES = (*(f"waiting_for_a_{kind}" for kind in get_args(analysis.WaitKind)), PIPELINE_CAUSE)
"""Causes that are waits."""
MIN_WAIT_RATIO = 0.01
"""Waits of a smaller share of the step are no causes."""
COMPUTES_RATIO = 0.5
"""What fills a wait computes from this share of its samples on; otherwise it waits itself."""
_NOUNS: Mapping[analysis.WaitKind, str] = {
    "thread": "another thread",
    "process": "another process",
    "program": "a program that it starts",
    "service": "the answer of a service",
    "coroutine": "a coroutine",
    "lock": "a lock that another thread or process holds",
}
FixText = tuple[str, str]


class StepWait(msgspec.Struct, frozen=True, kw_only=True):
    """Wait of the training thread at one line, and its share of the step."""

    wait: analysis.LineWait
    share: float

    @property
    def cause(self) -> str:
        """Name of the cause."""
        return PIPELINE_CAUSE if self.wait.pipeline else f"waiting_for_a_{self.wait.kind}"

    @property
    def location(self) -> str:
        """File and line of the wait, or the function of a library."""
        if not self.wait.line:
            return self.wait.file.partition(".<locals>")[0]
        return f"{self.wait.file.rpartition('/')[2]}:{self.wait.line}"

    @property
    def function(self) -> str:
        """Name of the function that fills the wait; '' where it is not known."""
        return self.wait.function.name if self.wait.function is not None else ""

    @property
    def computes(self) -> bool:
        """True if what fills the wait computes, as far as is known."""
        function = self.wait.function
        return function is None or function.computes_ratio >= COMPUTES_RATIO

    def describe(self) -> str:
        """Describe what the training thread waits for, in a sentence."""
        function, pipeline = self.wait.function, self.wait.pipeline
        if self.wait.is_inline:
            work = "prepares batches" if function is None else f"runs {function.location}"
            return f"{pipeline} {work} in the training thread."
        if self.wait.kind == "coroutine" and self.wait.caller and not pipeline and not function:
            return f"{self.wait.caller} awaits at {self.location}, and the event loop has no work."
        if function is None:
            return f"{self.location} waits for {pipeline or _NOUNS[self.wait.kind]}."
        workers, verb = _count_workers(function), "spend their"
        if function.worker_count == 1:
            workers, verb = workers.replace("1", "one", 1), "spends its"
        if pipeline:
            workers = f"{pipeline}, whose {workers}"
        else:
            workers += " that"
        return f"{self.location} waits for {workers} {verb} time in {function.location}."

    def list_evidence(self) -> list[Evidence]:
        """List the share of the line, and what the function that fills it does."""
        wait, function = self.wait, self.wait.function
        location = self.location
        if wait.is_inline:
            location = wait.pipeline if function is None else function.location
        text = f": {wait.text}" if wait.text and not wait.is_inline else "."
        evidence = [
            Evidence(
                text=f"{location} takes {percent(self.share)} of step time{text}",
                value=self.share,
                unit="ratio",
                source="steps",
            )
        ]
        if function is not None and not wait.is_inline:
            does = (
                f"computes in {percent(function.computes_ratio)} of its samples"
                if self.computes
                else f"waits for {_NOUNS[function.waits_for]}"
                if function.waits_for is not None
                else "sleeps, or waits for something without a Python frame"
            )
            evidence.append(
                Evidence(
                    text=f"{function.name} {does}.",
                    value=function.computes_ratio,
                    unit="ratio",
                    source="steps",
                )
            )
        return evidence


def _count_workers(function: analysis.FillingFunction) -> str:
    if function.in_processes:
        return count_of(function.worker_count, "process", "processes")
    return count_of(function.worker_count, "thread")


def list_step_waits(inputs: CauseInputs, *phases: str) -> list[StepWait]:
    """List the waits of the rank that waits longest for batches, largest first."""
    waits = find_line_waits(inputs.starved_rank) or find_line_waits(inputs.run.ranks[0])
    shares = inputs.shares.phases
    listed = [
        StepWait(wait=wait, share=wait.ratio * shares[wait.phase])
        for wait in waits
        if wait.phase in phases
    ]
    sizeable = [wait for wait in listed if wait.share >= MIN_WAIT_RATIO]
    return sorted(sizeable, key=lambda wait: -wait.share)


def list_input_waits(inputs: CauseInputs) -> list[StepWait]:
    """List the waits that count for the data pipeline: those for its batches, as measured, and
    those between the phases for what fills queues, or for what input pipelines run there."""
    timed = list_step_waits(inputs, "data_wait") if inputs.starved_rank.making is None else []
    lines = _list_lines(inputs, "input_wait")
    between = [
        wait
        for wait in list_step_waits(inputs, "other")
        if wait.wait.is_inline or (wait.wait.file, wait.wait.line) in lines
    ]
    return sorted(timed + between, key=lambda wait: -wait.share)


def list_overhead_waits(inputs: CauseInputs) -> list[StepWait]:
    """List the other waits between the phases, for services and programs, largest first."""
    lines = _list_lines(inputs, "wait")
    return [
        wait
        for wait in list_step_waits(inputs, "other")
        if (wait.wait.file, wait.wait.line) in lines
    ]


def _list_lines(inputs: CauseInputs, cause: analysis.HostCause) -> set[tuple[str, int]]:
    return {
        (line.file, line.line)
        for rank in inputs.run.ranks
        if rank.host_work is not None
        for line in rank.host_work.lines
        if line.cause == cause
    }


def sum_waits(inputs: CauseInputs) -> dict[str, float]:
    """Sum the shares of the step of the waits by cause."""
    sums: dict[str, float] = {}
    for wait in list_input_waits(inputs) + list_overhead_waits(inputs):
        sums[wait.cause] = sums.get(wait.cause, 0.0) + wait.share
    return sums


def describe_waits(waits: list[StepWait]) -> CauseFinding:
    """Describe the largest of some waits as a cause; the others contribute."""
    first = waits[0]
    same = [wait for wait in waits if wait.cause == first.cause]
    by_cause: dict[str, StepWait] = {}
    for wait in waits:
        by_cause.setdefault(wait.cause, wait)
    return CauseFinding(
        cause=first.cause,
        site=first.describe(),
        evidence_kind="sampled",
        reason=first.describe(),
        stages=[
            Stage(
                name="waiting" if not first.wait.is_inline else "preparing batches",
                detail=wait.function or wait.wait.pipeline or wait.location,
                share_ratio=wait.share,
            )
            for wait in same[:3]
        ],
        evidence=[text for wait in same[:2] for text in wait.list_evidence()],
        contributing=[
            (cause, wait.share, wait.describe())
            for cause, wait in by_cause.items()
            if wait is not first
        ],
    )


def list_wait_fixes(
    wait: StepWait | None, cores: float | None, *, uses_torch: bool
) -> list[FixText]:
    """List the fixes for a wait, in terms of the library that the job uses.

    Args:
        wait: the longest wait with the cause; None without one.
        cores: cores available to the job; None where not known.
        uses_torch: the job trains with torch.
    """
    if wait is None:
        return []
    if wait.wait.kind == "lock":
        return list_lock_fixes(wait.location)
    if wait.wait.pipeline:
        return _list_pipeline_fixes(wait, cores)
    match wait.wait.kind:
        case "service":
            return [
                (
                    "Ask the service ahead",
                    f"{wait.location}: send the request of the next step before this step "
                    "computes, with concurrent.futures.ThreadPoolExecutor.submit, and take its "
                    ".result() one step later, as far as it does not need this step's results",
                ),
                (
                    "Ask the service less often",
                    "one request for many samples or steps, over one connection that stays open",
                ),
            ]
        case "program":
            return [
                (
                    "Start the program ahead, or less often",
                    f"{wait.location}: start it with subprocess.Popen, train on, and collect its "
                    "output a step later; run it every N steps",
                ),
                (
                    "Keep the program running",
                    "start it once and send it the work of each step through its pipes, or call "
                    "what it does as a library",
                ),
            ]
        case "coroutine":
            return [
                (
                    "Start the next coroutine ahead",
                    f"{wait.location}: asyncio.create_task(...) for the next step before this step "
                    "computes, and await the task one step later; await asyncio.to_thread(step) "
                    "lets the event loop go on while the step computes",
                )
            ]
    return _list_filler_fixes(wait, cores, uses_torch=uses_torch)


def list_lock_fixes(location: str) -> list[FixText]:
    """List the fixes for a lock that a line or function waits for."""
    return [
        (
            "Hold the lock for less time",
            f"{location} waits for a lock that another process or thread holds: read and compute "
            "outside of it, give each process a file or connection of its own instead, or use one "
            "lock for each file. More workers wait for the same lock",
        )
    ]


def _count_more(wait: StepWait, cores: float | None) -> int:
    """Count the workers to advise: twice as many, on the cores there are where they compute."""
    function = wait.wait.function
    present = function.worker_count if function is not None and not wait.wait.is_inline else 0
    more = max(2, 2 * present)
    return more if cores is None or not wait.computes else max(1, present, min(more, int(cores)))


def _list_pipeline_fixes(wait: StepWait, cores: float | None) -> list[FixText]:
    pipeline = next(entry for entry in analysis.PIPELINES if entry.name == wait.wait.pipeline)
    function, more = wait.wait.function, _count_more(wait, cores)
    runs_in_processes = function is not None and function.in_processes
    present = function.worker_count if function is not None else 0
    template = pipeline.processes
    if not template or (pipeline.threads and not wait.computes and not runs_in_processes):
        template = pipeline.threads
    text = template.replace("{function}", wait.function or "function").replace("{more}", str(more))
    title = (
        f"Let {pipeline.name} work ahead"
        if wait.wait.is_inline
        else f"Give {pipeline.name} more workers"
    )
    has_all_cores = runs_in_processes and wait.computes and more <= present
    return [*([] if has_all_cores else [(title, text)]), *_list_cheaper_fix(wait)]


_IN_PROCESSES = "SubprocVecEnv"
"""Class of Stable-Baselines3 that steps environments in processes of their own."""
_IN_THE_TRAINING_PROCESS: FixText = (
    "Step the environments in the training process",
    f"DummyVecEnv instead of {_IN_PROCESSES}: a step of a small environment takes less time than "
    "the exchange with its process; with slow ones, step several in each process",
)


def _list_filler_fixes(wait: StepWait, cores: float | None, *, uses_torch: bool) -> list[FixText]:
    """List the fixes for threads and processes of the job."""
    if _IN_PROCESSES in wait.location and (wait.wait.function is None or not wait.computes):
        return [_IN_THE_TRAINING_PROCESS]
    function, more = wait.wait.function, _count_more(wait, cores)
    ahead = (
        "Submit the work ahead",
        f"{wait.location}: submit the work of the next step before this step computes, and take "
        "the result one step later; a queue holds a few batches",
    )
    if function is None:
        return [ahead]
    if function.in_processes:
        if more <= function.worker_count:
            return [ahead, *_list_cheaper_fix(wait)]
        text = f"{function.name} runs in {_count_workers(function)}: use {more}"
        return [("Use more processes", text), ahead, *_list_cheaper_fix(wait)]
    if wait.computes:
        loader = f", or as a Dataset in torch.utils.data.DataLoader(num_workers={more})"
        return [
            (
                "Fill the queue from processes",
                f"{function.name} computes in {_count_workers(function)}, and the "
                "threads of a process take turns at Python: run it in concurrent.futures."
                f"ProcessPoolExecutor(max_workers={more}){loader if uses_torch else ''}",
            ),
            *_list_cheaper_fix(wait),
        ]
    return [
        (
            "Use more threads",
            f"{function.name} waits rather than computes: concurrent.futures."
            f"ThreadPoolExecutor(max_workers={more}) waits for several at the same time",
        ),
        ahead,
    ]


def _list_cheaper_fix(wait: StepWait) -> list[FixText]:
    if not wait.function:
        return []
    return [
        (
            f"Make {wait.function} cheaper",
            "do what does not depend on the epoch once and keep the result; do the rest for the "
            "whole batch in one call",
        )
    ]
