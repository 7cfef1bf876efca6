"""Exporters by name: built-in ones and those of installed packages."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from stepscope.errors import UsageError
from stepscope.exporters import ExportOptions, Written, export, list_exporters, registry
from stepscope.run import Run
from stepscope.testing import RunBuilder


class StepCountExporter:
    """Exporter of a third party."""

    options = frozenset({"rank"})

    def export(self, run: Run, output: str, options: ExportOptions) -> list[Written]:
        Path(output).write_text(f"{len(run.ranks)} of {options.rank}")
        return [Written(path=output, content="1 number")]


def install(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    offers = [EntryPoint("mine", value, registry.GROUP)]
    monkeypatch.setattr(registry, "entry_points", lambda group: offers)


def test_an_installed_exporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, f"{__name__}:StepCountExporter")
    assert list_exporters()[-1] == "mine"
    run = RunBuilder(tmp_path / "run").open()
    (written,) = export(run, "mine", str(tmp_path / "f"), ExportOptions(rank=3))
    assert (tmp_path / "f").read_text() == "0 of 3"
    assert written.path == str(tmp_path / "f")
    with pytest.raises(UsageError, match=r"--to mine does not take --merge; it takes --rank\."):
        export(run, "mine", str(tmp_path / "f"), ExportOptions(merge=True))


@pytest.mark.parametrize("value", ["no.such.module:Exporter", "builtins:object"])
def test_a_broken_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    install(monkeypatch, value)
    run = RunBuilder(tmp_path / "run").open()
    with pytest.raises(UsageError, match="The exporter mine cannot be loaded: "):
        export(run, "mine", str(tmp_path / "f"), ExportOptions())
    with pytest.raises(UsageError, match="There is no format 'yours'; there are chrome, "):
        export(run, "yours", str(tmp_path / "f"), ExportOptions())
