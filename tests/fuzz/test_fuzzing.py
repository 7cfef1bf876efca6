"""The part of `make fuzz` that is short enough for every check: a fixed seed and few cases."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from stepscope.importers.kineto import decode
from stepscope.importers.kineto._scan import LIBRARY, SCANNER_VARIABLE
from tests.fuzz.api_requests import api_requests, send
from tests.fuzz.decoders import DECODERS
from tests.fuzz.directories import read_damaged
from tests.fuzz.mutation import mutations
from tests.fuzz.scanner import cases, check
from tests.support.compiler import needs_compiler
from tests.support.served import Served, serving
from tests.support.served_runs import draw_job, import_trace, trace_events

MANY = pytest.param(500, marks=pytest.mark.extended("few cases of each decoder are in make test"))


@pytest.mark.parametrize("min_count", [0, MANY])
@pytest.mark.parametrize("name", DECODERS)
def test_decoders(name: str, min_count: int, tmp_path: Path) -> None:
    decoder = DECODERS[name]
    directory = tmp_path / "input"
    directory.mkdir()
    for content in [
        *decoder.seeds(),
        *mutations(decoder.seeds(), max(min_count, decoder.quick_case_count), seed=1),
    ]:
        decoder.run(content, directory)
    assert [path.name for path in tmp_path.iterdir()] == ["input"]


@needs_compiler
def test_the_scanner_and_python_decode_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "built.so"
    assert LIBRARY.build(library) is None
    monkeypatch.setenv(SCANNER_VARIABLE, str(library))
    monkeypatch.setattr(decode, "_scanners", threading.local())
    for text in cases(500, seed=1):
        check(text)


def test_damaged_directories(tmp_path: Path) -> None:
    drawn = draw_job(tmp_path / "drawn", step_count=10)
    outside = tmp_path / "outside"
    outside.write_text("kept")
    for seed in range(6):
        read_damaged(drawn, tmp_path, seed)
    assert {path.name for path in tmp_path.iterdir()} == {"drawn", "outside", "run"}
    assert outside.read_text() == "kept"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("fuzzed")
    draw_job(root / "team" / "job", step_count=10)
    import_trace(root / "recorded", trace_events())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(root / ".cache"))
        with serving(root) as server:
            yield server


@given(request=api_requests())
@settings(
    max_examples=60, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
def test_requests(served: Served, request: dict[str, Any]) -> None:
    response = send(served, request)
    # 503: the request is refused for now, such as a second import beside a running one.
    assert response.status < 500 or response.status == 503, (request, response.body[:500])
