"""What to do about each cause: concrete, with the settings found in this run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from stepscope.diagnosis.cause import Finding
from stepscope.diagnosis.verdict import CAUSES, LEAST_SAVING, Fix, OtherCause
from stepscope.diagnosis.what_if import WhatIf

OVERLAP = "overlap the waiting"
SPARSE_UPDATES = "update only what changed"
MOSTLY_TABLES = 0.5
"""Sparse updates are the first advice where lookup tables are at least this share of the model."""


def fixes(
    finding: Finding,
    also: Sequence[OtherCause],
    what_if: WhatIf,
    *,
    loader: Mapping[str, Any] | None,
    cores: float | None,
    embedding_ratio: float | None,
) -> list[Fix]:
    """Fixes for a cause and for what is worth one beside it, the most promising first, each with
    what it alone would bring.

    Args:
        loader: the settings of the DataLoader that the job waits for, None without one.
        cores: that the job may use.
        embedding_ratio: share of the parameters that are lookup tables with dense gradients, None
            where that is not known.
    """
    first = finding.evidence[0].text if finding.evidence else "see the shares above"
    own = _own(finding.cause, finding.why or first, what_if, embedding_ratio)
    beside = [
        fix for other in also for fix in _own(other.cause, other.text, what_if, embedding_ratio)[:1]
    ]
    if finding.cause in _PIPELINE_CAUSES:
        settings = _loader_fixes(finding, loader, what_if, cores)
        if finding.cause == "too_few_workers":
            own = settings + own
        else:
            beside += settings
    if finding.cause == "straggler":
        own.insert(1, _equal_ranks(first, what_if))
    return own + sorted(beside, key=_saving, reverse=True)


def _saving(fix: Fix) -> float:
    return 0.0 if fix.prediction is None else fix.prediction.saving_ratio


def _equal_ranks(why: str, what_if: WhatIf) -> Fix:
    return Fix(
        title="make the slow rank as fast as the others",
        how="bring its data closer, see what else runs on its node, whether its GPU throttles, and "
        "how it is connected",
        why=why,
        prediction=what_if.with_equal_ranks(),
    )


def _own(cause: str, why: str, what_if: WhatIf, embedding_ratio: float | None) -> list[Fix]:
    without = what_if.without(cause)
    unlike = {OVERLAP: what_if.with_twice_the_workers()}
    found = [
        Fix(title=title, how=how, why=why, prediction=unlike.get(title, without))
        for title, how in _OWN.get(cause, [])
    ]
    return found if embedding_ratio is None else _for_tables(found, embedding_ratio)


def _for_tables(found: list[Fix], embedding_ratio: float) -> list[Fix]:
    """Sparse updates come first where most parameters are lookup tables, and nowhere where there
    are none."""
    sparse = [fix for fix in found if fix.title == SPARSE_UPDATES]
    others = [fix for fix in found if fix.title != SPARSE_UPDATES]
    if not embedding_ratio or not sparse:
        return others
    if embedding_ratio < MOSTLY_TABLES:
        return found
    tables = f"{embedding_ratio:.0%} of the parameters are embedding tables updated in full"
    return [structs.replace(fix, why=f"{fix.why}; {tables}") for fix in sparse] + others


_PIPELINE_CAUSES = frozenset(CAUSES["data_pipeline"]) - {
    "host_to_device_copies",
    "straggler",
    "uneven_ranks",
}
"""Those that settings of the DataLoader may help with."""

_OWN: dict[str, list[tuple[str, str]]] = {
    "slow_decode": [
        (
            "decode once and cache the result",
            "write the decoded samples to a memory-mapped array (numpy.memmap) or an uncompressed "
            "format in a first pass, and read that every epoch",
        ),
        (
            "decode many samples in one call",
            "read whole row groups or shards and slice them, instead of opening one per sample",
        ),
    ],
    "slow_augmentation": [
        (
            "augment whole batches instead of samples",
            "vectorise the transforms over the batch (NumPy or torch), in collate_fn or after it",
        ),
        (
            "move augmentation to the GPU",
            "apply it to the batch after the copy (torchvision.transforms.v2, kornia, DALI)",
        ),
    ],
    "slow_reads": [
        (
            "read fewer, larger pieces",
            "pack samples into shards (tar, parquet, arrow, mosaic) and read them sequentially",
        ),
        (
            "bring the data closer",
            "copy the dataset to local disk or memory before training, or cache on first use",
        ),
        (
            OVERLAP,
            "these reads wait rather than compute: twice the workers, or a larger prefetch_factor, "
            "cost little CPU until the storage itself is saturated",
        ),
    ],
    "slow_tokenisation": [
        ("tokenise once", "tokenise the corpus before training and store the ids"),
        (
            "use a batched tokenizer",
            "call a fast (Rust) tokenizer on the whole batch in collate_fn",
        ),
    ],
    "slow_collate": [
        (
            "make collating one vectorised operation",
            "pre-allocate the batch tensor once and fill it by slices, or use torch.stack / "
            "pad_sequence instead of Python loops over elements",
        ),
    ],
    "slow_dataset": [
        (
            "look at the dataset's own code",
            "the functions named above take the time; move what does not depend on the epoch out "
            "of __getitem__ and cache it",
        ),
    ],
    "worker_startup": [
        (
            "keep the workers alive between epochs",
            "DataLoader(persistent_workers=True); large datasets held in Python objects also make "
            "start-up slow: keep them in arrays or files",
        ),
    ],
    "batch_handover": [
        (
            "make batches cheaper to hand over",
            "return few large tensors rather than many small objects; use float16/uint8 until the "
            "device; pin_memory=True moves the copy off the training thread",
        ),
    ],
    "inline_data_preparation": [
        (
            "prepare batches beside the training thread",
            "wrap the preparation in a Dataset and let DataLoader(num_workers>0) run it ahead",
        ),
    ],
    "host_to_device_copies": [
        (
            "pin and overlap the copies",
            "DataLoader(pin_memory=True) and tensor.to(device, non_blocking=True)",
        ),
    ],
    "host_sync": [
        (
            "read values from tensors rarely",
            "keep metrics as tensors and call .item() every N steps; each call waits for "
            "everything launched before it",
        ),
        ("print less", "log every N steps; reduce many values to one tensor before reading it"),
    ],
    "logging": [
        (
            "log every N steps",
            "and hand the values to a background thread or an asynchronous logger; draw figures, "
            "pictures and histograms less often still",
        ),
    ],
    "garbage_collection": [
        (
            "keep the garbage collector out of the step",
            "collect less often: gc.freeze() after set-up, gc.disable() in the loop, gc.collect() "
            "between epochs",
        ),
    ],
    "python_overhead": [
        (
            "move work out of the loop",
            "Python runs in every step, at the lines or in the phases named above: do it with "
            "tensor operations, once for several steps, or beside the training",
        ),
    ],
    "small_batch": [
        (
            "give each operator more to do: a larger batch",
            "it costs little while operators are this small; of micro-batches, fewer and larger "
            "ones in a step; and a learning rate to match",
        ),
        (
            "let a compiler fuse the operators",
            "model = torch.compile(model); with fixed shapes also CUDA graphs "
            "(mode='reduce-overhead')",
        ),
    ],
    "tiny_operators": [
        (
            "let a compiler fuse the operators",
            "model = torch.compile(model); with fixed shapes also CUDA graphs "
            "(mode='reduce-overhead')",
        ),
        (
            "replace loops over elements by tensor operations",
            "nn.LSTM instead of a cell in a Python loop, einsum or batched matmul instead of many "
            "small ones, foreach or fused optimizers",
        ),
        (
            "give each operator more to do",
            "a larger batch costs little while operators are this small",
        ),
    ],
    "dispatch_overhead": [
        ("let a compiler fuse the operators", "model = torch.compile(model)"),
        ("give each operator more to do", "a larger batch raises the share of real work"),
    ],
    "checkpoint": [
        ("save less often", "every N minutes rather than every few steps"),
        (
            "save beside the training",
            "copy the state to host memory and write it in a background thread or process "
            "(torch.distributed.checkpoint.async_save)",
        ),
    ],
    "cpu_contention": [
        (
            "get the cores back",
            "stop or move the other processes, or reserve cores for the job (taskset, cpuset, a "
            "cgroup or container limit on the others); if they must stay, torch.set_num_threads "
            "and num_workers to what is free",
        ),
    ],
    "cpu_limit": [
        (
            "give the job more cores",
            "raise the CPU limit of its container or cgroup (Kubernetes: resources.limits.cpu), or "
            "drop the limit and keep the request; until then torch.set_num_threads and num_workers "
            "to what the limit allows: threads beyond it use the quota up sooner and then all "
            "stand still",
        ),
    ],
    "recompilation": [
        (
            "compile once for dynamic shapes",
            "torch.compile(model, dynamic=True), or torch._dynamo.mark_dynamic for the dimension "
            "that changes; TORCH_LOGS=recompiles says what changes",
        ),
        (
            "pad to a few fixed shapes",
            "sort or bucket samples by length and pad each batch to one of a few lengths",
        ),
    ],
    "evaluation": [
        ("evaluate less often", "once an epoch, or every N steps with a larger N"),
        (
            "evaluate less at a time",
            "a fixed part of the data tells the trend; larger batches under "
            "torch.inference_mode() make it cheaper",
        ),
    ],
    "memory_leak": [
        (
            "do not keep what every step makes",
            "keep a running sum or mean (detached: loss.item() or loss.detach()) instead of a list "
            "that grows and is gone through again in every step",
        ),
    ],
    "straggler": [
        (
            "spread the work evenly over the ranks",
            "move what only one rank does to a process of its own; shuffle before sharding",
        ),
    ],
    "uneven_ranks": [
        (
            "give the ranks even data",
            "shuffle before sharding, or bucket by length so that all ranks get batches of about "
            "the same size in the same step",
        ),
    ],
    "gradient_accumulation": [
        (
            "exchange gradients once a step",
            "wrap all but the last backward pass of a step in model.no_sync(): gradients "
            "accumulate locally and are exchanged together",
        ),
    ],
    "optimizer": [
        (
            "use a fused or foreach optimizer",
            "torch.optim.AdamW(..., fused=True) updates all parameters in a few kernels",
        ),
        (
            SPARSE_UPDATES,
            "embedding tables: nn.Embedding(sparse=True) with SparseAdam or Adagrad touches only "
            "the rows of the batch",
        ),
        ("step less often", "accumulate gradients over several micro-batches"),
    ],
    "compute": [
        (
            "make the arithmetic cheaper",
            "mixed precision (torch.autocast), torch.compile, fused attention "
            "(scaled_dot_product_attention)",
        ),
        (
            "a smaller model, or more or faster devices",
            "the hardware is busy with the model and nothing is in its way: otherwise accept it",
        ),
    ],
    "gradient_exchange": [
        (
            "exchange less, or hide it better",
            "accumulate gradients under model.no_sync(), raise bucket_cap_mb, "
            "gradient_as_bucket_view=True, or compress with a bf16 communication hook",
        ),
        (
            "give each rank more to compute",
            "a larger batch per rank makes the exchange relatively smaller",
        ),
    ],
    "collectives": [
        (
            "overlap or merge the collectives",
            "async_op=True and wait later; reduce several values in one tensor; log metrics from "
            "rank 0 every N steps",
        ),
    ],
}


def _loader_fixes(
    finding: Finding,
    loader: Mapping[str, Any] | None,
    what_if: WhatIf,
    cores: float | None,
) -> list[Fix]:
    if loader is None:
        return []
    found = []
    workers = what_if.best_workers()
    count = int(loader["num_workers"])
    if workers is not None and workers.workers > count:
        found.append(
            Fix(
                title=f"use {workers.workers} DataLoader workers instead of {count}",
                how=f"DataLoader(num_workers={workers.workers}, prefetch_factor=4, "
                "persistent_workers=True)",
                why=f"the job may use {cores:g} cores; by the times measured the step would take "
                f"about {workers.step_ns / 1e6:.0f} ms, {workers.data_ratio:.0%} of it waiting",
                prediction=what_if.with_workers(workers.workers),
            )
        )
    evened = what_if.evened_out()
    helps = evened is not None and evened.saving_ratio >= LEAST_SAVING
    if count and helps and not found and (loader["prefetch_factor"] or 2) < 4:
        found.append(
            Fix(
                title="prefetch more",
                how="DataLoader(prefetch_factor=4) evens out slow batches",
                why=f"prefetch_factor is {loader['prefetch_factor']}",
                prediction=evened,
            )
        )
    if count and not loader["persistent_workers"] and finding.cause == "worker_startup":
        found.append(
            Fix(
                title="persistent workers",
                how="DataLoader(persistent_workers=True)",
                why="persistent_workers is False: every epoch starts its workers again",
                prediction=what_if.without("worker_startup"),
            )
        )
    return found
