"""Imported by every Python process of a job that runs under `stepscope run`.

It takes its own directory off the path, lets a sitecustomize of the user's run, and activates
stepscope's adapters. It must never fail: a job starts with or without us.
"""

import os
import sys


def _chain():
    """Run the sitecustomize that ours stands in front of, if there is one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


def _make_importable(package):
    """Make this very stepscope importable, whatever the job's environment has installed."""
    import importlib.abc
    from importlib.util import spec_from_file_location

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name != "stepscope":
                return None
            return spec_from_file_location(
                name,
                os.path.join(package, "__init__.py"),
                submodule_search_locations=[package],
            )

    sys.meta_path.insert(0, Finder())


def _boot():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    package = os.environ.get("STEPSCOPE_PACKAGE")
    if package and os.environ.get("STEPSCOPE_SPOOL"):
        try:
            if sys.version_info < (3, 11):
                raise ImportError("it needs Python 3.11 or later in the job")
            _make_importable(package)
            from stepscope.capture.bootstrap import activate

            activate()
        except Exception as error:
            sys.stderr.write(f"stepscope: nothing is recorded in process {os.getpid()}: {error}\n")
    _chain()


_boot()
