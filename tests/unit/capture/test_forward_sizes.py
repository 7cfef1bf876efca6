"""Sizes of inputs and modes of modules, as recorded with forward passes."""

from __future__ import annotations

from stepscope.analysis import SIZE_BITS
from stepscope.spool import Flag
from tests.conftest import Spool

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


def test_sizes_mode_and_module_of_forward_passes(spool: Spool) -> None:
    """Plain, by name, in evaluation mode, under a function mode, traced, without a tensor."""
    spool.run_torch(SCRIPT)
    recorded = spool.drain()
    forwards = sorted(recorded.of("forward"), key=lambda r: r.start)
    assert [int(r.value) & (1 << SIZE_BITS) - 1 for r in forwards] == [6, 8, 10, 12, 0, 0]
    assert all(r.flags & Flag.SIZED for r in forwards)
    assert [bool(r.flags & Flag.EVAL_MODE) for r in forwards] == [i == 2 for i in range(6)]
    assert len({int(r.value) >> SIZE_BITS for r in forwards}) == 1
    # The function mode of the script sees only its own accesses.
    assert [r.name for r in recorded.of("annotation")] == ["intercepted"]
