"""Fixes for jobs of JAX and TensorFlow, and the changes by which `stepscope try` measures fixes.

Changes that `stepscope try` makes to measure a fix, by the title of the fix. A fix is here where a
change of a setting does what it recommends, or bounds it: samples from memory take as long as
samples that were prepared before training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stepscope import schema
from stepscope.diagnosis.causes.job_facts import JobFacts
from stepscope.diagnosis.fixes import fact_fixes
from stepscope.diagnosis.shares.debug_switches import VARIABLES

_ONE_CALL: fact_fixes.FixText = (
    "Compile the whole step",
    "call one function under jax.jit per step, which computes the loss, its gradient and the "
    "update; run several steps in one call with jax.lax.scan",
)

JAX_FIXES: Mapping[str, list[fact_fixes.FixText]] = {
    "recompilation": [
        (
            "Keep shapes, types and static arguments the same",
            "pad batches to one of a few shapes and drop the smaller last one; pass numbers that "
            "change as arrays, not as static arguments; call jax.jit once, outside of the loop. "
            "JAX_EXPLAIN_CACHE_MISSES=1 logs the reason of each compilation",
        ),
        (
            "Keep compiled functions between runs",
            "JAX_COMPILATION_CACHE_DIR=DIRECTORY stores them; the first steps of the next run "
            "compile nothing",
        ),
    ],
    "dispatch_overhead": [_ONE_CALL],
    "python_overhead": [
        (
            "Move the work under jax.jit",
            "what the script does with arrays outside of compiled functions runs one operation at "
            "a time",
        )
    ],
    "compute": [
        (
            "Compute in bfloat16",
            "cast parameters and inputs to jax.numpy.bfloat16 in the loss function and keep the "
            "originals in float32; on a GPU or TPU JAX_DEFAULT_MATMUL_PRECISION=bfloat16 does so "
            "for matrix products alone",
        ),
        (
            "Donate the state",
            "jax.jit(step, donate_argnums=(0,)) reuses the memory of parameters and optimizer "
            "state instead of copying them",
        ),
    ],
    "host_sync": [
        (
            "Read values every N steps",
            "float(loss) waits for the device: collect losses as arrays, and read them later",
        )
    ],
}
"""Fixes by cause; other causes have those of any job."""


# https://www.tensorflow.org/api_docs/python/tf/function and, for the rules of retracing,
# https://www.tensorflow.org/guide/function
TENSORFLOW_FIXES: Mapping[str, list[fact_fixes.FixText]] = {
    "recompilation": [
        (
            "Trace once for all shapes",
            "tf.function(step, reduce_retracing=True), or input_signature=[tf.TensorSpec(...)] "
            "with None for the dimension that changes; pass numbers that change as tensors, not as "
            "Python numbers; call tf.function once, outside of the loop",
        ),
        (
            "Pad to a few fixed shapes",
            "pad each batch to one of a few lengths, and drop the smaller last batch: "
            "dataset.batch(size, drop_remainder=True)",
        ),
    ]
}


# https://www.tensorflow.org/guide/data_performance and https://docs.jax.dev/en/latest/async_dispatch.html
_COPIES_AHEAD_OF_JAX: fact_fixes.FixText = (
    "Copy the next batch ahead",
    "call jax.device_put on batch N+1 before the results of step N are read: it returns at once",
)
_WHOLE_STEP: fact_fixes.FixText = (
    "Compile the whole step with XLA",
    "compute loss, gradient and update in one tf.function(step, jit_compile=True), which fuses "
    "operators; in Keras model.compile(..., jit_compile=True), and steps_per_execution=N runs "
    "several steps in one call",
)
RECORDER_FIXES: Mapping[str, Mapping[str, list[fact_fixes.FixText]]] = {
    "JAX": {
        **JAX_FIXES,
        "tiny_operators": [_ONE_CALL],
        "host_to_device_copies": [_COPIES_AHEAD_OF_JAX],
    },
    "TensorFlow": {
        **TENSORFLOW_FIXES,
        "slow_dataset": [
            (
                "Make batches in parallel, and ahead",
                "dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE) and "
                ".prefetch(tf.data.AUTOTUNE) at the end; from_generator and py_function run Python "
                "in one thread, so replace them by operators of TensorFlow, or interleave several "
                "datasets with num_parallel_calls",
            ),
            (
                "Do the work once",
                "dataset.cache() behind stages that give the same elements in every epoch",
            ),
        ],
        "dispatch_overhead": [_WHOLE_STEP],
        "tiny_operators": [_WHOLE_STEP],
        "python_overhead": [
            (
                "Move work out of the loop",
                "do the script's own Python once for several steps, or in dataset.map",
            )
        ],
        "host_sync": [
            (
                "Read values every N steps",
                "float(loss) and .numpy() wait for the device: collect losses as tensors, and read "
                "them later",
            )
        ],
        "compute": [
            (
                "Compute in 16 bits",
                "keras.mixed_precision.set_global_policy('mixed_bfloat16'), or 'mixed_float16' on "
                "GPUs before Ampere",
            )
        ],
        "host_to_device_copies": [
            (
                "Copy batches ahead",
                "dataset.apply(tf.data.experimental.prefetch_to_device('/gpu:0')) as its last "
                "stage",
            )
        ],
    },
}
"""Fixes by framework and cause; traces of other frameworks, and other causes, have none."""


BATCH_FACTOR = 2
"""Factor of the batch size of a trial, that of the prediction."""


def list_changes(title: str, facts: JobFacts) -> list[schema.Change]:
    """List the changes for a fix; none where it needs an edit of the script."""
    find = _CHANGES.get(title)
    values = find(facts) if find is not None else {}
    return [schema.Change(name=name, value=value) for name, value in values.items()]


def _compile(facts: JobFacts) -> dict[str, str]:
    return {} if facts.is_compiled else {"compile": "default"}


def _enlarge_batch(facts: JobFacts) -> dict[str, str]:
    size = facts.loader.batch_size if facts.loader is not None else None
    return {"batch_size": str(BATCH_FACTOR * size)} if isinstance(size, int) else {}


def _cache_samples(facts: JobFacts) -> dict[str, str]:
    is_map_style = facts.loader is not None and facts.loader.iterable is False
    return {"cached_samples": "memory"} if is_map_style else {}


def _keep_workers(facts: JobFacts) -> dict[str, str]:
    has_workers = facts.loader is not None and facts.loader.num_workers > 0
    return {"persistent_workers": "True"} if has_workers else {}


def _double_workers(facts: JobFacts) -> dict[str, str]:
    if facts.loader is None:
        return {}
    return {"num_workers": str(2 * (facts.loader.num_workers or 1))}


def _pin_memory(facts: JobFacts) -> dict[str, str]:
    is_useful = facts.loader is not None and not facts.loader.pin_memory and not facts.is_cpu_job
    return {"pin_memory": "True"} if is_useful else {}


def _choose_kernels(facts: JobFacts) -> dict[str, str]:
    kernels = fact_fixes.choose_optimizer_kernels(facts)
    return {} if kernels is None else {"optimizer": kernels}


def _turn_off_debugging(facts: JobFacts) -> dict[str, str]:
    settings = facts.settings
    if settings is None:
        return {}
    changes = {"anomaly_detection": "off"} if settings.anomaly_detection else {}
    for name, variable in VARIABLES.items():
        if settings.variables.get(name) not in {None, *variable.harmless}:
            changes["debug_variables"] = "off"
    return changes


_CHANGES: Mapping[str, Callable[[JobFacts], dict[str, str]]] = {
    fact_fixes.COMPILE: _compile,
    fact_fixes.TWICE_THE_BATCH: _enlarge_batch,
    fact_fixes.CACHE: _cache_samples,
    fact_fixes.LOCAL_DATA: _cache_samples,
    fact_fixes.TOKENISE_ONCE: _cache_samples,
    fact_fixes.TRANSFORM_ONCE: _cache_samples,
    fact_fixes.KEEP_WORKERS: _keep_workers,
    fact_fixes.OVERLAP: _double_workers,
    fact_fixes.PIN: _pin_memory,
    fact_fixes.OPTIMIZER_KERNELS: _choose_kernels,
    fact_fixes.DEBUG: _turn_off_debugging,
}
