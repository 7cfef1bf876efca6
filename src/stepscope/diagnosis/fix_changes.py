"""Changes that `stepscope try` makes to measure a fix, by the title of the fix.

A fix is here where a change of a setting does what it recommends, or bounds it: samples from memory
take as long as samples that were prepared before training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stepscope.diagnosis.debug_switches import VARIABLES
from stepscope.diagnosis.fact_fixes import choose_optimizer_kernels
from stepscope.diagnosis.fix_titles import (
    CACHE,
    COMPILE,
    DEBUG,
    KEEP_WORKERS,
    LARGER_BATCH,
    LOCAL_DATA,
    OPTIMIZER_KERNELS,
    OVERLAP,
    PIN,
    SMALL_BATCH,
    TOKENISE_ONCE,
)
from stepscope.diagnosis.job_facts import JobFacts
from stepscope.schema import Change

BATCH_FACTOR = 2
"""Factor of the batch size of a trial, that of the prediction."""


def list_changes(title: str, facts: JobFacts) -> list[Change]:
    """List the changes for a fix; none where it needs an edit of the script."""
    find = _CHANGES.get(title)
    values = find(facts) if find is not None else {}
    return [Change(name=name, value=value) for name, value in values.items()]


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
    kernels = choose_optimizer_kernels(facts)
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
    COMPILE: _compile,
    LARGER_BATCH: _enlarge_batch,
    SMALL_BATCH: _enlarge_batch,
    CACHE: _cache_samples,
    LOCAL_DATA: _cache_samples,
    TOKENISE_ONCE: _cache_samples,
    KEEP_WORKERS: _keep_workers,
    OVERLAP: _double_workers,
    PIN: _pin_memory,
    OPTIMIZER_KERNELS: _choose_kernels,
    DEBUG: _turn_off_debugging,
}
