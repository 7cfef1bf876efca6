"""Bootstrap in the processes of a job, and its transparency."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.spool import is_relayed, read_failures

PACKAGE_PARENT = Path(stepscope.__file__).parents[1]


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make an interpreter with an empty environment."""
    directory = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(directory, with_pip=False)
    return str(directory / "bin" / "python")


def fake_framework(directory: Path, body: str = "value = 1") -> None:
    """Write an empty package named `torch`, for tests of the import hook."""
    (directory / "torch").mkdir()
    (directory / "torch" / "__init__.py").write_text(body)


def test_an_environment_without_stepscope_can_record(spool: Any, bare_python: str) -> None:
    plain = subprocess.run([bare_python, "-c", "import stepscope"], capture_output=True, text=True)
    assert "No module named 'stepscope'" in plain.stderr
    spool.run(
        """
        import sys, stepscope
        import stepscope.capture.marks
        stepscope.step(7)
        print(stepscope.__file__, stepscope.__spec__.submodule_search_locations)
        """,
        python=bare_python,
    )
    assert [r.value for r in spool.drain().of("step")] == [7]


def test_nothing_is_written_without_a_framework_or_without_site_or_environment(spool: Any) -> None:
    for flags in ((), ("-I",), ("-S",), ("-E",), ("-I", "-S")):
        done = spool.run("import json, subprocess, sys; print(json.dumps(1))", flags=flags)
        assert (done.stdout, done.stderr) == ("1\n", "")
    assert list(spool.path.iterdir()) == []


@pytest.mark.parametrize("as_package", [False, True])
def test_a_sitecustomize_of_the_user_runs(
    spool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_package: bool
) -> None:
    directory = tmp_path / "user"
    path = directory / ("sitecustomize/__init__.py" if as_package else "sitecustomize.py")
    path.parent.mkdir(parents=True)
    path.write_text("import sys; me = sys.modules[__name__]; me.greeting = 'hello'")
    monkeypatch.setenv("PYTHONPATH", str(directory))
    done = spool.run(
        """
        import sys, sitecustomize, stepscope
        print(sitecustomize.greeting, sitecustomize.__file__)
        print([p for p in sys.path if "bootstrap" in p])
        stepscope.step()
        """
    )
    assert done.stdout == f"hello {path}\n[]\n"
    assert done.stderr == ""
    assert len(spool.drain().of("step")) == 1


def test_a_failing_sitecustomize_fails_as_without_stepscope(
    spool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "user"
    directory.mkdir()
    for body in ("1 / 0", "import no_such_module"):
        (directory / "sitecustomize.py").write_text(body)
        monkeypatch.setenv("PYTHONPATH", str(directory))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("STEPSCOPE")}
        alone = subprocess.run(
            [sys.executable, "-c", "print('ok')"], capture_output=True, text=True, env=environment
        )
        recorded = spool.run("print('ok')", check=False)
        assert (recorded.stdout, recorded.returncode) == (alone.stdout, alone.returncode)
        assert recorded.stderr.splitlines()[-1:] == alone.stderr.splitlines()[-1:]


def test_children_inherit_the_path(spool: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "users"))
    spool.run(
        """
        import os, subprocess, sys, stepscope
        assert sys.path.count(os.environ["PYTHONPATH"].split(":")[1]) == 1
        stepscope.step(1)
        code = "import stepscope; stepscope.step(2)"
        subprocess.run([sys.executable, "-c", code], check=True)
        subprocess.run(f"'{sys.executable}' -c '{code}'", shell=True, check=True)
        """
    )
    assert [r.value for r in spool.drain().of("step")] == [1, 2, 2]


def test_spawned_and_forkserver_children_record(spool: Any) -> None:
    spool.run(
        """
        import multiprocessing, sys, stepscope
        def work(n):
            stepscope.step(n)
        if __name__ == "__main__":
            number = 0
            for method in ("fork", "spawn", "forkserver"):
                context = multiprocessing.get_context(method)
                children = [context.Process(target=work, args=(number + n,)) for n in range(2)]
                [c.start() for c in children]
                [c.join() for c in children]
                assert [c.exitcode for c in children] == [0, 0]
                number += 2
        """
    )
    recorded = spool.drain()
    assert sorted(r.value for r in recorded.of("step")) == list(range(6))
    assert len(recorded.processes) == 6


def test_the_exceptions_that_end_processes_are_noted(spool: Any) -> None:
    """In the order of time, with their stacks; a later process shows that the job survived them."""

    def read() -> list[tuple[str, str, bool]]:
        failures = read_failures(str(spool.path))
        return [(f["exception"], f["message"], is_relayed(f)) for f in failures]

    spool.run("print('fine')")
    assert read() == []
    launcher = """
        import subprocess, sys
        code = "def load():" + chr(10) + "  raise ValueError('first' + chr(10) + 'second')"
        subprocess.run([sys.executable, "-c", code + chr(10) + "load()"], check=True)
    """
    spool.run(launcher, check=False)
    (first, _) = read_failures(str(spool.path))
    assert first["frames"] == [["<string>", 2, "load"], ["<string>", 3, "<module>"]]
    assert first["traceback"][-2:] == ["ValueError: first", "second"]
    (relayed,) = (message for name, message, _ in read() if name == "CalledProcessError")
    spool.run("class Error(Exception):\n  __str__ = None\nraise Error", check=False)
    assert read() == [
        ("ValueError", "first", False),
        ("CalledProcessError", relayed, True),
        ("Error", "", False),
    ]
    assert [path.name for path in spool.path.iterdir()] == ["failures"]
    spool.run("import sys; sys.exit('not an exception')", check=False)
    assert read() == []


