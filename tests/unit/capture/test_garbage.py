"""Collections of Python's garbage collector in real scripts."""

from __future__ import annotations

from typing import Any

import pytest

SCRIPT = """
import gc, os
import torch

objects = [{"number": n} for n in range(300_000)]
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

class Collects(torch.nn.Module):
    def forward(self, x):
        if collecting:
            gc.collect()  # in the forward pass
        return model(x)

outer = Collects()
for collecting in (False, True, True, False):
    outer(torch.ones(2, 4)).sum().backward()
    optimizer.step()
gc.collect()  # after the steps
gc.collect(0)
few = [[n] for n in range(100_000)]
gc.set_threshold(1_000_000)
outer(torch.ones(2, 4)).sum().backward()
optimizer.step()
many = [[n] for n in range(500_000)]
gc.collect(0)  # of more new objects than usual
if os.fork() == 0:
    gc.collect()
    os._exit(0)
os.wait()
"""


@pytest.fixture(scope="module")
def recorded(module_spool: Any) -> Any:
    module_spool.run_torch(SCRIPT)
    return module_spool.drain()


def test_a_collection_is_nested_in_its_forward_pass(recorded: Any) -> None:
    forward = sorted(recorded.of("forward"), key=lambda r: r.start)
    collections = recorded.of("garbage_collection")
    inside = [[c for c in collections if f.start <= c.start and c.end <= f.end] for f in forward]
    assert [len(collections_in_pass) for collections_in_pass in inside] == [0, 1, 1, 0, 0]
    assert all(c.depth == 1 for collections_in_pass in inside for c in collections_in_pass)
    assert not recorded.notes


def test_a_collection_has_its_generation_and_the_line_of_user_code(recorded: Any) -> None:
    script = SCRIPT.splitlines()
    causes = []
    for collection in recorded.of("garbage_collection"):
        assert collection.end - collection.start >= 100_000
        file, _, number = collection.name.rpartition(":")
        assert file.endswith(".py")
        line = script[int(number) - 1]
        if "# " in line:  # other collections were triggered by allocations
            causes.append((collection.value, line.partition("# ")[2]))
    assert sorted(causes) == [
        (0, "of more new objects than usual"),
        (2, "after the steps"),
        (2, "in the forward pass"),
        (2, "in the forward pass"),
    ]
    # Of about a hundred small ones, of microseconds each, one is timed; a forked child has none.
    collections = recorded.of("garbage_collection")
    assert len([c for c in collections if c.value == 0]) == 1
    assert len({c.process for c in collections}) == 1


def test_collections_in_a_process_that_does_not_train_open_no_session(spool: Any) -> None:
    spool.run_torch("import gc, torch\nobjects = [[n] for n in range(300_000)]\ngc.collect()\n")
    assert not list(spool.path.rglob("journal.jsonl"))
