"""Fixes of causes in jobs whose functions JAX compiles, where those for torch do not apply."""

from __future__ import annotations

from collections.abc import Mapping

from stepscope.diagnosis.fact_fixes import FixText

_ONE_CALL: FixText = (
    "Compile the whole step",
    "call one function under jax.jit per step, which computes the loss, its gradient and the "
    "update; run several steps in one call with jax.lax.scan",
)

JAX_FIXES: Mapping[str, list[FixText]] = {
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
        ),
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
        ),
    ],
}
"""Fixes by cause; other causes have those of any job."""
