"""Dispatch mode that hands each operator of a thread to a check."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

_PLAIN_TYPES = {torch.Tensor, torch.nn.Parameter}
_STAND_INS = "torch._subclasses."
"""Module of tensors without values, with which torch tries out operators."""


class OperatorCheck(Protocol):
    """Check of the operators that run while it is active; its methods must not raise."""

    is_active: bool

    def before(self, operator: Any, args: Any, kwargs: Any) -> None:
        """Look at the arguments."""

    def after(self, operator: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Look at the results."""


class CheckMode(TorchDispatchMode):
    """Mode that checks operators on plain tensors.

    Those on a subclass, such as DTensor, are checked when it computes on plain ones.
    """

    def __init__(self, check: OperatorCheck) -> None:
        super().__init__()
        self._check = check

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        check = self._check
        has_stand_in = False
        if not _PLAIN_TYPES.issuperset(types):
            has_stand_in = any(kind.__module__.startswith(_STAND_INS) for kind in types)
            if not has_stand_in:
                return NotImplemented
        if has_stand_in or not check.is_active:
            return func(*args, **kwargs)
        check.before(func, args, kwargs)
        result = func(*args, **kwargs)
        check.after(func, args, kwargs, result)
        return result

    def leave(self) -> None:
        """Remove the mode from the thread, unless another one is on top of it."""
        if _get_current_dispatch_mode() is self:
            self.__exit__(None, None, None)


def has_dispatch_mode() -> bool:
    """Return True if the thread is inside a mode, which would leave ours when it is left."""
    return bool(torch._C._len_torch_dispatch_stack())
