"""Origins of non-finite numbers: where those of each tensor come from.

A result with NaN or infinite elements has the origin of the arguments that have such elements. If
none has, the operator is the origin. An infinite number is no failure by itself: scripts fill
masks with it. So NaN from arguments that are infinite only by such a constant has its origin where
the NaN appears, and NaN from other infinite arguments has it where they became infinite.

Origins belong to memory, not to tensors: views, and gradients that autograd moves, share it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch.nan_search.call_sites import CallSite, ModelNames
from stepscope.capture.frameworks.pytorch.nan_search.operators import (
    has_infinite_constant,
    short_name,
)
from stepscope.capture.frameworks.pytorch.nan_search.values import (
    Range,
    describe_tensor,
    find_range,
    find_stored,
    has_nan,
    is_finite,
    is_mask,
)

MAX_INPUTS = 8
"""Arguments that an origin describes."""
MAX_LINES = 200_000
"""Operators of a step whose lines are remembered for the backward pass."""
_FOLLOWER_FIELDS = ("operator", "phase", "autograd_node", "module", "file", "line")
_NO_ORIGIN: dict[str, Any] = {
    "operator": "", "autograd_node": None, "module": "", "module_class": "", "parameter": None,
    "file": "", "line": 0, "function": "", "caller_file": "", "caller_line": 0, "inputs": [],
    "follower": None,
}  # fmt: skip
"""Fields of an origin of which nothing is known."""
_current_node = torch._C._current_autograd_node
_next_sequence: Any = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]


class Origin:
    """Operator, or tensor from outside, with the first non-finite numbers.

    Args:
        number: counts origins in the order of time.
        fields: description, as in `stepscope.schema.NanOriginFact`.
        is_deliberate: a constant such as that of a mask.
    """

    __slots__ = ("fields", "is_deliberate", "number")

    def __init__(self, number: int, fields: dict[str, Any], *, is_deliberate: bool = False) -> None:
        self.number = number
        self.fields = {**_NO_ORIGIN, **fields}
        self.is_deliberate = is_deliberate


class Origins:
    """Origins of the non-finite numbers of a process."""

    def __init__(self) -> None:
        self._by_storage: dict[int, tuple[StorageWeakRef, Origin]] = {}
        self._names = ModelNames()
        self._count = 0
        self._sites: dict[int, CallSite] = {}
        self._earlier_sites: dict[int, CallSite] = {}
        """By the sequence number of the autograd node: of this step, and of the one before."""
        self._sent: Origin | None = None
        """Origin of what this process has sent to others in this step."""
        self._has_called_model = False
        self.is_stepping = False
        """An optimizer step is open."""

    def start_step(self) -> None:
        """Forget lines of the step before the last one, and memory that is freed."""
        self._earlier_sites, self._sites = self._sites, {}
        self._sent = None
        self._has_called_model = False
        self._by_storage = {
            key: entry for key, entry in self._by_storage.items() if not entry[0].expired()
        }

    def note_site(self) -> None:
        """Remember the line that creates an autograd node: its backward pass has none."""
        sequence = _next_sequence() - 1
        if sequence not in self._sites and len(self._sites) < MAX_LINES:
            frame = sys._getframe(2)
            site = self._sites[sequence] = CallSite(frame)
            self._names.add(site, frame)
            self._has_called_model |= site.phase == "forward"

    def forget(self, tensor: torch.Tensor) -> None:
        """Forget the origin of memory that a finite tensor fills."""
        stored = find_stored(tensor) if self._by_storage else None
        if stored is None:
            return
        storage = stored.untyped_storage()
        if storage._cdata in self._by_storage and stored.nbytes == storage.nbytes():
            del self._by_storage[storage._cdata]

    def find(self, tensor: torch.Tensor) -> Origin | None:
        """Return the known origin of a tensor's non-finite numbers."""
        stored = find_stored(tensor)
        if stored is None:
            return None
        entry = self._by_storage.get(stored.untyped_storage()._cdata)
        return None if entry is None else entry[1]

    def trace(
        self,
        operator: Any,
        result: torch.Tensor,
        result_range: Range,
        inputs: Iterable[torch.Tensor],
        *,
        old_ranges: dict[int, Range],
        constants: tuple[Any, Any],
    ) -> None:
        """Assign an origin to a result that is not finite.

        Args:
            operator: the operator.
            result: its result, or an argument that it has written.
            result_range: range of the result.
            inputs: arguments from which the result is computed.
            old_ranges: ranges of arguments before they were written, by identity of the tensor.
            constants: all positional and keyword arguments.
        """
        inputs = list(inputs)
        causes: list[tuple[Origin, bool]] = []
        for tensor in inputs:
            if tensor is result and id(tensor) not in old_ranges:
                continue  # only written
            values = old_ranges.get(id(tensor)) or find_range(tensor)
            if values is not None and not is_finite(values):
                causes.append(
                    (self.find(tensor) or self._find_source(tensor, values), has_nan(values))
                )
        origin = self._choose(causes, is_nan=has_nan(result_range))
        if origin is None:
            is_deliberate = not has_nan(result_range) and has_infinite_constant(*constants)
            fields = self._describe_operator(operator, result, inputs, old_ranges)
            origin = self._new(fields, is_deliberate=is_deliberate)
            infinite = [cause for cause in causes if not cause[0].is_deliberate]
            earlier = self._choose(infinite, is_nan=False)
            if earlier is not None:  # what an infinite number leads to belongs to its origin
                follower = {key: fields[key] for key in _FOLLOWER_FIELDS}
                follower = earlier.fields["follower"] or follower
                origin = Origin(earlier.number, {**earlier.fields, "follower": follower})
        self._remember(result, origin)

    def note_exchange(self, tensors: Iterable[torch.Tensor]) -> None:
        """Remember the origin of what this process sends to others in a collective."""
        for tensor in tensors:
            self._sent = self._sent or self.find(tensor)

    @staticmethod
    def _choose(causes: list[tuple[Origin, bool]], *, is_nan: bool) -> Origin | None:
        """Return the earliest origin of the kind of the result; a mask if there is no other."""
        candidates = [origin for origin, cause_is_nan in causes if cause_is_nan or not is_nan]
        return min(
            candidates, key=lambda origin: (origin.is_deliberate, origin.number), default=None
        )

    def name_parameter(self, parameter: torch.Tensor) -> str | None:
        """Return the name of a parameter; None if no model that was called has it."""
        stored = find_stored(parameter)
        return None if stored is None else self._names.name_parameter(stored)

    def find_or_describe(self, tensor: torch.Tensor, *, phase: str) -> Origin:
        """Return the origin of a tensor that no operator has been seen to produce."""
        origin = self.find(tensor) or self._sent
        if origin is None:
            origin = self._new({"phase": phase, **self._describe_result(tensor)})
        return origin

    def _find_source(self, tensor: torch.Tensor, values: Range) -> Origin:
        """Describe a non-finite tensor from outside of the operators that were seen."""
        frame = sys._getframe(2)
        site = CallSite(frame)
        self._names.add(site, frame)
        is_deliberate = not has_nan(values) and is_mask(tensor)
        parameter = self.name_parameter(tensor)
        is_parameter = parameter is not None or (tensor.requires_grad and tensor.is_leaf)
        phase = "parameters" if is_parameter else "input"
        if site.phase == "backward" and not is_parameter:
            if self._sent is not None:
                return self._sent
            phase = unseen_phase()
        fields = {
            "phase": phase,
            "parameter": parameter,
            **self._describe_site(site),
            **self._describe_result(tensor),
        }
        origin = self._new(fields, is_deliberate=is_deliberate)
        self._remember(tensor, origin)
        return origin

    def _describe_operator(
        self,
        operator: Any,
        result: torch.Tensor,
        inputs: list[torch.Tensor],
        old_ranges: dict[int, Range],
    ) -> dict[str, Any]:
        frame = sys._getframe(2)
        site = CallSite(frame)
        self._names.add(site, frame)
        node = _current_node()
        forward = None
        if node is not None and site.phase in {"", "backward"}:
            site.phase = "backward"
            sequence = node._sequence_nr()
            forward = self._sites.get(sequence) or self._earlier_sites.get(sequence)
        fields = {
            "phase": self._phase(site),
            "operator": short_name(operator),
            "autograd_node": None if node is None or site.phase != "backward" else node.name(),
            **self._describe_site(site if forward is None else _merge(site, forward)),
            **self._describe_result(result),
        }
        fields["inputs"] = [
            describe_tensor(tensor, old_ranges.get(id(tensor)))
            for tensor in inputs[:MAX_INPUTS]
            if tensor is not result or id(tensor) in old_ranges
        ]
        return fields

    def _phase(self, site: CallSite) -> str:
        if site.phase:
            return site.phase
        if self.is_stepping and not torch.is_grad_enabled():
            return "optimizer"
        return "loss" if self._has_called_model else "forward"

    def _describe_site(self, site: CallSite) -> dict[str, Any]:
        file, line, function = site.line or ("", 0, "")
        fields: dict[str, Any] = {"file": file, "line": line, "function": function, "module": ""}
        if site.caller is not None:
            fields["caller_file"], fields["caller_line"], _ = site.caller
        module = None if site.module is None else site.module()
        if module is not None:
            fields["module"] = self._names.name_module(module)
            fields["module_class"] = type(module).__name__
        return fields

    @staticmethod
    def _describe_result(tensor: torch.Tensor) -> dict[str, Any]:
        return {"step": progress.finished_step_count, "result": describe_tensor(tensor)}

    def _new(self, fields: dict[str, Any], *, is_deliberate: bool = False) -> Origin:
        self._count += 1
        return Origin(self._count, fields, is_deliberate=is_deliberate)

    def _remember(self, tensor: torch.Tensor, origin: Origin) -> None:
        stored = find_stored(tensor)
        if stored is not None:
            storage = stored.untyped_storage()
            self._by_storage[storage._cdata] = StorageWeakRef(storage), origin


def unseen_phase() -> str:
    """Return the phase of gradients that no operator of this process has produced."""
    distributed = torch.distributed
    is_exchanged = distributed.is_available() and distributed.is_initialized()
    return "exchange" if is_exchanged else "unknown"


def _merge(site: CallSite, forward: CallSite) -> CallSite:
    """Return the position of a backward operator: a line of its own if the script defines it, else
    that of the forward pass."""
    if site.line is None or not site.line[0]:
        site.line, site.caller = forward.line, forward.caller
    site.module = site.module or forward.module
    return site
