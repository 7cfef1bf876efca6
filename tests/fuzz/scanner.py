"""Differential fuzzing of the compiled scanner: its columns are those of the Python decoder.

An event that the scanner leaves to Python shows nothing, and unreadable text leaves the whole block
to it. So most cases are blocks of one or two kinds whose arguments have values of their declared
types, at the limits of what the scanner takes, and at most a few are beyond.

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
from stepscope.schema import EVENT_KINDS, Argument, EventKind
from tests.fuzz.mutation import mutations
from tests.support.decoded_blocks import decode_by_both
from tests.support.kineto_files import Event, many_kinds, pretty, trace, training

Members = list[tuple[str, Any]]
"""Keys and values of an object; a value is a JSON text or members."""
_ARGUMENTS: dict[str, Argument] = {
    key: a for kind in EVENT_KINDS for a in kind.arguments for key in (a.key, a.older_key) if key
}
_KEYS = sorted(_ARGUMENTS)
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
_VALID: dict[str, tuple[str, ...]] = {
    "integer": (
        "0", "1", "-1", "-2", "7", "31", "2147483647", "2147483648", "4294967296",
        "999999999999999999", "-999999999999999999",
    ),
    "number": (
        "0", "1", "-3", "0.0", "0.5", "-0.25", "12.5", "100.0", "0.1", "3.14159265358979",
        "0.30000000000000", "123456789012.345", "999999999999999", "0.000000000000001",
    ),
    "string": ('""', '"a"', '"a b"', '"5"', '"Kernel"', '"[memory]"', '"void f<int, 2>(float*)"'),
    "json": (
        '""', '"a  b"', "[]", "{}", "[1,2]", "[ 1 , 2 ]", '["a b", [ 1 , 2 ], "" ]', "true",
        '{"a b": [ "c , d" ] }', '[["float", ""], [ "a: {b}" ]]', "0", "1.50", "-7", "false",
    ),
    "sizes": (
        "[]", "[1]", "[1,2]", "[1,2,3]", "[1, 2, 3]", "[ 64 ,1,1 ]", "[-1,-2,3]", "[0,0,0]",
        "[2147483647,2147483648,1]", "[ ]",
    ),
    "unused": ("0", '"text"', "[1,2]", '{"a":1}', "1.5", "true"),
}  # fmt: skip
"""Values by type of an argument that the scanner takes."""
_BEYOND: dict[str, tuple[str, ...]] = {
    "integer": ("1000000000000000000", "9223372036854775807", "-0", "1.0", "null", '"5"'),
    "number": (
        "9007199254740993.0", "0.12345678901234567", "1234567890.1234567", "1e3", "-0.0",
        "1234567890123456", "9007199254740993", "0.1234567890123457",
    ),
    "string": ("null", "5", '"caf\\u00e9"', "[]"),
    "json": ("null", '"a\\"b"', '["\u00e9"]', "1e3"),
    "sizes": ("[1,2,3,4]", "[1.5]", "null", "64", "[[1]]"),
    "unused": ("null", '"caf\\u00e9"'),
}  # fmt: skip
"""Values beside these, which are left to Python."""
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
    """Yield blocks: most are JSON with a few unusual values, some are damaged text."""
    chance = random.Random(seed)
    originals = [json.loads(_block(trace(event))) for event in [*training(), *many_kinds()]]
    damaged = mutations(seeds(), count, seed)
    for _ in range(count):
        form = chance.random()
        if form < 0.1:
            yield next(damaged)
            continue
        unusual = chance.choice((0, 0, 0.02, 0.1))
        if form < 0.3:
            drawn = [chance.choice(originals) for _ in range(chance.randint(1, 5))]
            events = [_changed(event, chance, unusual) for event in drawn]
        else:
            events = _draw_events(chance, unusual)
        text = chance.choice((",", " ,\n", ", ")).join(_write(event, chance) for event in events)
        if chance.random() < 0.1:
            text = _damage(text, chance)
        yield text.encode("utf-8", "surrogatepass")


def _draw_events(chance: random.Random, unusual: float) -> list[Members]:
    """Draw events of one or two kinds, some of the same threads and with the same values."""
    kinds = chance.sample(EVENT_KINDS, chance.randint(1, 2))
    events = [_draw_event(chance.choice(kinds), chance) for _ in range(chance.randint(2, 8))]
    if chance.random() < 0.2:
        events.append(_draw_flow(chance))
    for event in events:
        if chance.random() < unusual:
            event[:] = _change(event, _MEMBERS, chance, 0.2)
    if unusual and chance.random() < 0.5:
        _spoil_argument(chance.choice(events), chance)
    return events


def _draw_event(kind: EventKind, chance: random.Random) -> Members:
    category = chance.choice(kind.categories)
    if chance.random() < 0.2:
        category = "".join(chance.choice((c, c.upper())) for c in category)
    members: Members = [
        ("ph", '"X"' if kind.is_range else '"i"'),
        ("cat", json.dumps(category)),
        ("name", json.dumps(kind.instant_name or chance.choice(("aten::mm", "a b", "", "f")))),
        *_draw_place(chance),
    ]
    if kind.is_range:
        members.append(("dur", _draw_time(chance, 1_000)))
    arguments = [a for a in kind.arguments if chance.random() < 0.6]
    keys = [a.older_key if a.older_key and chance.random() < 0.1 else a.key for a in arguments]
    args = [
        (key, _draw_value(argument, chance)) for key, argument in zip(keys, arguments, strict=True)
    ]
    if chance.random() < 0.3:
        chance.shuffle(args)
    return [*members, ("args", args)] if args or chance.random() < 0.5 else members


def _draw_value(argument: Argument, chance: random.Random) -> str:
    """Draw a value of the type of an argument; doubles have up to two digits too many."""
    if argument.type == "number" and chance.random() < 0.5:
        digits = f"{chance.randrange(1, 10 ** chance.randint(1, 17))}"
        point = chance.randrange(len(digits))
        return f"{digits[:point] or '0'}.{digits[point:]}"
    return chance.choice(_VALID[argument.type])


def _draw_flow(chance: random.Random) -> Members:
    category = chance.choice(("ac2g", "async_cpu_to_gpu", "fwdbwd", "other"))
    phase = json.dumps(chance.choice("stf"))
    flow = chance.choice(_VALID["integer"])
    return [("ph", phase), ("cat", json.dumps(category)), ("name", '"flow"'),
            *_draw_place(chance), ("id", flow)]  # fmt: skip


def _draw_place(chance: random.Random) -> Members:
    """Draw the thread and the time of an event."""
    pid, tid = chance.choice(
        (("1", "2"), ("1", "3"), ('"Spans"', '"a"'), ("0", "7"), ("-1", '"7"'))
    )
    thread: Members = [("pid", pid), ("tid", tid), ("ts", _draw_time(chance, 10**15))]
    return thread if chance.random() < 0.9 else thread[chance.randint(1, 2) :]


def _draw_time(chance: random.Random, limit: int) -> str:
    """Draw microseconds: with three decimals as of most recorders, or with any number of them."""
    integer = f"{chance.choice(('', '', '', '-'))}{chance.randrange(limit)}"
    decimals = chance.choice((0, 3, 3, 1, 2, 4, 5, 6))
    digits = "".join(chance.choice("0123456789") for _ in range(decimals))
    if decimals > 3 and chance.random() < 0.5:
        digits = digits[:3] + "5" + digits[4:]  # the border of rounding
    return f"{integer}.{digits}" if decimals else integer


def _spoil_argument(event: Members, chance: random.Random) -> None:
    """Change one argument: beyond what the scanner takes, of another kind, or a second time."""
    for key, args in event:
        if key == "args" and isinstance(args, list) and args:
            index = chance.randrange(len(args))
            name = args[index][0]
            argument = _ARGUMENTS[name]
            unreadable = chance.choice(_BEYOND[argument.type])
            again = chance.choice((unreadable, _draw_value(argument, chance)))
            if argument.nullable:
                again = "null"
            match chance.randrange(4):
                case 0:
                    args.append((chance.choice(_KEYS), chance.choice(_VALUES)))
                case 1:
                    args.append((name, again))
                case _:
                    args[index] = (name, unreadable)


def _damage(text: str, chance: random.Random) -> str:
    """Replace, remove or repeat one character."""
    index = chance.randrange(len(text)) if text else 0
    character = text[index : index + 1]
    instead = chance.choice(("", 2 * character, chance.choice('0"{}[],: \\e.-')))
    return text[:index] + instead + text[index + 1 :]


def _changed(event: Event, chance: random.Random, unusual: float) -> Members:
    """Return the members of an event, some of them changed; values are JSON texts or members."""
    members: Members = []
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
    members: Members, keys: tuple[str, ...] | list[str], chance: random.Random, p: float
) -> Members:
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


def _write(members: Members, chance: random.Random) -> str:
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
