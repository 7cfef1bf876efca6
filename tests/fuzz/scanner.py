"""Differential fuzzing of the compiled scanner: its columns are those of the Python decoder.

    python -m tests.fuzz.scanner [--cases N] [--seed N]   with the installed library
    python -m tests.fuzz.scanner --sanitize               with one that stops at undefined behavior

The second one is `make scan-sanitize`: every read or write outside of an allocation, every overflow
and every misaligned access ends it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from stepscope.importers.kineto._scan import LIBRARY, SCANNER_VARIABLE, binding, load_scanner
from stepscope.native_library import find_compiler
from stepscope.schema import EVENT_KINDS
from tests.fuzz.mutation import mutations
from tests.support.decoded_blocks import decode_by_both
from tests.support.kineto_files import Event, many_kinds, pretty, trace, training

_KEYS = sorted(
    {key for kind in EVENT_KINDS for a in kind.arguments for key in (a.key, a.older_key) if key}
)
_MEMBERS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args", "bp", "s", "unknown")
_CATEGORIES = sorted({spelling for kind in EVENT_KINDS for spelling in kind.categories})
_VALUES: tuple[str, ...] = (
    "null", "true", "false", "0", "-0", "-0.0", "1", "-1", "7", "2147483648", "4294967296",
    "4611686018427387", "4611686018427386.9995", "9223372036854775807", "18446744073709551615",
    "99999999999999999999999", "18446744073709551616.5",
    "1.5", "0.0005", "-12.34567", "1e3", "1E-3",
    "123456789012345.678", "0.1", "100.0", "3.14159265358979", "0.30000000000000004",
    "9007199254740993.0", "0.12345678901234567", '""', '"a"', '"5"', '"1.5"', '"caf\\u00e9"',
    '"caf\u00e9"', '"a\\"b"', '"\\\\"', '"[memory]"', '"s"', '"Kernel"', "[]", "[1]", "[1,2]",
    "[1, 2, 3]", "[1,2,3,4]", "[-1,-2,3000000000]", "[1.5]", '["a b", [ 1 , 2 ] ]', '["\u00e9"]',
    "{}", '{"a": 1}', '{ "b" : [ ] }', '"}, {"', '"%s"' % ("x" * 300),
)  # fmt: skip
_MALFORMED: tuple[str, ...] = (
    "[" * 31 + "]" * 31, "[" * 40 + "]" * 40, "[1,]", "[,1]", "[1 2]", "01", "+1", ".5", "nan",
    '"\t"', "\u00e9", "0000", "1.", "-", "1e", '"\\ud800"', '"\\x"', "tru", "nulll", "{1:2}",
    '{"a"}', '{"a":}',
)  # fmt: skip


def seeds() -> list[bytes]:
    """Return blocks of events of all kinds, as several writers lay them out."""
    events = [*training(), *many_kinds()]
    compact = _block(trace(*events))
    return [compact, _block(pretty(trace(*events))), _block(trace(*training()))]


def _block(content: bytes) -> bytes:
    """Return the events of a file without the brackets around them."""
    return content[content.index(b"[") + 1 : content.rindex(b"]")]


def check(text: bytes) -> None:
    """Check that both decoders give the same columns.

    Raises:
        AssertionError: they do not.
    """
    with mock.patch.object(binding, "MIN_SCANNED_SHARE", 0):
        scanned, decoded = decode_by_both(text)
    for name in dict.fromkeys([*decoded, *scanned]):
        assert scanned.get(name) == decoded.get(name), name


def cases(count: int, seed: int) -> Iterator[bytes]:
    """Yield blocks: most are JSON with unusual events, some are damaged text."""
    chance = random.Random(seed)
    events = [*training(), *many_kinds()]
    originals = [json.loads(_block(trace(event))) for event in events]
    damaged = mutations(seeds(), count, seed)
    for _ in range(count):
        if chance.random() < 0.15:
            yield next(damaged)
            continue
        drawn = [chance.choice(originals) for _ in range(chance.randint(1, 5))]
        unusual = chance.choice((0.05, 0.1, 0.2, 0.4))
        texts = [_write(_changed(event, chance, unusual), chance) for event in drawn]
        yield chance.choice((",", " ,\n", ", ")).join(texts).encode("utf-8", "surrogatepass")


def _changed(event: Event, chance: random.Random, unusual: float) -> list[tuple[str, Any]]:
    """Return the members of an event, some of them changed; values are JSON texts or members."""
    members: list[tuple[str, Any]] = []
    for key, value in event.items():
        if key == "args" and isinstance(value, dict):
            args = [(name, json.dumps(inner)) for name, inner in value.items()]
            members.append((key, _change(args, _KEYS, chance, unusual)))
        else:
            members.append((key, json.dumps(value)))
    if chance.random() < unusual:
        members = [item for item in members if item[0] != "cat"]
        members.append(("cat", json.dumps(chance.choice(_CATEGORIES))))
    return _change(members, _MEMBERS, chance, unusual / 2)


def _change(
    members: list[tuple[str, Any]],
    keys: tuple[str, ...] | list[str],
    chance: random.Random,
    p: float,
) -> list[tuple[str, Any]]:
    """Replace values, remove, repeat, add and reorder members."""
    changed = [
        (key, _value(chance, value) if chance.random() < p else value)
        for key, value in members
        if key == "ph" or chance.random() >= p / 4
    ]
    if chance.random() < p:
        changed.append((chance.choice(keys), _value(chance)))
    if chance.random() < p / 2 and changed:
        changed.append(chance.choice(changed))
    if chance.random() < 0.3:
        chance.shuffle(changed)
    return changed


def _value(chance: random.Random, value: Any = "") -> str:
    """Return another value, mostly one that starts likewise: a number for a number."""
    if chance.random() < 0.02:
        return chance.choice(_MALFORMED)
    numbers = "-0123456789"
    alike = [
        candidate
        for candidate in _VALUES
        if isinstance(value, str)
        and value
        and (candidate[0] == value[0] or (candidate[0] in numbers and value[0] in numbers))
    ]
    return chance.choice(alike if alike and chance.random() < 0.8 else _VALUES)


def _write(members: list[tuple[str, Any]], chance: random.Random) -> str:
    colon, comma = chance.choice((": ", ":", " : ")), chance.choice((", ", ",", "\n  , "))
    texts = (
        f'"{key}"{colon}{_write(value, chance) if isinstance(value, list) else value}'
        for key, value in members
    )
    return "{" + comma.join(texts) + chance.choice(("", " ", "\n")) + "}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.scanner")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sanitize", action="store_true")
    options = parser.parse_args()
    if options.sanitize:
        return _run_sanitized(options.cases, options.seed)
    if load_scanner() is None:
        print("There is no compiled scanner: run src/stepscope/native_library.py.")
        return 1
    for number, text in enumerate(cases(options.cases, options.seed)):
        try:
            check(text)
        except BaseException:
            Path("fuzz-scanner").write_bytes(text)
            print(f"case {number} of seed {options.seed} is in ./fuzz-scanner")
            raise
    print(f"scanner: {options.cases} cases: ok")
    return 0


def _run_sanitized(count: int, seed: int) -> int:
    compiler = find_compiler()
    with tempfile.TemporaryDirectory(prefix="stepscope-scan-") as directory:
        library = Path(directory, "sanitized.so")
        flags = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
        problem = LIBRARY.build(library, flags)
        if problem is not None or compiler is None:
            print(f"The sanitized scanner was not built: {problem}.")
            return 1
        runtimes = [
            subprocess.run(
                [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
            ).stdout.strip()
            for name in ("libasan.so", "libubsan.so")
        ]
        environment = {
            **os.environ,
            SCANNER_VARIABLE: str(library),
            "LD_PRELOAD": " ".join(runtimes),
            "PYTHONMALLOC": "malloc",  # so that reads after the end of a text are noticed
            "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter's own are not of interest
        }
        command = [sys.executable, "-m", "tests.fuzz.scanner", "--cases", str(count)]
        return subprocess.run([*command, "--seed", str(seed)], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
