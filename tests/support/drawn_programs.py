"""Random programs: threads of nested calls and the work they launch on streams, in any order."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.support.kineto_files import Event, kernel, launch, memory, op, python, span

_SHORT = st.integers(0, 3_000)
_STREAMS = st.sampled_from([7, 20])
_CATEGORIES = st.sampled_from(["kernel", "kernel", "gpu_memcpy", "gpu_memset"])


class _Draft:
    """Events drawn so far, and the next unused number."""

    def __init__(self, draw: Any, *, untidy: bool) -> None:
        self.draw = draw
        self.untidy = untidy
        self.events: list[Event] = []
        self.numbers = 0
        self.room = 40

    def number(self, *, once: bool = True) -> int:
        if not once and self.untidy and self.numbers and self.chance(5):
            return int(self.draw(st.integers(1, self.numbers)))
        self.numbers += 1
        return self.numbers

    def chance(self, sides: int) -> bool:
        return bool(self.draw(st.integers(1, sides)) == 1)


def programs(*, untidy: bool = False) -> st.SearchStrategy[list[Event]]:
    """Draw one to forty events of one to three threads, in no particular order.

    Args:
        untidy: ranges may end before the ranges inside them, and numbers may be used twice.
    """
    return st.composite(_program)(untidy=untidy)


def _program(draw: Any, *, untidy: bool) -> list[Event]:
    draft = _Draft(draw, untidy=untidy)
    for thread in range(1, draw(st.integers(1, 3)) + 1):
        now = draw(_SHORT)
        for _ in range(draw(st.integers(1, 3))):
            now = _range(draft, thread, now, None, 0) + draw(_SHORT)
    for _ in range(draw(st.integers(0, 2))):  # launched before the window, or never
        draft.events.append(_work(draft, draw(st.integers(0, 9_000)), draw(st.integers(0, 1))))
    return list(draw(st.permutations(draft.events)))


def _range(draft: _Draft, thread: int, start: int, caller: int | None, depth: int) -> int:
    """Draw a range with its contents; return its end."""
    draft.room -= 1
    kinds = ["op", "op", "op", "call", "memory", "python", "annotation"]
    kind = draft.draw(st.sampled_from(kinds if draft.room > 0 else ["memory"]))
    match kind:
        case "call":
            return _call(draft, thread, start)
        case "memory":
            draft.events.append(memory(start, 512, tid=thread))
            return start
    number = draft.number()
    inner_caller = number if kind == "python" else caller
    now = start + draft.draw(_SHORT)
    for _ in range(draft.draw(st.integers(0, 3)) if depth < 5 else 0):
        now = _range(draft, thread, now, inner_caller, depth + 1) + draft.draw(_SHORT)
    early = draft.untidy and draft.chance(4)
    end = max(start, now - draft.draw(_SHORT)) if early else now + draft.draw(_SHORT)
    draft.events.append(_made(draft, kind, thread, start, end - start, number, caller))
    return end


def _made(
    draft: _Draft, kind: str, thread: int, start: int, length: int, number: int, caller: int | None
) -> Event:
    if kind == "python":
        module = number if draft.chance(3) else None
        return python("f", start, length, number, caller, module, tid=thread)
    if kind == "annotation":
        return span("user_annotation", "mark", start, length, tid=thread)
    args = {}
    if draft.chance(2):
        args["Sequence number"] = draft.draw(st.integers(0, 2))
        args["Fwd thread id"] = draft.draw(st.integers(0, 1))
    return op(f"aten::{number}", start, length, args, tid=thread)


def _call(draft: _Draft, thread: int, start: int) -> int:
    length = draft.draw(_SHORT)
    number = draft.number(once=False)
    for _ in range(draft.draw(st.integers(0, 2))):
        draft.events.append(_work(draft, start + draft.draw(st.integers(0, 20_000)), number))
    category = draft.draw(st.sampled_from(["cuda_runtime", "cuda_driver"]))
    draft.events.append(launch(start, length, number, category=category, tid=thread))
    return start + length


def _work(draft: _Draft, start: int, correlation: int) -> Event:
    length = draft.draw(_SHORT)
    category, stream = draft.draw(_CATEGORIES), draft.draw(_STREAMS)
    # 0 is not the number of a call: launched before the window.
    number = correlation if correlation else 0
    return kernel(start, length, number, category=category, stream=stream)
