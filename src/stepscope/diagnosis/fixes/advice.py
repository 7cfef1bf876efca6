"""Recommended fixes of each cause, with the settings of the run."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from stepscope import quantities, schema
from stepscope.diagnosis.causes.cause import CauseFinding
from stepscope.diagnosis.causes.job_facts import JobFacts
from stepscope.diagnosis.fixes import fact_fixes
from stepscope.diagnosis.fixes.framework_fixes import RECORDER_FIXES, list_changes
from stepscope.diagnosis.fixes.what_if import WhatIf
from stepscope.diagnosis.measured import is_often_wrong
from stepscope.diagnosis.shares.pipeline_model import WorkerEstimate
from stepscope.diagnosis.verdict import CAUSES, MIN_SAVING_RATIO, ContributingCause, Fix
from stepscope.quantities import count_of, duration, percent


def list_fixes(
    finding: CauseFinding,
    contributing: Sequence[ContributingCause],
    what_if: WhatIf,
    facts: JobFacts,
) -> list[Fix]:
    """List the fixes for the cause of the verdict, then those for contributing causes by saving,
    each with the predicted effect of that fix alone."""
    first = finding.evidence[0].text if finding.evidence else "See the breakdown above."
    reason = finding.reason or first
    main_fixes = _list_cause_fixes(finding.cause, reason, what_if, facts)
    other_fixes = [
        fix
        for cause in contributing
        for fix in _list_cause_fixes(cause.cause, cause.text, what_if, facts)[:1]
    ]
    if finding.cause in _PIPELINE_CAUSES:
        loader_fixes = _list_loader_fixes(facts.loader, what_if, facts.cores)
        if finding.cause == "too_few_workers":
            main_fixes = loader_fixes + main_fixes
        elif finding.cause == "too_many_workers":
            main_fixes = _list_fewer_workers_fix(first, facts.loader, what_if)
        else:
            other_fixes += loader_fixes
    if finding.cause == "straggler":
        main_fixes.insert(1, _make_straggler_fix(finding, first, what_if, facts))
        main_fixes.sort(key=_get_saving, reverse=True)
    main_titles = {fix.title for fix in main_fixes}
    other_fixes = [fix for fix in other_fixes if fix.title not in main_titles]
    fixes = main_fixes + sorted(other_fixes, key=_get_saving, reverse=True)
    if not any(fix.title == fact_fixes.DEBUG for fix in fixes):
        fixes += _list_debug_fixes(facts)
    return [_name_switches(fix, facts) for fix in sorted(fixes, key=is_often_wrong)]


def leave_out_useless(fixes: Sequence[Fix]) -> list[Fix]:
    """Leave out the fixes after the first that are predicted to save nothing alone, neither of the
    step nor of the job."""
    return [fix for index, fix in enumerate(fixes) if not index or _may_save(fix)]


def _may_save(fix: Fix) -> bool:
    if fix.prediction is None:
        return True
    saving_ratio = max(fix.prediction.saving_ratio, fix.job_saving_ratio or 0.0)
    return saving_ratio >= MIN_SAVING_RATIO


def _name_switches(fix: Fix, facts: JobFacts) -> Fix:
    """Name the debug switches in the title of the fix that turns them off."""
    if fix.title != fact_fixes.DEBUG or not facts.debug_switches:
        return fix
    switches = "switch" if len(facts.debug_switches) == 1 else "switches"
    title = f"Turn the debug {switches} off: {', '.join(facts.debug_switches)}"
    return replace(fix, title=title)


def _list_debug_fixes(facts: JobFacts) -> list[Fix]:
    """Recommend to turn debug switches off that are not known as a cause, if that can be tried."""
    changes = list_changes(fact_fixes.DEBUG, facts)
    if not changes:
        return []
    ((title, instructions),) = CAUSE_FIXES["debug_switch"]
    why = "A debug switch is on, and its cost is not known; see the notes."
    return [Fix(title=title, instructions=instructions, why=why, changes=changes)]


def list_even_changes(finding: CauseFinding, what_if: WhatIf, facts: JobFacts) -> list[str]:
    """Describe changes of workers and threads that come to mind and are predicted to be even."""
    is_inline = finding.cause == "inline_data_preparation"
    if finding.cause not in _PIPELINE_CAUSES or (facts.loader is None and not is_inline):
        return []
    reason = what_if.refuse_workers(is_inline=is_inline)
    return [f"More DataLoader workers are no fix here: {reason}."] if reason else []


def list_refusals(what_if: WhatIf, facts: JobFacts, overhead: str) -> dict[str, str]:
    """List the advice of rules that the verdict refuses, with the reason, by rule.

    Args:
        what_if: predictions for the job.
        facts: its facts.
        overhead: reason for which overhead beyond its threshold is no bottleneck; '' for none.
    """
    refused = {"FrameworkOverhead": overhead} if overhead else {}
    workers = what_if.refuse_workers(is_inline=False) if facts.loader is not None else ""
    if workers:
        refused |= dict.fromkeys(("Dataloader", "DataloaderBottleneck"), workers)
    return refused


def _get_saving(fix: Fix) -> float:
    return 0.0 if fix.prediction is None else fix.prediction.saved_ns


def _make_straggler_fix(
    finding: CauseFinding, reason: str, what_if: WhatIf, facts: JobFacts
) -> Fix:
    instructions = (
        "bring its data closer, check for other processes on its node, for "
        f"{'' if facts.is_cpu_job else 'GPU '}throttling, and for a slower network link"
    )
    if finding.fixed_line:
        instructions = "do the work of that line on no rank, once for several steps, or beside the "
        instructions += "training"
    return Fix(
        title="Make the slow rank as fast as the others",
        instructions=instructions,
        why=finding.site or reason,
        prediction=what_if.predict_with_equal_ranks(),
    )


def _list_cause_fixes(cause: str, reason: str, what_if: WhatIf, facts: JobFacts) -> list[Fix]:
    texts = _list_texts(cause, facts)
    without_cause = what_if.predict_without(cause)
    special = {
        fact_fixes.COMPILE: what_if.predict_without("dispatch_overhead"),
        fact_fixes.CALL_LESS: what_if.predict_without_framework_calls(),
        fact_fixes.TWICE_THE_BATCH: what_if.predict_without("small_batch"),
        fact_fixes.OVERLAP: what_if.predict_with_twice_the_workers(),
        fact_fixes.COMPILE_PREPARATION: what_if.predict_without_preparation(),
        fact_fixes.PREPARE_ONCE: what_if.predict_without_preparation(),
    }
    if cause != "optimizer":
        special[fact_fixes.OPTIMIZER_KERNELS] = what_if.predict_without_optimizer_calls()
    return [
        Fix(
            title=title,
            instructions=instructions,
            why=f"{reason} {_describe_tables(facts)}"
            if title == fact_fixes.SPARSE_UPDATES
            else reason,
            prediction=special.get(title, without_cause),
            changes=list_changes(title, facts),
        )
        for title, instructions in texts
        if (title != fact_fixes.PREPARE_BESIDE or not what_if.is_inline_even)
        and (title != fact_fixes.OVERLAP or not what_if.has_no_use_for_workers)
    ]


def _list_texts(cause: str, facts: JobFacts) -> list[fact_fixes.FixText]:
    framework = "JAX" if facts.uses_jax else "TensorFlow" if facts.uses_tensorflow else ""
    fixes = RECORDER_FIXES.get(framework, {})
    if cause in fixes:
        return fixes[cause]
    return (
        fact_fixes.FACT_FIXES[cause](facts)
        if cause in fact_fixes.FACT_FIXES
        else CAUSE_FIXES.get(cause, [])
    )


def _describe_tables(facts: JobFacts) -> str:
    if facts.embedding_ratio is None:
        return "Only where the model has embedding tables."
    return (
        f"{percent(facts.embedding_ratio)} of the parameters are embedding tables that are updated "
        "in full."
    )


_PIPELINE_CAUSES = frozenset(CAUSES["data_pipeline"]) - {
    "host_to_device_copies",
    "straggler",
    "uneven_ranks",
}
"""Causes that settings of the DataLoader may help with."""

CAUSE_FIXES: dict[str, list[tuple[str, str]]] = {
    "slow_decode": [
        (
            fact_fixes.CACHE,
            "write the decoded samples to a memory-mapped array (numpy.memmap) or an uncompressed "
            "format in a first pass, and read that in every epoch",
        ),
        (
            "Decode many samples in one call",
            "read whole row groups or shards and slice them, instead of opening one per sample",
        ),
    ],
    "slow_reads": [
        (
            "Read fewer, larger pieces",
            "pack samples into shards (tar, parquet, arrow, mosaic) and read them sequentially",
        ),
        (
            fact_fixes.LOCAL_DATA,
            "copy the dataset to local disk or memory before training, or cache it on first use",
        ),
        (
            fact_fixes.OVERLAP,
            "these reads wait rather than compute: twice the workers, or a larger prefetch_factor, "
            "cost little CPU until the storage itself is saturated",
        ),
    ],
    "slow_tokenisation": [
        (fact_fixes.TOKENISE_ONCE, "tokenise the corpus before training and store the ids"),
        (
            "Use a batched tokenizer",
            "call a fast (Rust) tokenizer on the whole batch in collate_fn",
        ),
    ],
    "slow_collate": [
        (
            "Make collating one vectorised operation",
            "pre-allocate the batch tensor once and fill it by slices, or use torch.stack / "
            "pad_sequence instead of Python loops over elements",
        )
    ],
    "worker_startup": [
        (
            fact_fixes.KEEP_WORKERS,
            "DataLoader(persistent_workers=True); large datasets held in Python objects also make "
            "start-up slow: keep them in arrays or files",
        )
    ],
    "host_to_device_copies": [
        (fact_fixes.PIN, "DataLoader(pin_memory=True) and tensor.to(device, non_blocking=True)")
    ],
    "logging": [
        (
            "Log every N steps",
            "hand the values to a background thread or an asynchronous logger; draw figures, "
            "pictures and histograms even less often",
        )
    ],
    "sleeping": [
        (
            "Do not sleep in the loop",
            "let a thread of its own poll, throttle or try again, take its results from a queue "
            "when they are there, and wait only for what the next step needs",
        )
    ],
    "garbage_collection": [
        (
            "Keep the garbage collector out of the step",
            "collect less often: gc.freeze() after set-up, gc.disable() in the loop, gc.collect() "
            "between epochs",
        )
    ],
    "memory_allocation": [
        (
            "Let the allocator keep its memory",
            "do not call torch.cuda.empty_cache() in the loop; use "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where shapes vary, and a smaller "
            "batch where the device's memory is full",
        )
    ],
    "long_calls": [
        (
            "Make the long calls once, before the loop",
            "pinned buffers, CUDA graphs, streams and modules can be kept from step to step",
        )
    ],
    "device_to_host_copies": [
        (
            "Copy to the host beside the computation",
            "with torch.cuda.stream(copy_stream): pinned.copy_(tensor, non_blocking=True), on a "
            "stream that waits for the tensor, so that later kernels need not wait for the copy",
        )
    ],
    "full_precision": [
        (
            "Use tensor cores",
            "torch.autocast('cuda', dtype=torch.bfloat16) (float16 before Ampere), or "
            "torch.set_float32_matmul_precision('high') from Ampere on",
        )
    ],
    "low_occupancy": [
        (fact_fixes.LARGER_BATCH, "a larger batch fills the multiprocessors that are idle now")
    ],
    "job_profiler": [
        (
            "Profile fewer steps",
            "let torch.profiler.schedule record a few steps once, and read the result "
            "(events(), key_averages(), the exported trace) after the training",
        )
    ],
    "model_callbacks": [
        (
            "Do less in what the model calls",
            "register a hook for the steps whose values are read, and remove it with "
            "handle.remove(): one that is registered in every step runs once more in each; in an "
            "objective, replace loops over rows by operations on arrays",
        )
    ],
    "debug_switch": [
        (
            fact_fixes.DEBUG,
            "remove it from the script or the environment, or restrict it to the few steps that "
            "are being debugged",
        )
    ],
    "checkpoint": [
        ("Save less often", "every N minutes rather than every few steps"),
        (
            "Save beside the training",
            "copy the state to host memory and write it in a background thread or process "
            "(torch.distributed.checkpoint.async_save)",
        ),
    ],
    "recompilation": [
        (
            "Compile once for dynamic shapes",
            "torch.compile(model, dynamic=True), or torch._dynamo.mark_dynamic for the dimension "
            "that changes; TORCH_LOGS=recompiles shows the changes",
        ),
        (
            "Pad to a few fixed shapes",
            "sort or bucket samples by length and pad each batch to one of a few lengths",
        ),
    ],
    "memory_leak": [
        (
            "Do not accumulate results over steps",
            "keep a running sum or mean (detached: loss.item() or loss.detach()) instead of a list "
            "that grows and is read again in every step",
        )
    ],
    "straggler": [
        (
            "Spread the work evenly over the ranks",
            "move work that only one rank does to a separate process; shuffle before sharding",
        )
    ],
    "uneven_ranks": [
        (
            "Give the ranks even data",
            "bucket by length so that all ranks get batches of about the same size in the same "
            "step; where batches are padded, shuffling alone puts a long sample into each of them",
        )
    ],
    "gradient_accumulation": [
        (
            "Exchange gradients once a step",
            "wrap all but the last backward pass of a step in model.no_sync(): gradients "
            "accumulate locally and are exchanged together",
        )
    ],
    "gradient_exchange": [
        (
            "Exchange less, or hide it better",
            "accumulate gradients under model.no_sync(), raise bucket_cap_mb, "
            "gradient_as_bucket_view=True, or compress with a bf16 communication hook",
        ),
        (
            "Give each rank more to compute",
            "a larger batch per rank makes the exchange relatively smaller",
        ),
    ],
    "collectives": [
        (
            "Overlap or merge the collectives",
            "async_op=True and wait later; reduce several values in one tensor; log metrics from "
            "rank 0 every N steps",
        )
    ],
}
"""Title and instructions of the fixes of each cause, most promising first. The words of both are
compared with the true fixes of the diagnosis benchmark."""


def _make_workers_fix(
    best: WorkerEstimate, workers: int, what_if: WhatIf, cores: float | None
) -> Fix:
    """Recommend the best numbers of workers and intra-op threads."""
    threads = what_if.intra_op_threads
    titles, settings, changes = [], [], []
    if best.workers != workers:
        arguments = {"num_workers": str(best.workers)}
        if best.workers:
            arguments |= {"prefetch_factor": "4", "persistent_workers": "True"}
        titles.append(f"{count_of(best.workers, 'DataLoader worker')} instead of {workers}")
        assignments = ", ".join(f"{name}={value}" for name, value in arguments.items())
        settings.append(f"DataLoader({assignments})")
        changes += [schema.Change(name=name, value=value) for name, value in arguments.items()]
    if best.threads != threads:
        titles.append(f"{count_of(best.threads, 'intra-op thread')} instead of {threads}")
        settings.append(f"torch.set_num_threads({best.threads})")
        changes.append(schema.Change(name="intra_op_threads", value=str(best.threads)))
    return Fix(
        title=f"Use {' and '.join(titles)}",
        instructions="; ".join(settings),
        why=f"{quantities.number(cores)} cores are available for workers and "
        f"{count_of(threads, 'intra-op thread')}; at the measured times, a step would take about "
        f"{duration(best.step_ns)}, {percent(best.data_ratio)} of it waiting for batches.",
        prediction=what_if.predict_with_workers(best.workers, best.threads),
        changes=changes,
    )


def _list_fewer_workers_fix(
    reason: str, loader: schema.DataLoaderFact | None, what_if: WhatIf
) -> list[Fix]:
    """Recommend as many workers as there are cores, where there are many more."""
    fewer = what_if.find_fewer_workers()
    if loader is None or fewer is None:
        return []
    workers, prediction = fewer
    return [
        Fix(
            title=f"Use {count_of(workers, 'DataLoader worker')} instead of {loader.num_workers}",
            instructions=f"DataLoader(num_workers={workers}): more workers than cores wait for "
            "each other, and each has to be started",
            why=reason,
            prediction=prediction,
            changes=[schema.Change(name="num_workers", value=str(workers))],
        )
    ]


def _list_loader_fixes(
    loader: schema.DataLoaderFact | None, what_if: WhatIf, cores: float | None
) -> list[Fix]:
    """List changes of the DataLoader's settings that would help."""
    if loader is None:
        return []
    fixes = []
    best = what_if.find_best_workers()
    workers = loader.num_workers
    if best is not None:
        fixes.append(_make_workers_fix(best, workers, what_if, cores))
    steady = what_if.predict_without_late_batches()
    helps = steady is not None and steady.saving_ratio >= MIN_SAVING_RATIO
    if workers and helps and not fixes and (loader.prefetch_factor or 2) < 4:
        fixes.append(
            Fix(
                title="Prefetch more",
                instructions="DataLoader(prefetch_factor=4) absorbs slow batches",
                why=f"prefetch_factor is {loader.prefetch_factor}.",
                prediction=steady,
                changes=[schema.Change(name="prefetch_factor", value="4")],
            )
        )
    return fixes
