"""Sizes of inputs and modes of modules, as recorded with forward passes."""

from __future__ import annotations

from typing import Any

import pytest

from stepscope.analysis import SIZE_BITS
from stepscope.spool import Flag

SCRIPT = """
import stepscope, torch
from torch import nn

class Flexible(nn.Module):
    def forward(self, x=None, *, hints=None):
        return None if x is None else x * 2

class Intercept(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") == "numel":
            with stepscope.annotate("intercepted"):
                pass
        return function(*args, **(kwargs or {}))

net = Flexible()
net(torch.ones(2, 3))
net(x=torch.ones(2, 4), hints=[1])
net.eval()
net(torch.ones(2, 5))
net.train()
inputs = torch.ones(2, 6)
with Intercept():
    net(inputs)
    inputs.numel()
traced = torch.jit.trace(net, torch.ones(2, 7), check_trace=False)
assert "numel" not in str(traced.graph)
net()
"""


@pytest.fixture(scope="module")
def recorded(module_spool: Any) -> Any:
    module_spool.run_torch(SCRIPT)
    return module_spool.drain()


@pytest.fixture(scope="module")
def forwards(recorded: Any) -> list[Any]:
    return sorted(recorded.of("forward"), key=lambda r: r.start)


def test_the_elements_of_the_first_tensor_are_counted(forwards: list[Any]) -> None:
    """Plain, by name, in evaluation mode, under a function mode, traced, without a tensor."""
    assert [r.value & (1 << SIZE_BITS) - 1 for r in forwards] == [6, 8, 10, 12, 0, 0]
    assert all(r.flags & Flag.SIZED for r in forwards)


def test_evaluation_mode_is_a_flag(forwards: list[Any]) -> None:
    assert [bool(r.flags & Flag.EVAL_MODE) for r in forwards] == [i == 2 for i in range(6)]


def test_the_module_is_identified(forwards: list[Any]) -> None:
    assert len({r.value >> SIZE_BITS for r in forwards}) == 1


def test_a_function_mode_of_the_script_sees_only_its_own_accesses(recorded: Any) -> None:
    assert [r.name for r in recorded.of("annotation")] == ["intercepted"]
