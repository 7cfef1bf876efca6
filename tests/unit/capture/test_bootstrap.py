"""How stepscope comes into a job's processes, and what it leaves as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

import stepscope

PACKAGE_PARENT = Path(stepscope.__file__).parents[1]


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter in whose environment nothing is installed."""
    place = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(place, with_pip=False)
    return str(place / "bin" / "python")


def fake_framework(directory: Path, body: str = "value = 1") -> None:
    """A package `torch` whose adapters do not exist, for hooks that need no more."""
    (directory / "torch").mkdir()
    (directory / "torch" / "__init__.py").write_text(body)


def test_a_job_without_a_framework_leaves_no_trace(spool: Any) -> None:
    done = spool.run("import json, subprocess, sys; print(json.dumps(1))")
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert list(spool.path.iterdir()) == []


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


def test_python_without_site_or_environment_runs_as_ever(spool: Any) -> None:
    for flags in (("-I",), ("-S",), ("-E",), ("-I", "-S")):
        done = spool.run("print('ok')", flags=flags)
        assert (done.stdout, done.stderr) == ("ok\n", "")
    assert list(spool.path.iterdir()) == []


@pytest.mark.parametrize("as_package", [False, True])
def test_a_sitecustomize_of_the_users_own_runs(
    spool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_package: bool
) -> None:
    own = tmp_path / "own"
    path = own / "sitecustomize" / "__init__.py" if as_package else own / "sitecustomize.py"
    path.parent.mkdir(parents=True)
    path.write_text("import sys; me = sys.modules[__name__]; me.greeting = 'hello'")
    monkeypatch.setenv("PYTHONPATH", str(own))
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


def test_a_sitecustomize_that_fails_fails_as_it_would_alone(
    spool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    for body in ("1 / 0", "import no_such_module"):
        (own / "sitecustomize.py").write_text(body)
        monkeypatch.setenv("PYTHONPATH", str(own))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("STEPSCOPE")}
        alone = subprocess.run(
            [sys.executable, "-c", "print('ok')"], capture_output=True, text=True, env=environment
        )
        with_us = spool.run("print('ok')", check=False)
        assert (with_us.stdout, with_us.returncode) == (alone.stdout, alone.returncode)
        assert with_us.stderr.splitlines()[-1:] == alone.stderr.splitlines()[-1:]


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


class TestImportHook:
    """A framework's import is followed by our adapters; the module does not notice."""

    def run(self, spool: Any, tmp_path: Path, code: str, body: str = "value = 1") -> Any:
        fake_framework(tmp_path, body)
        return spool.run(code, PYTHONPATH=self.path(spool, tmp_path), STEPSCOPE_STRICT="0")

    def path(self, spool: Any, tmp_path: Path) -> str:
        return f"{spool.environment()['PYTHONPATH']}{os.pathsep}{tmp_path}"

    def test_the_module_and_its_loader_stay_what_they_are(self, spool: Any, tmp_path: Path) -> None:
        done = self.run(
            spool,
            tmp_path,
            """
            import importlib.resources, importlib.util, inspect, json, sys
            assert importlib.util.find_spec("torch") is not None  # as many libraries ask
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
        found = json.loads(done.stdout)
        assert found["source"] == found["resource"] == "value = 1"
        assert found["loader"] == "SourceFileLoader"
        assert found["added"] == ["name", "path"]
        assert found["same"]
        assert found["found"]
        assert found["cached"]
        assert found["parent"] == "torch"

    def test_adapters_that_fail_are_noted_and_the_import_succeeds(
        self, spool: Any, tmp_path: Path
    ) -> None:
        """The adapters meet a torch that has nothing of what they look for."""
        done = self.run(spool, tmp_path, "import torch; print(torch.value)")
        assert (done.stdout, done.stderr) == ("1\n", "")
        (note,) = spool.drain().notes
        assert note.startswith("importing frameworks is not recorded any more: ")

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
        assert len(spool.drain().notes) == 1, "the adapters came once, with the second import"

    def test_a_missing_framework_is_missed_as_ever(self, spool: Any, bare_python: str) -> None:
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
        """A finder behind ours, with a loader that takes no attributes."""
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


def test_an_old_python_says_that_it_is_too_old(spool: Any) -> None:
    """Run with the version number faked: the file itself must get that far everywhere."""
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
    assert "it needs Python 3.11 or later" in done.stderr
