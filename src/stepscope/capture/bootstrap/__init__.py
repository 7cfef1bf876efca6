"""Bootstrap of capture in every process of an unmodified job.

`stepscope run` prepends `site/` to PYTHONPATH; Python imports `site/sitecustomize.py` at start-up
in every process of the job (torchrun's ranks, spawned workers, subprocesses), which calls
`activate()`. Until the job imports a framework, only the stacks of its main thread are sampled. A
forked child needs no bootstrap: it inherits the adapters and opens a separate session.
"""

from __future__ import annotations

import os
import time

from stepscope.capture import session, startup
from stepscope.capture.frameworks.registry import OLDEST_RELEASES, install_after_imports
from stepscope.capture.import_hooks import after_import
from stepscope.spool import SPOOL_VARIABLE

__all__ = [
    "EXAMINATION", "OLDEST_RELEASES", "PACKAGE", "SITE", "activate", "environment",
    "trial_environment",
]  # fmt: skip
_HERE = os.path.dirname(os.path.abspath(__file__))
EXAMINATION = os.path.join(_HERE, "examination.py")
"""Source that examines the interpreter of a job; see there."""
SITE = os.path.join(_HERE, "site")
"""Directory of the start-up hook, on PYTHONPATH of the job."""
PACKAGE = os.path.dirname(os.path.dirname(_HERE))
"""Directory of stepscope, which the job imports regardless of its own packages."""
PACKAGE_VARIABLE = "STEPSCOPE_PACKAGE"
TRIAL_VARIABLE = "STEPSCOPE_TRIAL"
"""Plan of a trial; see `stepscope.capture.trial`."""

_activated = False


def environment(
    spool: str, limit_bytes: int, kineto_directory: str | None = None
) -> dict[str, str]:
    """Return the environment variables that enable recording in a process and its descendants.

    Args:
        spool: directory of the span logs.
        limit_bytes: size limit of the spool.
        kineto_directory: directory of the socket on which libkineto finds the monitor; None to
            leave libkineto without a daemon.
    """
    from stepscope.capture.frameworks.registry import (
        ADAPTERS_VARIABLE,
        encode_adapters,
        find_other_adapters,
    )
    from stepscope.capture.kineto_daemon import DIRECTORY_VARIABLE
    from stepscope.capture.session import LIMIT_VARIABLE

    return {
        **_bootstrap_variables(os.environ.get("PYTHONPATH")),
        SPOOL_VARIABLE: spool,
        LIMIT_VARIABLE: str(limit_bytes),
        ADAPTERS_VARIABLE: encode_adapters(find_other_adapters()),
        # By default Kineto prints two lines to stderr whenever a profiler starts and stops.
        "KINETO_LOG_LEVEL": os.environ.get("KINETO_LOG_LEVEL", "99"),
        **({DIRECTORY_VARIABLE: kineto_directory} if kineto_directory is not None else {}),
    }


def trial_environment(plan_text: str, python_path: str | None) -> dict[str, str]:
    """Return the environment variables of a trial: it is measured in the job and not recorded.

    Args:
        python_path: `PYTHONPATH` of the job.
    """
    return {
        **_bootstrap_variables(python_path),
        TRIAL_VARIABLE: plan_text,
        "STEPSCOPE_WINDOW": "off",
    }


def _bootstrap_variables(python_path: str | None) -> dict[str, str]:
    return {
        PACKAGE_VARIABLE: PACKAGE,
        "PYTHONPATH": f"{SITE}{os.pathsep}{python_path}" if python_path else SITE,
    }


def activate() -> None:
    """Install the adapters as soon as the job imports their frameworks, and sample the main thread
    from now on. Idempotent."""
    global _activated
    if _activated:
        return
    _activated = True
    session.ready_ns = time.monotonic_ns()
    install_after_imports()
    if os.environ.get(SPOOL_VARIABLE):
        # The sampler's modules are loaded now: later the directory of the script is on the path,
        # and a `tokenize.py` in it would run in the thread of the sampler.
        import json  # noqa: F401 - of the journal
        import linecache  # noqa: F401 - of stack_texts
        import tokenize  # noqa: F401 - of linecache

        from stepscope.capture import stack_texts  # noqa: F401

        startup.start()
    if os.environ.get(TRIAL_VARIABLE):
        after_import("torch", _start_trial)


def _start_trial() -> None:
    from stepscope.capture.trial import activate as activate_trial

    activate_trial(os.environ[TRIAL_VARIABLE])
