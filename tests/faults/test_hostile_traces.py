"""The bound on hostile traces: memory and time of the whole command."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.importers.kineto.blocks import MAX_BLOCK_BYTES
from tests.support.tiers import extend_all_but

SIZE = 6 << 20
MAX_PEAK_BYTES = 300_000_000 + 2 * MAX_BLOCK_BYTES
MAX_CPU_S_PER_MB = 1.0
MAX_ATTEMPTS = 3
"""Processes beside an import add to its CPU time: caches and cores are shared."""
CASES: dict[str, Callable[[int], bytes]] = {
    "braces": lambda _: b"{",
    "empty objects": lambda _: b"{},",
    "objects without a phase": lambda _: b'{"a":1},',
    "damage without a phase": lambda n: b'{"a":1},' if n % 1_000 else b'{"a":tru},',
    "empty objects and damage": lambda n: b"{}," if n % 1_000 else b'{"ph":"X","ts":tru},',
    "unusual first keys and damage": lambda n: (
        b'{"q":"","ph":"X"},' if n % 1_000 else b'{"ph":"X","ts":tru},'
    ),
    "open objects": lambda n: b'{"a":[{"a":tru},' if n else b'{"a":1,"ph":"X"},',
    "open phases": lambda _: b'{"ph":[{"ph":tru},',
    "open events": lambda _: b'{"ph":"X",',
    "open brackets": lambda _: b'{"ph":"X","args":{"a":[',
    "deep nesting": lambda _: b'{"ph":"X","args":' + b"[" * 900 + b"]" * 900 + b"},",
    "backslashes": lambda _: b"\\",
    "quotes": lambda _: b'"',
    "invalid values": lambda _: b'{"ph":"X","ts":tru},',
    "half events": lambda _: b'{"ph":"X","name":"a},',
    "borders in a string": lambda n: b'},{\\"ph\\":\\"X\\"' if n else b'{"ph":"X","name":"',
    "one string": lambda n: b"a" if n else b'{"ph":"X","name":"',
    "threads": lambda n: b'{"ph":"X","name":"a","pid":%d,"tid":%d,"ts":%d,"dur":1},' % (n, n, n),
    "categories": lambda n: b'{"ph":"X","cat":"c%d","name":"a","ts":%d,"dur":1},' % (n, n),
    "overlapping ranges": lambda n: (
        b'{"ph":"X","cat":"cpu_op","name":"a","ts":%d,"dur":%d},' % (n, 100_000 + n % 977 * 1_000)
    ),
}
"""Text by number, repeated in the list of events."""
AROUND: dict[str, tuple[bytes, Callable[[int], bytes], bytes]] = {
    "backslashes": (b'"', lambda _: b"\\\\", b'"'),
    "text": (b'"', lambda _: b"a text ", b'"'),
    "damage": (b"[", lambda _: b"\\", b"1]"),
    "lists": (b"[", lambda _: b"[],", b"1]"),
    "objects": (b"[", lambda _: b'{"a":1},', b"1]"),
    "fields": (b"0", lambda n: b',"%d":1' % n, b""),
}
"""Opening of the value of a field beside the events, text by number that is repeated, and end."""
EVENT = b'{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":1}'


# A process begins with the peak of the one that started it, and that of a test runner is large.
MEASURE = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(code, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)
"""


def measure_import(directory: Path, content: bytes) -> tuple[int, float, int, str]:
    """Import a trace; return exit status, CPU seconds, peak bytes and standard error."""
    (directory / "trace.json").write_bytes(content)
    command = [sys.executable, "-m", "stepscope", "import", "trace.json", "-o", "run"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *command],
        cwd=directory, capture_output=True, text=True, check=True,
    )  # fmt: skip
    code, cpu_s, peak_bytes = done.stdout.split()
    return int(code), float(cpu_s), int(peak_bytes), done.stderr


@pytest.fixture(scope="module")
def start_s(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Return the CPU seconds of an import of one event."""
    return measure_import(tmp_path_factory.mktemp("start"), b"[" + EVENT + b"]")[1]


def check_bound(directory: Path, content: bytes, start_s: float) -> None:
    max_cpu_s = start_s + MAX_CPU_S_PER_MB * len(content) / 1e6
    for _ in range(MAX_ATTEMPTS):
        code, cpu_s, peak_bytes, errors = measure_import(directory, content)
        if cpu_s <= max_cpu_s:
            break
        shutil.rmtree(directory / "run", ignore_errors=True)
    assert peak_bytes <= MAX_PEAK_BYTES
    assert cpu_s <= max_cpu_s
    assert code in {0, 2}
    assert len(errors.splitlines()) <= 1, errors
    assert code == 0 or errors.startswith("stepscope: trace.json ")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", extend_all_but({"open objects"}, CASES, "another trace"))
def test_memory_and_time_of_hostile_traces(tmp_path: Path, name: str, start_s: float) -> None:
    parts, size = [b'{"traceEvents":['], 0
    while size < SIZE:
        parts.append(CASES[name](len(parts) - 1))
        size += len(parts[-1])
    check_bound(tmp_path, b"".join(parts), start_s)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", extend_all_but({"fields"}, AROUND, "another text"))
@pytest.mark.parametrize("comes_first", extend_all_but([True], [True, False], "another order"))
@pytest.mark.parametrize(
    "size", extend_all_but({SIZE // 4}, [SIZE // 4, SIZE], "another size"), ids=["decoded", "large"]
)
def test_memory_and_time_of_hostile_text_around_events(
    tmp_path: Path, name: str, comes_first: bool, size: int, start_s: float
) -> None:
    opening, text, end = AROUND[name]
    repeated = b"".join(map(text, range(size // len(text(100_000)))))
    filler = b'"a":' + opening + repeated + end
    events = b'"traceEvents":[' + EVENT + b"]"
    members = [filler, events] if comes_first else [events, filler]
    check_bound(tmp_path, b"{" + b",".join(members) + b"}", start_s)
