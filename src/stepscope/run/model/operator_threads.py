"""Threads that execute the operators of a training process, by its recorded settings."""

from __future__ import annotations

from stepscope import schema


def executes_with_jax(process: schema.ProcessInfo) -> bool:
    """Return whether JAX executes the operators of a process, compiled or one by one."""
    backend = process.versions.get("keras_backend")
    if backend:
        return backend == "jax"
    return "jax" in process.versions and "torch" not in process.versions


def waits_for_threads(process: schema.ProcessInfo) -> bool:
    """Return whether the training thread waits for the other threads that compute, because they
    share its operators. JAX only enqueues operators, and torch may compute in one thread."""
    settings = process.facts_of(schema.SettingsFact)
    shares_operators = not settings or any(fact.intra_op_threads > 1 for fact in settings)
    return shares_operators and not executes_with_jax(process)
