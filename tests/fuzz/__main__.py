"""`python -m tests.fuzz [DECODER…] --cases N`: fuzz the decoders, each in a process of its own.

Coverage-guided by atheris where it is installed, else by random mutations. A process has bounded
memory and time per case; a decoder that fails leaves the bytes in the working directory.
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

from tests.fuzz.mutation import mutations

CASE_TIMEOUT_S = 20
MEMORY_BYTES = 4 << 30
"""Address space of one process; the largest seed has 128 KiB."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("decoders", nargs="*")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        return _fuzz(options.decoders[0], options.cases, options.seed)
    from tests.fuzz.decoders import DECODERS

    failed = 0
    for name in options.decoders or DECODERS:
        start_s = time.monotonic()
        arguments = [name, "--here", "--cases", str(options.cases), "--seed", str(options.seed)]
        process = subprocess.run(
            [sys.executable, "-m", "tests.fuzz", *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            errors="replace",
        )
        verdict = "ok" if process.returncode == 0 else f"FAILED ({process.returncode})"
        print(f"{name}: {options.cases} cases, {time.monotonic() - start_s:.0f} s: {verdict}")
        if process.returncode:
            failed += 1
            print((process.stdout + process.stderr)[-6_000:])
    return min(failed, 1)


def _fuzz(name: str, cases: int, seed: int) -> int:
    with tempfile.TemporaryDirectory(prefix="stepscope-fuzz-") as scratch:
        if importlib.util.find_spec("atheris") is not None:
            _fuzz_guided(name, cases, seed, Path(scratch))
        else:
            _fuzz_blindly(name, cases, seed, Path(scratch))
    return 0


def _fuzz_guided(name: str, cases: int, seed: int, scratch: Path) -> None:
    import atheris

    with atheris.instrument_imports(
        include=["stepscope.importers", "stepscope.monitor.drain", "stepscope.spool"]
    ):
        from tests.fuzz.decoders import DECODERS
    decoder, directory, corpus = DECODERS[name], scratch / "input", scratch / "corpus"
    directory.mkdir()
    corpus.mkdir()
    for number, content in enumerate(decoder.seeds()):
        (corpus / str(number)).write_bytes(content)
    arguments = [f"-runs={cases}", f"-seed={seed}", f"-timeout={CASE_TIMEOUT_S}", "-max_len=200000"]
    atheris.Setup(
        [sys.argv[0], *arguments, "-rss_limit_mb=2000", str(corpus)],
        lambda content: decoder.run(content, directory),
    )
    atheris.Fuzz()


def _fuzz_blindly(name: str, cases: int, seed: int, scratch: Path) -> None:
    from tests.fuzz.decoders import DECODERS

    decoder, directory = DECODERS[name], scratch / "input"
    directory.mkdir()
    for content in mutations(decoder.seeds(), cases, seed):
        signal.alarm(CASE_TIMEOUT_S)
        try:
            decoder.run(content, directory)
        except BaseException:
            Path(f"fuzz-{name}").write_bytes(content)
            raise
    signal.alarm(0)


if __name__ == "__main__":
    sys.exit(main())