CRASH = """
    import os, signal, stepscope
    stepscope.step(1)
    def crash():
        os.kill(os.getpid(), signal.SIGSEGV)
    crash()
"""


def test_stacks_at_a_fatal_signal_are_kept_beside_the_records(spool: Any) -> None:
    """The terminal, and a handler of the job, are as without stepscope."""
    done = spool.run(CRASH, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGSEGV, "")
    (crash,) = spool.path.glob("p-*/crash")
    assert "in crash\n" in crash.read_text()
    enabled = "import faulthandler; faulthandler.enable()"
    done = spool.run(f"    {enabled}{CRASH}", check=False)
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert len(list(spool.path.glob("p-*/crash"))) == 1


class TestImportHook:
    """Adapters are installed after the import of a framework, transparently to the module."""

    def run(self, spool: Any, tmp_path: Path, code: str, body: str = "value = 1") -> Any:
        fake_framework(tmp_path, body)
        return spool.run(code, PYTHONPATH=self.path(spool, tmp_path), STEPSCOPE_STRICT="0")

    def path(self, spool: Any, tmp_path: Path) -> str:
        return f"{spool.environment()['PYTHONPATH']}{os.pathsep}{tmp_path}"

    def test_the_module_and_its_loader_are_not_changed(self, spool: Any, tmp_path: Path) -> None:
        job = self.run(
            spool,
            tmp_path,
            """
            import importlib.resources, importlib.util, inspect, json, sys
            assert importlib.util.find_spec("torch") is not None  # as many libraries do
            import torch
            spec = torch.__spec__
            print(json.dumps({
                "source": inspect.getsource(torch).strip(),
                "loader": type(torch.__loader__).__name__,
                "same": spec.loader is torch.__loader__,
                "added": sorted(vars(torch.__loader__)),
                "resource": importlib.resources.files(torch).joinpath("__init__.py").read_text(),
                "finders": [type(f).__module__ for f in sys.meta_path],
                "found": importlib.util.find_spec("torch") is spec,
                "parent": spec.parent, "cached": spec.cached == torch.__cached__,
            }))
            """,
        )
        properties = json.loads(job.stdout)
        assert properties["source"] == properties["resource"] == "value = 1"
        assert properties["loader"] == "SourceFileLoader"
        assert properties["added"] == ["name", "path"]
        assert properties["same"]
        assert properties["found"]
        assert properties["cached"]
        assert properties["parent"] == "torch"

    def test_adapters_that_fail_are_noted_and_the_import_succeeds(
        self, spool: Any, tmp_path: Path
    ) -> None:
        """The adapters run on a package without the attributes of torch."""
        done = self.run(spool, tmp_path, "import torch; print(torch.value)")
        assert (done.stdout, done.stderr) == ("1\n", "")
        (note,) = spool.drain().notes
        assert note.startswith(
            "stopped recording what the adapter of torch records after an error: "
        )

    def test_an_import_that_fails_can_be_tried_again(self, spool: Any, tmp_path: Path) -> None:
        done = self.run(
            spool,
            tmp_path,
            """
            import os
            for _ in range(2):
                try:
                    import torch
                except ZeroDivisionError:
                    print("failed")
                    os.environ["GO"] = "1"
            print(torch.value)
            """,
            "import os\nif 'GO' not in os.environ: 1 / 0\nvalue = 2",
        )
        assert done.stdout == "failed\n2\n"
        assert len(spool.drain().notes) == 1, "the second import installed the adapters"

    def test_the_error_of_a_missing_framework_is_unchanged(
        self, spool: Any, bare_python: str
    ) -> None:
        done = spool.run(
            """
            try:
                import torch
            except ModuleNotFoundError as error:
                print(error.name, error)
            import importlib.util
            print(importlib.util.find_spec("torch"))
            """,
            python=bare_python,
        )
        assert done.stdout == "torch No module named 'torch'\nNone\n"

    def test_other_finders_keep_working(self, spool: Any, tmp_path: Path) -> None:
        """A finder after stepscope's, with a loader without instance attributes."""
        done = self.run(
            spool,
            tmp_path,
            """
            import sys
            from importlib.machinery import ModuleSpec
            class Slotted:
                __slots__ = ()
                def create_module(self, spec): return None
                def exec_module(self, module): module.value = 3
            class Finder:
                @classmethod
                def find_spec(cls, name, path=None, target=None):
                    return ModuleSpec("torch", Slotted()) if name == "torch" else None
            sys.meta_path.insert(1, Finder)
            import torch
            print(torch.value)
            """,
        )
        assert done.stdout == "3\n"


def test_an_unsupported_python_version_is_reported(spool: Any) -> None:
    """The version number is faked: the file itself must run in every version."""
    site = PACKAGE_PARENT / "stepscope/capture/bootstrap/site/sitecustomize.py"
    done = spool.run(
        f"""
        import sys
        sys.version_info = (3, 8, 0)
        exec(compile(open({str(site)!r}).read(), {str(site)!r}, "exec"),
             {{"__file__": {str(site)!r}, "__name__": "sitecustomize"}})
        print("goes on")
        """
    )
    assert done.stdout == "goes on\n"
    assert "stepscope records Python 3.9 or later" in done.stderr
