"""Compilations of torch.compile in a real script."""

from __future__ import annotations

import pytest

from tests.conftest import Spool

SCRIPT = """
import torch

model = torch.nn.Linear(4, 1)
compiled = torch.compile(model, backend="aot_eager", dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for rows in (2, 2, 3, 3, 2):
    compiled(torch.ones(rows, 4)).sum().backward()
    optimizer.step()
"""


@pytest.mark.extended("compiles for seconds")
def test_every_new_shape_is_a_compilation_inside_its_forward_pass(spool: Spool) -> None:
    spool.run_torch(SCRIPT)
    recorded = spool.drain()
    assert not recorded.notes
    forward = sorted(recorded.of("forward"), key=lambda r: r.start)
    assert len(forward) == 5
    compiled = [
        [
            r.value
            for r in recorded.of("compile")
            if forward_pass.start <= r.start and r.end <= forward_pass.end
        ]
        for forward_pass in forward
    ]
    first, _, new_shape, _, _ = compiled
    assert 0 in first
    assert 1 in new_shape, "the same code was compiled once before"
    assert [len(compilations) for compilations in compiled] == [len(first), 0, len(new_shape), 0, 0]
    assert all(span.duration > 0 and span.depth == 1 for span in recorded.of("compile"))


CACHED = """
import torch

import stepscope.capture.frameworks.pytorch.nan_search.values as operators
from stepscope.capture.frameworks.pytorch import patching

skipped = []
patching._find_skip_code = lambda: skipped.append
patching.hide_from_compiler()
assert operators.short_name.__code__ in skipped
assert operators.traits_of.__wrapped__.__code__ in skipped
"""


def test_the_compiler_skips_functions_with_a_cache_too(spool: Spool) -> None:
    """A function under `functools.cache` is no Python function, and has its code inside."""
    spool.run_torch(CACHED)
