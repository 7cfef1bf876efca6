"""Imported by every Python process of a job that runs under `stepscope run`.

It takes its own directory off the path, activates stepscope's adapters, and lets a sitecustomize
of the user's run. It must never fail: a job starts with or without us.
"""

import os
import sys


def _chain():
    """Import the sitecustomize that ours stands in front of, if there is one."""
    own = sys.modules.pop(__name__, None)
    try:
        import sitecustomize  # noqa: F401 - the next one on the path
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if own is not None:
            sys.modules[__name__] = own


def _make_importable(package):
    """Make this very stepscope importable, whatever the job's environment has installed."""
    from importlib.machinery import PathFinder

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name != "stepscope":
                return None
            return PathFinder.find_spec(name, [os.path.dirname(package)], target)

    sys.meta_path.insert(0, Finder)


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
