"""Selection of an importer per file."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from stepscope.errors import UnreadableTraceError
from stepscope.importers import (
    Format,
    Imported,
    ProgressCallback,
    Recorded,
    Refused,
    Result,
    import_files,
    installed_importers,
    registry,
)
from stepscope.importers.content import read_content
from stepscope.schema import SCHEMA_VERSION, RunInfo
from stepscope.store import create_run
from tests.support.kineto_files import op, trace

SAMPLE = (
    b'{"Type":"cpu","Name":"cpu0","Dimension":"CPUUtilization","Value":50.0,'
    b'"Timestamp":1591160699.4,"NodeId":"algo-1"}\n'
)
Offer = Callable[..., None]


class LinesImporter:
    """Importer of a third party: files that start with `lines`."""

    formats = (Format(name="n", tables=(), event="line", sentence="{events} in {run}"),)

    def recognise(self, head: bytes, path: Path) -> bool:
        return head[:5] == b"lines" and path.exists()

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> list[Result]:
        for index in range(len(files)):
            progress(index, 1.0)
        return [Recorded(name=path.name, form=node) for path in files]


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Install entry points of a package."""

    def install(*values: str) -> None:
        offers = [EntryPoint(value, value, registry.GROUP) for value in values]
        monkeypatch.setattr(registry, "entry_points", lambda group: offers)

    return install


@pytest.fixture
def run(tmp_path: Path) -> Path:
    info = RunInfo(
        schema_version=SCHEMA_VERSION, run_id="r", created_ns=0, command=[],
        working_directory="/", stepscope_version="0",
    )  # fmt: skip
    create_run(tmp_path / "run", info)
    return tmp_path / "run"


def test_each_file_goes_to_the_importer_of_its_format(
    tmp_path: Path, run: Path, offer: Offer
) -> None:
    offer(f"{__name__}:LinesImporter")
    contents = {
        "first": b"lines and lines",
        "trace": trace(op("a", 0, 10)),
        "1591160640.algo-1.json": SAMPLE,
        "foreign": b"what?",
        "last": b"lines",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    shares: dict[int, float] = {}
    results = import_files([tmp_path / name for name in contents], run, "n", shares.__setitem__)
    first, kineto, samples, foreign, last = results
    assert (first, last) == (Recorded(name="first", form="n"), Recorded(name="last", form="n"))
    assert isinstance(kineto, Imported)
    assert kineto.event_count == 1
    assert isinstance(samples, Recorded)
    assert samples.sample_count == 1
    assert isinstance(foreign, Refused)
    assert {index for index, share in shares.items() if share == 1.0} >= {0, 1, 2, 4}


@pytest.mark.parametrize("value", ["no.such.module:Importer", "builtins:object"])
def test_a_broken_package_costs_a_warning_only(
    tmp_path: Path, run: Path, offer: Offer, value: str
) -> None:
    offer(value)
    (tmp_path / "trace").write_bytes(trace(op("a", 0, 10)))
    with pytest.warns(UserWarning, match=f"{re.escape(value)} cannot be loaded"):
        (result,) = import_files([tmp_path / "trace"], run, "n")
    assert isinstance(result, Imported)


def test_kineto_is_asked_last() -> None:
    assert type(installed_importers()[-1]).__name__ == "KinetoImporter"


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableTraceError, match="is a pipe or a device"):
        registry.find_files([tmp_path / "pipe"])
    assert registry.find_files([tmp_path]) == []


def test_a_small_file_that_inflates_to_more_than_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "timeline.raw.json.gz"
    path.write_bytes(gzip.compress(b"[[0,1,8,0]" + b",[0,1,8,0]" * 100_000 + b"]"))
    monkeypatch.setattr("stepscope.importers.content.MAX_INFLATED_BYTES", 100_000)
    with pytest.raises(OSError, match="it holds more than"):
        read_content(path)
