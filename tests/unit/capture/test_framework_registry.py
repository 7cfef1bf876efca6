"""Adapters of frameworks: those of other packages, and those that fail."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from stepscope.capture.frameworks.registry import (
    ADAPTERS,
    ADAPTERS_VARIABLE,
    GROUP,
    encode_adapters,
    find_other_adapters,
)
from tests.support.under_stepscope import run_under

ADAPTER = """
def install():
    import framework
    from stepscope.capture.frameworks.progress import record_versions
    framework.adapted = True
    record_versions(lambda: {"framework": framework.__version__})

def fail():
    raise KeyError("on purpose")
"""


def write_package(directory: Path) -> None:
    """Write a framework, and a package with an adapter for it, as an installer would."""
    (directory / "framework.py").write_text("adapted, __version__ = False, '1.2'")
    (directory / "its_adapter.py").write_text(ADAPTER)
    info = directory / "its_adapter-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: its-adapter\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nframework = its_adapter:install\n")


def test_adapters_of_installed_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_other_adapters() == {}
    write_package(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_other_adapters() == {"framework": "its_adapter:install"}
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "absent")])
    assert find_other_adapters() == {"framework": "its_adapter:install"}


def test_adapters_are_installed_after_the_import_and_one_that_fails_stops_no_other(
    spool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(tmp_path)
    (tmp_path / "another.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    adapters = {
        "another": "its_adapter:fail",
        "framework": "its_adapter:install",
        "absent": "nowhere:install",
    }
    done = spool.run(
        """
        import sys
        assert "its_adapter" not in sys.modules
        import another, framework
        print(framework.adapted)
        """,
        **{ADAPTERS_VARIABLE: encode_adapters(adapters), "STEPSCOPE_STRICT": ""},
    )
    assert done.stdout == "True\n", done.stderr
    (note,) = spool.drain().notes
    assert note.startswith("stopped recording what the adapter of another records after an error")
    assert "KeyError('on purpose')" in note


def test_an_adapter_of_another_package_records_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(tmp_path)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    script = "import framework, stepscope; [stepscope.step() for _ in range(3)]"
    options = ("--window", "off", "--no-rules")
    job = run_under(tmp_path / "run", sys.executable, "-c", script, options=options)
    assert job.payload("show", "overview")["versions"]["framework"] == "1.2", job.stderr


def test_adapters_exist() -> None:
    """Each function that the registry names is there, found without importing its framework."""
    source = Path(sys.modules["stepscope"].__file__ or "").parents[1]
    for adapter in ADAPTERS.values():
        module, _, function = adapter.partition(":")
        path = source / module.replace(".", os.sep)
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        assert f"def {function}() -> None:" in path.read_text()
