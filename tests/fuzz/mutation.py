"""Random changes of bytes, for machines without a coverage-guided fuzzer."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

_TOKENS = (
    b"null", b"-1", b"1e999", b"NaN", b"{}", b"[]", b"{", b"]", b'"', b"\\", b"\xff", b"\0" * 8,
    b"9" * 30, b"[" * 2_000, b'"\\ud800"', b"\xff" * 8, b'{"ph":"X"}', b",", b"\n", b"true",
)  # fmt: skip
_MAX_CHANGES = 4


def mutations(seeds: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """Yield changed content: bytes replaced, removed, repeated, truncated, tokens inserted."""
    chance = random.Random(seed)
    for _ in range(count):
        content = bytearray(chance.choice(seeds))
        for _ in range(chance.randint(1, _MAX_CHANGES)):
            _change(content, chance)
        yield bytes(content)


def _change(content: bytearray, chance: random.Random) -> None:
    # Half of the changes are near the start, where the headers of binary formats are.
    reach = len(content) if chance.random() < 0.5 else min(len(content), 200)
    start = chance.randint(0, reach)
    end = min(len(content), start + chance.choice([1, 1, 4, 8, 40, 400]))
    match chance.randrange(5):
        case 0 if start < len(content):
            content[start] = chance.randrange(256)
        case 1:
            del content[start:end]
        case 2:
            content[start:start] = content[start:end] * chance.randint(1, 3)
        case 3:
            content[start:end] = chance.choice(_TOKENS)
        case _ if chance.random() < 0.2:
            del content[start:]
