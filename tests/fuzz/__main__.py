"""`python -m tests.fuzz [DECODER…] --cases N`: fuzz the decoders, each in a process of its own.

Coverage-guided by atheris where it is installed, else by random mutations. A process has bounded
memory and time per case; a decoder that fails leaves the bytes in the working directory. Counts go
to benchmarks/results/fuzz.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tests.fuzz.counts import FuzzCounts, save_counts
from tests.fuzz.mutation import mutations

if TYPE_CHECKING:  # atheris has to come before the code that it instruments
    from tests.fuzz.decoders import Decoder

CASE_TIMEOUT_S = 10
"""Time for a case of at most `MAX_CASE_BYTES`."""
MAX_CASE_BYTES = 200_000
MEMORY_BYTES = 4 << 30
"""Address space of one process; the largest seed has 128 KiB."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("decoders", nargs="*")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.scratch:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        return _fuzz(options.decoders[0], options.cases, options.seed, options.scratch)
    from tests.fuzz.decoders import DECODERS

    failed = 0
    for name in options.decoders or DECODERS:
        failed += _fuzz_in_process(name, options.cases, options.seed)
    return min(failed, 1)


def _fuzz_in_process(name: str, cases: int, seed: int) -> bool:
    """Fuzz one decoder and save its counts; returns True if it failed."""
    start_s = time.monotonic()
    # The process may end without cleaning up.
    with tempfile.TemporaryDirectory(prefix="stepscope-fuzz-") as scratch:
        arguments = [name, "--cases", str(cases), "--seed", str(seed), "--scratch", scratch]
        process = subprocess.run(
            [sys.executable, "-m", "tests.fuzz", *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            errors="replace",
        )
        file = Path(scratch, _Counter.FILE)
        content = file.read_bytes() if file.exists() else b"{}"
        counts = msgspec.json.decode(content, type=FuzzCounts)
    failed = process.returncode != 0
    counts.defects = int(failed)
    save_counts(name, counts)
    verdict = f"FAILED ({process.returncode})" if failed else "ok"
    seconds = time.monotonic() - start_s
    print(f"{name}: {counts.cases} cases, {seconds:.0f} s: {verdict}", flush=True)
    if failed:
        print((process.stdout + process.stderr)[-6_000:])
    return failed


def _fuzz(name: str, cases: int, seed: int, scratch: Path) -> int:
    fuzz = _fuzz_guided if importlib.util.find_spec("atheris") is not None else _fuzz_blindly
    fuzz(name, cases, seed, scratch)
    return 0


class _Counter:
    """Runs cases, and keeps the counts in a file, which outlives a crash."""

    FILE = "counts.json"

    def __init__(self, scratch: Path) -> None:
        self._file = (scratch / self.FILE).open("wb", buffering=0)
        self._counts = FuzzCounts()

    def run(self, decoder: Decoder, content: bytes, directory: Path) -> None:
        """Run one case."""
        self._counts.cases += 1
        self._write()
        start_s = time.monotonic()
        decoder.run(content, directory)
        self._counts.slowest_s = max(self._counts.slowest_s, time.monotonic() - start_s)
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self._counts.peak_memory_bytes = peak_kib * 1024
        self._write()

    def _write(self) -> None:
        # Spaces follow, so that a shorter text replaces a longer one.
        os.pwrite(self._file.fileno(), msgspec.json.encode(self._counts).ljust(200), 0)


def _fuzz_guided(name: str, cases: int, seed: int, scratch: Path) -> None:
    import atheris

    with atheris.instrument_imports(
        include=["stepscope.importers", "stepscope.monitor.drain", "stepscope.spool"]
    ):
        from tests.fuzz.decoders import DECODERS
    decoder, directory, corpus = DECODERS[name], scratch / "input", scratch / "corpus"
    counter = _Counter(scratch)
    directory.mkdir()
    corpus.mkdir()
    for number, content in enumerate(decoder.seeds()):
        (corpus / str(number)).write_bytes(content)
    limits = [f"-timeout={CASE_TIMEOUT_S}", f"-max_len={MAX_CASE_BYTES}", "-rss_limit_mb=2000"]
    atheris.Setup(
        [sys.argv[0], f"-runs={cases}", f"-seed={seed}", *limits, str(corpus)],
        lambda content: counter.run(decoder, content, directory),
    )
    atheris.Fuzz()


def _fuzz_blindly(name: str, cases: int, seed: int, scratch: Path) -> None:
    from tests.fuzz.decoders import DECODERS

    decoder, directory, counter = DECODERS[name], scratch / "input", _Counter(scratch)
    directory.mkdir()
    for content in mutations(decoder.seeds(), cases, seed):
        signal.alarm(CASE_TIMEOUT_S)
        try:
            counter.run(decoder, content, directory)
        except BaseException:
            Path(f"fuzz-{name}").write_bytes(content)
            raise
    signal.alarm(0)


if __name__ == "__main__":
    sys.exit(main())
