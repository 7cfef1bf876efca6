"""Start-up hook, imported by every Python process of a job under `stepscope run`.

It removes its directory from the path, activates stepscope's adapters, and runs the user's
sitecustomize. It must never fail: the job starts even if it cannot be recorded.
"""

import os
import sys


def _chain():
    """Import the sitecustomize that this module shadows, if there is one."""
    this_module = sys.modules.pop(__name__, None)
    try:
        import sitecustomize  # noqa: F401 - the next sitecustomize on the path
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if this_module is not None:
            sys.modules[__name__] = this_module


def _make_importable(package):
    """Make this stepscope importable, regardless of the packages in the job's environment."""
    from importlib.machinery import PathFinder

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name != "stepscope":
                return None
            return PathFinder.find_spec(name, [os.path.dirname(package)], target)

    sys.meta_path.insert(0, Finder)


def _boot():
    directory = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != directory]
    package = os.environ.get("STEPSCOPE_PACKAGE")
    if package and (os.environ.get("STEPSCOPE_SPOOL") or os.environ.get("STEPSCOPE_TRIAL")):
        try:
            if sys.version_info < (3, 9):
                raise ImportError("stepscope records Python 3.9 or later")
            _make_importable(package)
            from stepscope.capture.bootstrap import activate

            activate()
        except Exception as error:
            _warn(f"stepscope: process {os.getpid()} is not recorded: {error}\n")
    _chain()


def _warn(line):
    """Print a line on stderr, without a buffer that may fail to be flushed at exit."""
    try:
        os.write(sys.stderr.fileno(), line.encode(errors="backslashreplace"))
    except (OSError, ValueError, AttributeError):  # missing, closed or full stderr
        pass


_boot()
